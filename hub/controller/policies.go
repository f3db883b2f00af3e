package controller

import (
	"cmp"
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
)

// policies reads the policies of fleets, and what they own, from caches.
type policies struct {
	*hub
	versions decide.Versions

	mu      sync.Mutex
	shown   map[string][]*decide.Policy // by fleet: see asShown
	changes int                         // how often one has changed
}

// valid returns the policies of a fleet with these members, oldest first, each in its last valid version.
func (r *policies) valid(ctx context.Context, fleetName string, members []fleet.Member) ([]*decide.Policy, error) {
	stored, err := listPolicies(ctx, r.Client, fleetName)
	if err != nil {
		return nil, err
	}
	ps := r.versions.LastValid(fleetName, stored)
	decide.ShareLocks(ps, members, func(p *decide.Policy) bool {
		return r.lostItsNamespace(ctx, p, ps)
	})
	return ps, nil
}

// asShown returns what valid returned after the last event of a policy. Events of members read it, which can be
// any number.
func (r *policies) asShown(ctx context.Context, fleetName string) ([]*decide.Policy, error) {
	r.mu.Lock()
	shown, changes := r.shown[fleetName], r.changes
	r.mu.Unlock()
	if shown != nil {
		return shown, nil
	}
	read, err := r.valid(ctx, fleetName, r.source.Members(fleetName))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes == changes {
		r.shown[fleetName] = read // nil after a failure: the next one reads again
	}
	return read, err
}

// changed has the policies of a fleet read again.
func (r *policies) changed(fleetName string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	delete(r.shown, fleetName)
}

// listPolicies returns the stored policies of a fleet, oldest first, from a cache. The caller must not change them.
func listPolicies(ctx context.Context, reader client.Reader, fleet string) ([]*v1alpha1.LeadershipPolicy, error) {
	var list v1alpha1.LeadershipPolicyList
	if err := reader.List(ctx, &list, client.InNamespace(fleet), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	stored := make([]*v1alpha1.LeadershipPolicy, 0, len(list.Items))
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp.IsZero() {
			stored = append(stored, &list.Items[i])
		}
	}
	slices.SortFunc(stored, func(a, b *v1alpha1.LeadershipPolicy) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return stored, nil
}

// lostNames returns the namespaces that a policy names and does not own, from a cache.
func (r *policies) lostNames(ctx context.Context, p *decide.Policy, policies []*decide.Policy) (lost []string) {
	for _, o := range r.ledger.CachedOf(ctx, p.Object.Namespace, p.Object.Spec.Namespaces.Names) {
		mayClaim := func(other *decide.Policy) bool {
			return other.Names[o.Name] || other.Object.Spec.Namespaces.Selector != nil
		}
		if decide.OwnedByOther(o, p, policies, mayClaim) {
			lost = append(lost, o.Name)
		}
	}
	return lost
}

// lostItsNamespace reports whether a policy that fences locks has no effect: another policy owns the one namespace that
// it names.
func (r *policies) lostItsNamespace(ctx context.Context, p *decide.Policy, policies []*decide.Policy) bool {
	return !p.Unknown && len(r.lostNames(ctx, p, policies)) > 0
}

// leadsFor reports whether a member leads a namespace of a policy, from cached records. It returns true if they
// cannot be read.
func (r *policies) leadsFor(ctx context.Context, p *decide.Policy, m fleet.Member) bool {
	all, err := r.ledger.Cached(ctx, p.Object.Namespace)
	return err != nil || slices.ContainsFunc(all, func(o v1alpha1.NamespaceLeader) bool {
		return o.Spec.Policy == p.Object.Name && o.Spec.Leader == m.Name
	})
}

// lostIn returns the namespaces of a member that a policy selects and does not own, from caches.
func (r *policies) lostIn(
	ctx context.Context, p *decide.Policy, policies []*decide.Policy, m fleet.Member,
) (lost []string, err error) {
	records := r.ledger.CachedOf(ctx, p.Object.Namespace, p.Object.Spec.Namespaces.Names)
	if p.Object.Spec.Namespaces.Selector != nil {
		all, err := r.ledger.Cached(ctx, p.Object.Namespace)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if o := &all[i]; !p.Names[o.Name] {
				records = append(records, o)
			}
		}
	}
	for _, o := range records {
		ns, err := r.source.namespace(ctx, m, o.Name)
		claims := func(other *decide.Policy) bool { return r.claims(ctx, other, o.Name) }
		if (p.Names[o.Name] || err == nil && p.Matches(ns.Name, ns.Labels)) && decide.OwnedByOther(o, p, policies, claims) {
			lost = append(lost, o.Name)
		}
	}
	slices.Sort(lost)
	return lost, nil
}

// claims reports whether a policy that owns a namespace still claims it in any member, from caches. A member that
// cannot be read counts as a claim.
func (r *policies) claims(ctx context.Context, owner *decide.Policy, namespace string) bool {
	return slices.ContainsFunc(r.source.Members(owner.Object.Namespace), func(m fleet.Member) bool {
		if !owner.Includes(&decide.Member{Member: m}) {
			return false
		}
		ns, err := r.source.namespace(ctx, m, namespace)
		return err != nil && !apierrors.IsNotFound(err) || err == nil && owner.Matches(namespace, ns.Labels)
	})
}

// closedLocks returns the policy's locks that no cluster may hold yet, by the cached record.
func (r *policies) closedLocks(ctx context.Context, p *decide.Policy) (closed []string) {
	var open []string // of the one namespace that a policy with locks names
	for _, o := range r.ledger.CachedOf(ctx, p.Object.Namespace, p.Object.Spec.Namespaces.Names) {
		open = o.Spec.OpenLocks
	}
	return slices.DeleteFunc(slices.Clone(p.Election.Locks), func(lock string) bool { return slices.Contains(open, lock) })
}

// setProbing has the members of a fleet probed, and their clocks judged, for each policy there that selects them.
func (r *policies) setProbing(fleetName string, policies []*decide.Policy) {
	var by []fleet.Probing
	for _, p := range policies {
		if t := p.Election.Timings; !p.Unknown {
			by = append(by, fleet.Probing{Clusters: p.Clusters, Interval: t.Renew, Timeout: t.Timeout, Skew: t.Skew})
		}
	}
	r.Fleet.SetProbing(fleetName, by)
}
