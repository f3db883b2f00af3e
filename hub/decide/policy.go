package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/guard/locks"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/worker"
)

// Policy is a LeadershipPolicy, parsed for decisions.
type Policy struct {
	Object     *v1alpha1.LeadershipPolicy
	Clusters   labels.Selector
	Names      map[string]bool
	Namespaces labels.Selector
	Election   election.Policy
	Thresholds health.Thresholds
	MostMoves  int // how many planned changes may go on at once
	Spread     bool
	Overrides  map[string]string // the preferred cluster, by namespace
	// Requires is what must be healthy where a leader is, or nil.
	Requires  *worker.Requires
	Freeze    act.Act
	Rebalance act.Act
	Locks     []locks.Lock // locks that it fences with enforcement Deny, and that no older policy fences too
	Refused   string       // why it cannot fence one of its locks (ShareLocks), or empty
	// Invalid is why the stored version is invalid. Unless Unknown is set, the other fields are the last valid
	// version's, which stays in effect (valid.go).
	Invalid error
	Unknown bool
	// unreadable: it is invalid, and its selection is not known.
	unreadable bool
	fences     *fenceSets
	// onlyFor is the recorded leader, where only the record is known of the policy. That leader is renewed, and no
	// other cluster is chosen.
	onlyFor string
}

