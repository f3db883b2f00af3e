package controller

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
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
			LeaseName:                   cmp.Or(o.Spec.LeaseName, v1alpha1.DefaultLeaseName),
			FailOverWhenMostUnreachable: o.Spec.Health.WhenMostUnreachable != v1alpha1.HoldWhenMostUnreachable,
			Acknowledged:                o.Spec.Handover == v1alpha1.HandoverAcknowledged,
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
	for _, s := range []struct {
		from *metav1.LabelSelector
		to   *labels.Selector
	}{{o.Spec.ClusterSelector, &p.clusters}, {o.Spec.Namespaces.Selector, &p.namespaces}} {
		if s.from == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(s.from)
		if err != nil {
			p.invalid = err
			selector = labels.Nothing()
		}
		*s.to = selector
	}
	if err := p.election.Timings.Validate(); err != nil {
		p.invalid = err
	}
	return p
}

func milliseconds(n int32) time.Duration { return time.Duration(n) * time.Millisecond }

// selects reports whether the policy speaks of a Cluster at all.
func (p *policy) selects(m fleet.Member) bool {
	return p.clusters.Matches(labels.Set(m.Labels))
}

// matches reports whether the policy manages a namespace with these labels.
func (p *policy) matches(namespace string, set map[string]string) bool {
	return !strings.HasPrefix(namespace, "kube-") &&
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
