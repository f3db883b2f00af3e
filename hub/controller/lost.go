package controller

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
)

// A namespace has one policy. Other policies that select it have no effect there: no Lease, no fence and no stop
// time.

// ownedByOther reports whether a record belongs to a policy of the fleet other than p. An owner without a claim to
// the namespace is about to lose it: the next owner fences it before this owner's fences are removed.
func ownedByOther(o *v1alpha1.NamespaceLeader, p *policy, policies []*policy, claims func(*policy) bool) bool {
	owner := o.Spec.Policy
	return owner != "" && owner != p.object.Name && o.Spec.State != v1alpha1.StateRetired &&
		slices.ContainsFunc(policies, func(other *policy) bool {
			return other.object.Name == owner && (other.unknown || claims(other))
		})
}

// lostNames returns the namespaces that a policy names and does not own, from a cache.
func (c *Controller) lostNames(ctx context.Context, p *policy, policies []*policy) (lost []string) {
	for _, o := range c.namedRecords(ctx, p) {
		mayClaim := func(other *policy) bool { return other.names[o.Name] || other.object.Spec.Namespaces.Selector != nil }
		if ownedByOther(o, p, policies, mayClaim) {
			lost = append(lost, o.Name)
		}
	}
	return lost
}

// lostItsNamespace reports whether a policy that fences locks has no effect: another policy owns the one namespace that
// it names.
func (c *Controller) lostItsNamespace(ctx context.Context, p *policy, policies []*policy) bool {
	return !p.unknown && len(c.lostNames(ctx, p, policies)) > 0
}

// leadsFor reports whether a member leads a namespace of a policy, from cached records. It returns true if they
// cannot be read.
func (c *Controller) leadsFor(ctx context.Context, p *policy, m fleet.Member) bool {
	var all v1alpha1.NamespaceLeaderList
	if err := c.client.List(ctx, &all, client.InNamespace(p.object.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	return slices.ContainsFunc(all.Items, func(o v1alpha1.NamespaceLeader) bool {
		return o.Spec.Policy == p.object.Name && o.Spec.Leader == m.Name
	})
}

// namedRecords returns the records of the namespaces that a policy names, from a cache.
func (c *Controller) namedRecords(ctx context.Context, p *policy) (records []*v1alpha1.NamespaceLeader) {
	for _, name := range p.object.Spec.Namespaces.Names {
		o := &v1alpha1.NamespaceLeader{}
		key := types.NamespacedName{Namespace: p.object.Namespace, Name: name}
		if c.client.Get(ctx, key, o, client.UnsafeDisableDeepCopy) == nil {
			records = append(records, o)
		}
	}
	return records
}

// lostIn returns the namespaces of a member that a policy selects and does not own, from caches.
func (c *Controller) lostIn(ctx context.Context, p *policy, policies []*policy, m fleet.Member) (lost []string, err error) {
	records := c.namedRecords(ctx, p)
	if p.object.Spec.Namespaces.Selector != nil {
		var all v1alpha1.NamespaceLeaderList
		if err := c.client.List(ctx, &all, client.InNamespace(p.object.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		for i := range all.Items {
			if o := &all.Items[i]; !p.names[o.Name] {
				records = append(records, o)
			}
		}
	}
	for _, o := range records {
		ns, err := c.source.namespace(ctx, m, o.Name)
		claims := func(other *policy) bool { return c.claims(ctx, other, o.Name) }
		if (p.names[o.Name] || err == nil && p.matches(ns.Name, ns.Labels)) && ownedByOther(o, p, policies, claims) {
			lost = append(lost, o.Name)
		}
	}
	slices.Sort(lost)
	return lost, nil
}

// claims reports whether a policy that owns a namespace still claims it in any member, from caches. A member that
// cannot be read counts as a claim.
func (c *Controller) claims(ctx context.Context, owner *policy, namespace string) bool {
	return slices.ContainsFunc(c.source.members(owner.object.Namespace), func(m fleet.Member) bool {
		if !owner.speaksOf(&memberView{Member: m}) {
			return false
		}
		ns, err := c.source.namespace(ctx, m, namespace)
		return err != nil && !apierrors.IsNotFound(err) || err == nil && owner.matches(namespace, ns.Labels)
	})
}