// ParsePolicy parses a policy. One with a selector that no API server could apply is invalid: the CRD admits it.
func ParsePolicy(o *v1alpha1.LeadershipPolicy) *Policy {
	t := o.Spec.Timings
	p := &Policy{
		Object: o,
		Names:  map[string]bool{},
		fences: &fenceSets{},

		Overrides: map[string]string{},
		Election: election.Policy{
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
	if o.Spec.Failback == v1alpha1.Automatic {
		p.Election.Failback = time.Duration(cmp.Or(o.Spec.FailbackAfterSeconds, v1alpha1.DefaultFailbackAfter)) * time.Second
	}
	p.Election.ManualFailover = o.Spec.Failover == v1alpha1.Manual
	p.Spread = o.Spec.Placement == v1alpha1.PlacementSpread
	for _, prefer := range o.Spec.Overrides {
		p.Overrides[prefer.Namespace] = prefer.Cluster
	}
	p.Requires, p.Election.UnhealthyAfter = required(o.Spec.Requires)
	p.MostMoves = int(cmp.Or(o.Spec.MaxConcurrentMoves, v1alpha1.DefaultMaxConcurrentMoves))
	if d := o.Spec.InitialDelaySeconds; d != nil {
		p.Election.InitialDelay = time.Duration(*d) * time.Second
	}
	renew := p.Election.Timings.Renew
	p.Thresholds = health.Thresholds{Timeout: p.Election.Timings.Timeout, UnreachableAfter: 2 * renew, RecoverAfter: renew}
	if d := o.Spec.Health.UnreachableAfterMilliseconds; d != 0 {
		p.Thresholds.UnreachableAfter = milliseconds(d)
	}
	if d := o.Spec.Health.RecoverAfterMilliseconds; d != nil {
		p.Thresholds.RecoverAfter = milliseconds(*d)
	}
	for _, n := range o.Spec.Namespaces.Names {
		p.Names[n] = true
	}
	parsed := func(from *metav1.LabelSelector, otherwise labels.Selector, selects bool) labels.Selector {
		if from == nil {
			return otherwise
		}
		selector, err := metav1.LabelSelectorAsSelector(from)
		if err != nil {
			p.Invalid, p.unreadable = err, p.unreadable || selects
			return labels.Nothing()
		}
		return selector
	}
	p.Clusters = parsed(o.Spec.ClusterSelector, labels.Everything(), true)
	p.Namespaces = parsed(o.Spec.Namespaces.Selector, labels.Nothing(), true)
	for _, s := range fencedLabels(o.Spec.Fencing) {
		parsed(s, nil, false) // API servers select by these
	}
	p.Unknown = p.Invalid != nil
	p.setLocks(enforcedLocks(o.Spec.Fencing))
	return p
}

// setLocks sets the locks that the policy fences.
func (p *Policy) setLocks(ls []locks.Lock) {
	p.Locks, p.Election.Locks, p.Election.StopTime = ls, nil, 0
	for _, l := range ls {
		p.Election.Locks = append(p.Election.Locks, l.String())
		p.Election.StopTime = max(p.Election.StopTime, l.StopTime())
	}
	p.Election.StopTime = (p.Election.StopTime + time.Second - 1).Truncate(time.Second) // records hold whole seconds
	slices.Sort(p.Election.Locks)
}

// ShareLocks removes from policies, oldest first, the locks that they cannot fence in all of their members. An
// older policy fences them there, or has Leases of that name. Such a lock stays closed. A policy that has lost its
// namespace fences no lock.
func ShareLocks(policies []*Policy, members []fleet.Member, lost func(*Policy) bool) {
	for i, p := range policies {
		kept := slices.DeleteFunc(slices.Clone(p.Locks), func(l locks.Lock) bool {
			why := p.lockRefused(l, policies[:i], members, lost)
			p.Refused = cmp.Or(p.Refused, why)
			return why != ""
		})
		if len(kept) < len(p.Locks) {
			p.setLocks(kept)
		}
	}
}

// lockRefused returns why a policy cannot fence a lock, or "".
func (p *Policy) lockRefused(
	l locks.Lock, older []*Policy, members []fleet.Member, lost func(*Policy) bool,
) string {
	if by := WriterOf(older, l.Name); by != "" {
		return fmt.Sprintf("the lock %s has the name of the Leases that the hub writes for the policy %s: take it out "+
			"of leaderElectionLocks", l, by)
	}
	for _, o := range older {
		if o.fencesLock(l) && !lost(o) && slices.ContainsFunc(members, func(m fleet.Member) bool {
			return o.Selects(m) && p.Selects(m)
		}) {
			return fmt.Sprintf("the policy %s fences the lock %s: take it out of one of the two", o.Object.Name, l)
		}
	}
	return ""
}

// fencesLock reports whether the policy asks for a fence of the lock.
func (p *Policy) fencesLock(l locks.Lock) bool {
	return slices.ContainsFunc(locks.Of(p.Object.Spec.Fencing), func(o locks.Lock) bool {
		return o.NamespacedName == l.NamespacedName
	})
}

// required returns what must be healthy where a leader is, and after what time something has failed.
func required(r *v1alpha1.Requires) (*worker.Requires, time.Duration) {
	if r == nil {
		return nil, 0
	}
	requires := &worker.Requires{Reader: r.Reader}
	for _, of := range r.Resources {
		in := schema.GroupVersion{Group: of.Group, Version: cmp.Or(of.Version, "v1")}
		for _, name := range of.Names {
			requires.Resources = append(requires.Resources, in.WithResource(name))
		}
	}
	return requires, time.Duration(cmp.Or(r.UnhealthyAfterSeconds, v1alpha1.DefaultUnhealthyAfter)) * time.Second
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

// SlowestLock returns the lock of the policy whose holder takes longest to stop, or nil without locks.
func (p *Policy) SlowestLock() (slowest *locks.Lock) {
	for _, l := range p.Locks {
		if slowest == nil || l.StopTime() > slowest.StopTime() {
			slowest = &l
		}
	}
	return slowest
}

func milliseconds(n int32) time.Duration { return time.Duration(n) * time.Millisecond }

// Selects reports whether the policy's clusterSelector matches a Cluster.
func (p *Policy) Selects(m fleet.Member) bool {
	return p.Clusters.Matches(labels.Set(m.Labels))
}

// Matches reports whether the policy manages a namespace with these labels.
func (p *Policy) Matches(namespace string, set map[string]string) bool {
	return !v1alpha1.NeverManaged(namespace) &&
		(p.Names[namespace] || p.Namespaces.Matches(labels.Set(set)))
}

// fenceSets caches the fences of one version of a policy, by the set of namespaces that the policy lost. They take
// long to compute.
type fenceSets struct {
	mu   sync.Mutex
	sets map[string][]guard.Fence
}

// FencesBut returns the fences that the policy asks for, without the lost namespaces. The caller must not change
// them.
func (p *Policy) FencesBut(hub string, lost []string) []guard.Fence {
	if p.Object.Spec.Fencing == nil {
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
		fs = guard.Fences(hub, p.Object, lost)
		p.fences.sets[key] = fs
	}
	return fs
}

// maxFenceSets bounds the cached sets: members may have lost different namespaces.
const maxFenceSets = 64

// Includes reports whether a member takes part under the policy.
func (p *Policy) Includes(m *Member) bool {
	if p.onlyFor != "" && p.onlyFor != m.Name {
		return false
	}
	return !m.Gone && m.PriorityReason != reason.NoPriority && p.Selects(m.Member)
}

// BoundsOf returns the largest D, ε and stop time of the policies. It skips policies whose content is unknown.
func BoundsOf(policies []*Policy) (b seal.Bounds) {
	for _, p := range policies {
		if !p.Unknown {
			b = b.Max(p.Bounds())
		}
	}
	return b
}

// Bounds returns the D, ε and stop time under which Leases are sent for the policy.
func (p *Policy) Bounds() seal.Bounds {
	return seal.Bounds{Duration: p.Election.Timings.Duration, Skew: p.Election.Timings.Skew, Stop: p.Election.StopTime}
}

// FencesIn returns the fences that policies, oldest first, ask for in a member. A lock has one fence: the oldest
// policy's. It has no fence if an older policy has Leases of its name. The fences of an invalid policy that was
// never valid are not known, so the installed ones stay. lost returns the namespaces of the member that a policy
// selects and does not own. A cluster that a policy does not select any more keeps its fences while leads reports
// that it leads by a record.
func FencesIn(
	hub string, policies []*Policy, m fleet.Member, lost func(*Policy) ([]string, error), leads func(*Policy) bool,
) (fs []guard.Fence, invalid []string, err error) {
	taken := map[types.NamespacedName]bool{}
	for i, p := range policies {
		if p.Unknown {
			invalid = append(invalid, p.Object.Name)
			continue
		}
		if p.Object.Spec.Fencing == nil || !p.Selects(m) && !leads(p) {
			continue
		}
		elsewhere, err := lost(p)
		if err != nil {
			return nil, nil, err
		}
		for _, f := range p.FencesBut(hub, elsewhere) {
			lock, is := f.Lock()
			if is && (taken[lock.NamespacedName] || WriterOf(policies[:i], lock.Name) != "") {
				continue
			}
			if is {
				taken[lock.NamespacedName] = true
			}
			fs = append(fs, f)
		}
	}
	return fs, invalid, nil
}

// WriterOf returns the policy for which the hub writes Leases of this name, or "". A fence of such a lock would
// reject the hub's own writes.
func WriterOf(policies []*Policy, name string) string {
	for _, p := range policies {
		if p.Object.LeaseName() == name {
			return p.Object.Name
		}
	}
	return ""
}

// A namespace has one policy. Other policies that select it have no effect there: no Lease, no fence and no stop
// time.

// OwnedByOther reports whether a record belongs to a policy of the fleet other than p. An owner without a claim to
// the namespace is about to lose it: the next owner fences it before this owner's fences are removed.
func OwnedByOther(o *v1alpha1.NamespaceLeader, p *Policy, policies []*Policy, claims func(*Policy) bool) bool {
	owner := o.Spec.Policy
	return owner != "" && owner != p.Object.Name && o.Spec.State != v1alpha1.StateRetired &&
		slices.ContainsFunc(policies, func(other *Policy) bool {
			return other.Object.Name == owner && (other.Unknown || claims(other))
		})
}
