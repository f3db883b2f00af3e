package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/guard/locks"
	"github.com/leasecast/leasecast/hub/health"
)

// policy is a LeadershipPolicy, parsed for decisions.
type policy struct {
	object     *v1alpha1.LeadershipPolicy
	clusters   labels.Selector
	names      map[string]bool
	namespaces labels.Selector
	election   election.Policy
	thresholds health.Thresholds
	locks      []locks.Lock // locks that it fences with enforcement Deny, and that no older policy fences too
	// invalid is why the stored version is invalid. Unless unknown is set, the other fields are the last valid
	// version's, which stays in effect (valid.go).
	invalid error
	unknown bool
	// unreadable: it is invalid, and its selection is not known.
	unreadable bool
	fences     *fenceSets
	// onlyFor is the recorded leader, where only the record is known of the policy. That leader is renewed, and no
	// other cluster is chosen.
	onlyFor string
}

// parsePolicy parses a policy. A stored policy that the CRD would reject today is invalid.
func parsePolicy(o *v1alpha1.LeadershipPolicy) *policy {
	t := o.Spec.Timings
	p := &policy{
		object: o,
		names:  map[string]bool{},
		fences: &fenceSets{},
		election: election.Policy{
			Timings: lease.Timings{
				Duration: milliseconds(t.LeaseDurationMilliseconds),
				Renew:    milliseconds(t.RenewIntervalMilliseconds),
				Timeout:  milliseconds(t.RequestTimeoutMilliseconds),
				Skew:     milliseconds(t.MaxClockSkewMilliseconds),
			},
			LeaseName:                   o.LeaseName(),
			FailOverWhenMostUnreachable: o.Spec.Health.WhenMostUnreachable != v1alpha1.HoldWhenMostUnreachable,
			Acknowledged:                o.Spec.Handover == v1alpha1.HandoverRegisteredReaders && !admitsByLease(o.Spec.Fencing),
			InitialDelay:                v1alpha1.DefaultInitialDelay,
		},
	}
	if d := o.Spec.InitialDelaySeconds; d != nil {
		p.election.InitialDelay = time.Duration(*d) * time.Second
	}
	renew := p.election.Timings.Renew
	p.thresholds = health.Thresholds{Timeout: p.election.Timings.Timeout, UnreachableAfter: 2 * renew, RecoverAfter: renew}
	if d := o.Spec.Health.UnreachableAfterMilliseconds; d != 0 {
		p.thresholds.UnreachableAfter = milliseconds(d)
	}
	if d := o.Spec.Health.RecoverAfterMilliseconds; d != nil {
		p.thresholds.RecoverAfter = milliseconds(*d)
	}
	for _, n := range o.Spec.Namespaces.Names {
		p.names[n] = true
	}
	p.clusters, p.namespaces = labels.Everything(), labels.Nothing()
	type selection struct {
		from *metav1.LabelSelector
		to   *labels.Selector
	}
	selections := []selection{{o.Spec.ClusterSelector, &p.clusters}, {o.Spec.Namespaces.Selector, &p.namespaces}}
	for _, s := range fencedLabels(o.Spec.Fencing) {
		selections = append(selections, selection{s, new(labels.Selector)}) // API servers select by these
	}
	for _, s := range selections {
		if s.from == nil {
			continue
		}
		selector, err := selectorOf(s.from)
		if err != nil {
			p.invalid, p.unreadable = err, p.unreadable || s.to == &p.clusters || s.to == &p.namespaces
			selector = labels.Nothing()
		}
		*s.to = selector
	}
	if err := p.election.Timings.Validate(); err != nil {
		p.invalid = err
	}
	p.unknown = p.invalid != nil
	p.setLocks(enforcedLocks(o.Spec.Fencing))
	return p
}

// setLocks sets the locks that the policy fences.
func (p *policy) setLocks(ls []locks.Lock) {
	p.locks, p.election.Locks, p.election.StopTime = ls, nil, 0
	for _, l := range ls {
		p.election.Locks = append(p.election.Locks, l.String())
		p.election.StopTime = max(p.election.StopTime, l.StopTime())
	}
	p.election.StopTime = (p.election.StopTime + time.Second - 1).Truncate(time.Second) // records hold whole seconds
	slices.Sort(p.election.Locks)
}

