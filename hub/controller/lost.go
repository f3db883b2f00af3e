package controller

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
)

// A namespace has one policy. Others that select it have no effect there: no Lease, no fence and no stop time.

// ownedByOther reports whether a record belongs to another policy of the fleet than this one.
func ownedByOther(o *v1alpha1.NamespaceLeader, p *policy, policies []*policy) bool {
	owner := o.Spec.Policy
	return owner != "" && owner != p.object.Name && o.Spec.State != v1alpha1.StateRetired &&
		slices.ContainsFunc(policies, func(other *policy) bool { return other.object.Name == owner })
}

// lostNames returns the namespaces that a policy names and does not own, by a cache.
func (c *Controller) lostNames(ctx context.Context, p *policy, policies []*policy) (lost []string) {
	for _, name := range p.object.Spec.Namespaces.Names {
		o := &v1alpha1.NamespaceLeader{}
		key := types.NamespacedName{Namespace: p.object.Namespace, Name: name}
		if c.client.Get(ctx, key, o, client.UnsafeDisableDeepCopy) == nil && ownedByOther(o, p, policies) {
			lost = append(lost, name)
		}
	}
	return lost
}

// lostIn returns the namespaces of a member that a policy selects and does not own, by caches.
func (c *Controller) lostIn(ctx context.Context, p *policy, policies []*policy, m fleet.Member) ([]string, error) {
	lost := c.lostNames(ctx, p, policies)
	if p.object.Spec.Namespaces.Selector == nil {
		return lost, nil
	}
	var records v1alpha1.NamespaceLeaderList
	if err := c.client.List(ctx, &records, client.InNamespace(p.object.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	cl := m.Cluster()
	for i := range records.Items {
		o := &records.Items[i]
		if cl == nil || p.names[o.Name] || !ownedByOther(o, p, policies) {
			continue
		}
		ns := &corev1.Namespace{}
		err := cl.GetCache().Get(ctx, types.NamespacedName{Name: o.Name}, ns, client.UnsafeDisableDeepCopy)
		if err == nil && p.matches(ns.Name, ns.Labels) {
			lost = append(lost, o.Name)
		}
	}
	slices.Sort(lost)
	return lost, nil
}
