package election

import (
	"maps"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// Assign says what the copy in one member has to be, as a function of the persisted
// record. duration is the policy's D; first says that this tenure persisted
// the grant and has not sent its first copy yet.
func Assign(r Record, fleet, cluster string, duration time.Duration, first bool) lease.Assignment {
	a := lease.Assignment{Role: lease.Follow, Term: lease.Term{
		Epoch: r.Epoch, AcquireTime: r.AcquireTime, Duration: min(duration, r.Duration),
	}}
	if r.State == Draining && r.Revoked != 0 {
		a.Term.Epoch = r.Revoked // followers have nothing new to be told of: nobody leads
	}
	// A record that was edited by hand may name a leader where nobody leads. Its own copy
	// must not name it then: followers' copies carry stamps that are promised to nobody.
	if r.Leader != "" && r.State != Vacant {
		a.Term.Holder = lease.Identity(r.Leader, fleet)
	}
	switch r.State {
	case Leading:
		if cluster == r.Leader {
			a.Role, a.First = lease.Lead, first
		}
	case Draining:
		switch cluster {
		case r.Leader:
			a.Role = lease.Hold // a draining record forbids renewal by every replica
			if r.Revoked != 0 {
				a.Role, a.Revoked = lease.Revoke, a.Term
				a.Term.Holder, a.Term.Epoch = "", r.Epoch
			}
		case r.Next:
			a.MinRenewTime = r.Since
		}
	case Vacant:
		if r.Epoch == 0 || r.Reason == reason.WaitingForExpiry {
			// It never had a leader, so that there is nothing to say yet; or one whose copy may
			// still stand, and raise the record, once it is read.
			a.Role = lease.Hold
		}
	case Retired:
		a.Role = lease.Absent
	default:
		a.Role = lease.Hold
	}
	return a
}

// same reports whether two records say the same.
func same(a, b Record) bool {
	return a.Leader == b.Leader && a.Epoch == b.Epoch && a.Revoked == b.Revoked && a.State == b.State && a.Reason == b.Reason &&
		a.Since.Equal(b.Since) && a.AcquireTime.Equal(b.AcquireTime) && a.Duration == b.Duration &&
		a.LeaseName == b.LeaseName && a.NotBefore.Equal(b.NotBefore) && a.Next == b.Next &&
		maps.Equal(a.Observed, b.Observed)
}