// shareLocks removes from policies, oldest first, the locks that they cannot fence in all of their members. An
// older policy fences them there, or has Leases of that name. Such a lock stays closed. A policy that has lost its
// namespace fences no lock.
func shareLocks(policies []*policy, members []fleet.Member, lost func(*policy) bool) {
	for i, p := range policies {
		kept := slices.DeleteFunc(slices.Clone(p.locks), func(l locks.Lock) bool {
			return writer(policies[:i], l.Name) != "" || slices.ContainsFunc(policies[:i], func(older *policy) bool {
				return older.fencesLock(l) && !lost(older) && slices.ContainsFunc(members, func(m fleet.Member) bool { return older.selects(m) && p.selects(m) })
			})
		})
		if len(kept) < len(p.locks) {
			p.setLocks(kept)
		}
	}
}

// fencesLock reports whether the policy asks for a fence of the lock.
func (p *policy) fencesLock(l locks.Lock) bool {
	return slices.ContainsFunc(locks.Of(p.object.Spec.Fencing), func(o locks.Lock) bool { return o.NamespacedName == l.NamespacedName })
}

// selectorOf parses a selector. Of several faults it always reports the same one, because each change would be
// written into the status.
func selectorOf(s *metav1.LabelSelector) (labels.Selector, error) {
	ordered := &metav1.LabelSelector{MatchExpressions: slices.Clone(s.MatchExpressions)}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		ordered.MatchExpressions = append(ordered.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{s.MatchLabels[key]}})
	}
	return metav1.LabelSelectorAsSelector(ordered)
}

// admitsByLease reports whether API servers admit Jobs or the holders of locks by the Lease. An API server may be
// behind, and no reader can report when it stops admitting. That is certain only when the term has expired.
func admitsByLease(f *v1alpha1.Fencing) bool {
	return f != nil && (f.Schedules != nil || len(f.LeaderElectionLocks) > 0) && f.Enforcement != v1alpha1.EnforcementWarn
}

// fencedLabels returns the label selectors in a policy's fencing.
func fencedLabels(f *v1alpha1.Fencing) (all []*metav1.LabelSelector) {
	if f == nil {
		return nil
	}
	for _, w := range f.Writes {
		all = append(all, &metav1.LabelSelector{MatchLabels: w.ObjectLabels})
	}
	return append(all, f.Schedules)
}

// enforcedLocks returns the locks that API servers reject, as opposed to those that they only warn of.
func enforcedLocks(f *v1alpha1.Fencing) []locks.Lock {
	if f == nil || f.Enforcement == v1alpha1.EnforcementWarn {
		return nil
	}
	return locks.Of(f)
}

// slowestLock returns the lock of the policy whose holder takes longest to stop, or nil without locks.
func (p *policy) slowestLock() (slowest *locks.Lock) {
	for _, l := range p.locks {
		if slowest == nil || l.StopTime() > slowest.StopTime() {
			slowest = &l
		}
	}
	return slowest
}

func milliseconds(n int32) time.Duration { return time.Duration(n) * time.Millisecond }

// selects reports whether the policy's clusterSelector matches a Cluster.
func (p *policy) selects(m fleet.Member) bool {
	return p.clusters.Matches(labels.Set(m.Labels))
}

// matches reports whether the policy manages a namespace with these labels.
func (p *policy) matches(namespace string, set map[string]string) bool {
	return !v1alpha1.NeverManaged(namespace) &&
		(p.names[namespace] || p.namespaces.Matches(labels.Set(set)))
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

// fenceSets caches the fences of one version of a policy, by the set of namespaces that the policy lost. They take
// long to compute.
type fenceSets struct {
	mu   sync.Mutex
	sets map[string][]guard.Fence
}

// fencesBut returns the fences that the policy asks for, without the lost namespaces. The caller must not change
// them.
func (p *policy) fencesBut(hub string, lost []string) []guard.Fence {
	if p.object.Spec.Fencing == nil {
		return nil
	}
	key := hub + "/" + strings.Join(lost, ",")
	p.fences.mu.Lock()
	defer p.fences.mu.Unlock()
	fs, known := p.fences.sets[key]
	if !known {
		if len(p.fences.sets) >= maxFenceSets || p.fences.sets == nil {
			p.fences.sets = map[string][]guard.Fence{}
		}
		fs = guard.Fences(hub, p.object, lost)
		p.fences.sets[key] = fs
	}
	return fs
}

// maxFenceSets bounds the cached sets: members may have lost different namespaces.
const maxFenceSets = 64
