package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard/locks"
	"github.com/leasecast/leasecast/hub/health"
)

// policy is a LeadershipPolicy in the form that decisions need.
type policy struct {
	object     *v1alpha1.LeadershipPolicy
	clusters   labels.Selector
	names      map[string]bool
	namespaces labels.Selector
	election   election.Policy
	thresholds health.Thresholds
	invalid    error
	unreadable bool // it is invalid, and what it selects is not known
}

// parsePolicy reads a policy. One that the CRD would refuse today, but that was stored
// before, is invalid.
func parsePolicy(o *v1alpha1.LeadershipPolicy) *policy {
	t := o.Spec.Timings
	p := &policy{
		object: o,
		names:  map[string]bool{},
		election: election.Policy{
			Timings: lease.Timings{
				Duration: time.Duration(t.LeaseDurationSeconds) * time.Second,
				Renew:    milliseconds(t.RenewIntervalMilliseconds),
				Timeout:  milliseconds(t.RequestTimeoutMilliseconds),
				Skew:     milliseconds(t.MaxClockSkewMilliseconds),
			},
			LeaseName:                   o.LeaseName(),
			FailOverWhenMostUnreachable: o.Spec.Health.WhenMostUnreachable != v1alpha1.HoldWhenMostUnreachable,
			Acknowledged:                o.Spec.Handover == v1alpha1.HandoverAcknowledged && !admitsByLease(o.Spec.Fencing),
			StopTime:                    stopTime(o.Spec.Fencing),
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
	if err := locks.Check(o); err != nil {
		p.invalid = err
	}
	if err := p.election.Timings.Validate(); err != nil {
		p.invalid = err
	}
	return p
}

// selectorOf reads a selector. Of several faults it always names the same one: another one would be written into the status.
func selectorOf(s *metav1.LabelSelector) (labels.Selector, error) {
	ordered := &metav1.LabelSelector{MatchExpressions: slices.Clone(s.MatchExpressions)}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		ordered.MatchExpressions = append(ordered.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{s.MatchLabels[key]}})
	}
	return metav1.LabelSelectorAsSelector(ordered)
}

// admitsByLease reports whether API servers admit Jobs or the holders of locks by the Lease. No reader can say when one of
// them that is behind admits no more: that is certain when the term has expired.
func admitsByLease(f *v1alpha1.Fencing) bool {
	return f != nil && (f.Schedules != nil || len(f.LeaderElectionLocks) > 0) && f.Mode != v1alpha1.FencingWarn
}

// fencedLabels select what fences are about.
func fencedLabels(f *v1alpha1.Fencing) (all []*metav1.LabelSelector) {
	if f == nil {
		return nil
	}
	for _, w := range f.Writes {
		all = append(all, &metav1.LabelSelector{MatchLabels: w.ObjectLabels})
	}
	return append(all, f.Schedules)
}

// stopTime is that of the slowest lock which is fenced.
func stopTime(f *v1alpha1.Fencing) (longest time.Duration) {
	if l := slowestLock(f); l != nil {
		return l.StopTime()
	}
	return 0
}

// slowestLock is the fenced lock whose holder takes longest to stop. It is nil where none is fenced.
func slowestLock(f *v1alpha1.Fencing) (slowest *locks.Lock) {
	if f == nil || f.Mode == v1alpha1.FencingWarn {
		return nil
	}
	for _, l := range locks.Of(f) {
		if slowest == nil || l.StopTime() > slowest.StopTime() {
			slowest = &l
		}
	}
	return slowest
}

func milliseconds(n int32) time.Duration { return time.Duration(n) * time.Millisecond }

// selects reports whether the policy speaks of a Cluster at all.
func (p *policy) selects(m fleet.Member) bool {
	return p.clusters.Matches(labels.Set(m.Labels))
}

// matches reports whether the policy manages a namespace with these labels.
func (p *policy) matches(namespace string, set map[string]string) bool {
	return !v1alpha1.NeverManaged(namespace) &&
		(p.names[namespace] || p.namespaces.Matches(labels.Set(set)))
}

// listPolicies returns the policies of a fleet, oldest first: where two claim one
// namespace, the older wins.
func listPolicies(ctx context.Context, reader client.Reader, fleet string) ([]*policy, error) {
	var list v1alpha1.LeadershipPolicyList
	if err := reader.List(ctx, &list, client.InNamespace(fleet)); err != nil {
		return nil, err
	}
	ps := make([]*policy, 0, len(list.Items))
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp.IsZero() {
			ps = append(ps, parsePolicy(&list.Items[i]))
		}
	}
	slices.SortFunc(ps, func(a, b *policy) int {
		return cmp.Or(a.object.CreationTimestamp.Compare(b.object.CreationTimestamp.Time),
			cmp.Compare(a.object.Name, b.object.Name))
	})
	return ps, nil
}
