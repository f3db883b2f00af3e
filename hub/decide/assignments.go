package decide

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/publish"
)

// Assignment is what one Lease in a member has to be.
type Assignment struct {
	Member *Member
	Key    types.NamespacedName
	assign.Assignment
}

// Assignments returns what the Leases in all members have to be under the persisted record of a plan. The leader's
// cluster comes first; the others are not urgent. first: this tenure persisted the grant and has not sent its first
// Lease yet.
func (v *Snapshot) Assignments(p Plan, first bool) (as []Assignment) {
	name, duration := v.LeaseKey(p.Record), time.Duration(0)
	if v.Policy != nil {
		duration = v.Policy.Election.Timings.Duration
	}
	as = make([]Assignment, 0, len(v.Members))
	for i := range v.Members {
		m := &v.Members[i]
		if m.Publisher == nil || !v.Policy.isFor(m.Name) {
			continue
		}
		before := len(as)
		for _, other := range m.Leases {
			if other.Key != name && !v.Moved {
				as = append(as, Assignment{m, other.Key, assign.Assignment{Role: assign.Absent}})
			}
		}
		if name.Name != "" {
			as = append(as, Assignment{m, name, v.assignment(p, m, duration, first)})
		}
		if m.Name == p.Record.Leader {
			as = slices.Concat(as[before:], as[:before])
		}
	}
	return as
}

// assignment returns what the namespace's Lease in a member has to be.
func (v *Snapshot) assignment(p Plan, m *Member, duration time.Duration, first bool) assign.Assignment {
	a := assign.Assignment{Role: assign.Absent}
	if !p.Gone && (m.TakesPart || m.Name == p.Record.Leader) {
		a = election.Assign(p.Record, v.Key.Namespace, m.Name, duration, first)
	}
	if v.Moved && p.Record.State == election.Leading && m.Name != p.Record.Leader && !v.LeasesAreOurs(p.Record) {
		a.Role = assign.Hold // of two hubs of a move, the one that gets the leader's Lease takes the others
	}
	terminates := m.Namespace == nil || m.Namespace.Status.Phase == corev1.NamespaceTerminating
	if m.IsRead && terminates && a.Role != assign.Absent {
		a.Role = assign.Hold // nothing can be written there, and its Lease is deleted with the namespace
	}
	return a
}

// isFor reports whether the hub writes Leases in a member under the policy, which may be nil. A policy of which only
// the record is known is for one member.
func (p *Policy) isFor(member string) bool {
	return p == nil || p.onlyFor == "" || p.onlyFor == member
}

// LeaseTimings returns the timings of Leases under a record. p may be nil.
func (p *Policy) LeaseTimings(r election.Record) publish.Timings {
	if p == nil {
		return publish.Timings{Renew: time.Second, Timeout: time.Second}
	}
	t := p.Election.Timings
	return publish.Timings{
		Renew: t.Renew, Timeout: t.Timeout, Skew: t.Skew, Stop: p.Election.StopTime,
		LongestPromise: max(t.Duration, r.Duration) + t.Skew, Patience: p.Thresholds.UnreachableAfter,
	}
}
