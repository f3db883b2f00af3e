package election

import (
	"maps"
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
)

// Assign returns the content of the Lease in one member, as a function of the persisted record. duration is the
// policy's D. first: this tenure persisted the grant and has not sent its first Lease yet.
func Assign(r Record, fleet, cluster string, duration time.Duration, first bool) assign.Assignment {
	a := assign.Assignment{Role: assign.Follow, Term: lease.Term{
		Epoch: r.Epoch, AcquireTime: r.AcquireTime, Duration: min(duration, r.Duration),
	}}
	if r.State == Ending && r.Revoked != 0 {
		a.Term.Epoch = r.Revoked // followers' Leases need no new epoch: no cluster leads in it
	}
	if r.Leader != "" {
		a.Term.Holder = lease.Identity(r.Leader, fleet)
	}
	switch r.State {
	case Leading:
		if cluster == r.Leader {
			a.Role, a.First, a.OpenLocks = assign.Lead, first, lease.LockIDs(r.OpenLocks)
		}
	case Ending:
		switch cluster {
		case r.Leader:
			a.Role = assign.Hold // the record of an ending term forbids renewal by every replica
			if r.Revoked != 0 {
				a.Role, a.Revoked = assign.Revoke, a.Term
				a.Term.Holder, a.Term.Epoch = "", r.Epoch
			}
		case r.Next:
			a.MinRenewTime = r.Since
		}
	case Vacant:
		if r.Epoch == 0 || r.Reason == reason.WaitingForExpiry || r.Reason == reason.OtherHub {
			// Either the namespace never had a leader, and a Lease has no content yet. Or a Lease may still be
			// live, and raises the record once it is read.
			a.Role = assign.Hold
		}
	case Retired:
		a.Role = assign.Absent
	default:
		a.Role = assign.Hold
	}
	return a
}

// same reports whether two records are equal.
func same(a, b Record) bool {
	return a.Leader == b.Leader && a.Epoch == b.Epoch && a.Revoked == b.Revoked &&
		a.State == b.State && a.Reason == b.Reason &&
		a.Since.Equal(b.Since) && a.AcquireTime.Equal(b.AcquireTime) && a.Duration == b.Duration &&
		a.Skew == b.Skew && a.Stop == b.Stop && slices.Equal(a.OpenLocks, b.OpenLocks) &&
		a.UnfencedLeader == b.UnfencedLeader &&
		a.LeaseName == b.LeaseName && a.NotBefore.Equal(b.NotBefore) && a.Next == b.Next &&
		maps.Equal(a.Observed, b.Observed) && a.Rebalanced.Equal(b.Rebalanced) && a.Fence.equal(b.Fence)
}
