package decide

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/election"
)

// A policy that became invalid changes nothing: its last valid version stays in effect. A hub that never saw a
// valid version uses the record: it renews the leader, and chooses nobody else.

// Versions holds the last valid version of each policy. It is safe for concurrent use.
type Versions struct {
	mu sync.Mutex
	of map[types.NamespacedName]policyVersions
}

// policyVersions holds what is known of one policy.
type policyVersions struct {
	latest *Policy // the version that was read last
	valid  *Policy // the last valid one; nil: none was seen
}

// parsed parses a version of a policy, once.
func (v *policyVersions) parsed(o *v1alpha1.LeadershipPolicy) *Policy {
	if v.latest == nil || v.latest.Object.UID != o.UID || v.latest.Object.Generation != o.Generation {
		v.latest = ParsePolicy(o)
	}
	return v.latest.copy()
}

// LastValid returns the stored policies of a fleet. It replaces each invalid one by its last valid version.
func (vs *Versions) LastValid(fleetName string, stored []*v1alpha1.LeadershipPolicy) []*Policy {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.of == nil {
		vs.of = map[types.NamespacedName]policyVersions{}
	}
	there := map[types.NamespacedName]bool{}
	ps := make([]*Policy, 0, len(stored))
	for _, o := range stored {
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		there[key] = true
		known := vs.of[key]
		p, last := known.parsed(o), known.valid
		switch {
		case p.Invalid == nil && (last == nil || last.Object.UID != o.UID || last.Object.Generation <= o.Generation):
			known.valid = known.latest
		case p.Invalid != nil && last != nil && last.Object.UID == o.UID:
			invalid := p.Invalid
			p = last.copy()
			p.Invalid = invalid
		}
		p.Freeze, p.Rebalance = act.Freeze(o.Annotations), act.Rebalance(o.Annotations) // no generation counts them
		p.Election.RebalanceAt = p.Rebalance.Until
		vs.of[key] = known
		ps = append(ps, p)
	}
	maps.DeleteFunc(vs.of, func(key types.NamespacedName, _ policyVersions) bool {
		return key.Namespace == fleetName && !there[key]
	})
	return ps
}

// copy returns a copy whose locks and acts can be set. Nothing else of a policy changes.
func (p *Policy) copy() *Policy {
	other := *p
	return &other
}

// leastBesideSkew is what the CRD has every valid policy leave of D beside ε: two renewals and a request. With
// less, the hub would renew without a pause.
const leastBesideSkew = 250 * time.Millisecond

// byRecord returns what a record shows of an invalid policy that owns the namespace.
func (p *Policy) byRecord(namespace string, r election.Record) *Policy {
	known := p.copy()
	known.onlyFor, known.Requires = r.Leader, nil
	known.Clusters, known.Namespaces, known.Names = labels.Everything(), labels.Nothing(), map[string]bool{namespace: true}
	skew := cmp.Or(r.Skew, time.Second) // with a smaller one, readers would reject what they accept today
	if r.Duration-skew < leastBesideSkew {
		skew = r.Duration / 2 // the record counts another hub's
	}
	known.Election = election.Policy{
		Timings: lease.Timings{
			Duration: r.Duration, Skew: skew, Renew: (r.Duration - skew) / 3, Timeout: (r.Duration - skew) / 3,
		},
		LeaseName: r.LeaseName, StopTime: r.Stop, Locks: r.OpenLocks,
	}
	known.Thresholds.Timeout = known.Election.Timings.Timeout
	known.Thresholds.UnreachableAfter, known.Thresholds.RecoverAfter = 2*known.Election.Timings.Renew,
		known.Election.Timings.Renew
	return known
}
