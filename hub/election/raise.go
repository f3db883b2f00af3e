package election

import (
	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// raise lets sealed Leases, read at the start of the tenure, raise a record that is older. A live Lease that names
// its own cluster is the present term: the record follows it, and the leader stays. That is safe, because while the
// Lease is live the namespace cannot have been granted to another cluster. A newer term that has ended, as while the
// management cluster was restored, was the last one: its cluster is the leader that is being replaced.
func raise(now lease.Reading, p Policy, s State, cs []Candidate) (Record, bool) {
	st, r := s.Found, s.Record
	live := st.live(now)
	if !live && (st == nil || st.Term.Epoch != s.Highest || r.Leader == "" || s.Moved || !s.Sent.Final) {
		return r, false
	}
	// In one epoch, the record takes precedence. But a follower's Lease may have raised it while nobody led, and
	// another hub may have decided after it wrote the record.
	knowsBetter := r.State == Vacant || s.Moved && r.State != Leading
	if st.Term.Epoch < r.Epoch || st.Term.Epoch == r.Epoch && (!live || !knowsBetter) {
		return r, false
	}
	raised := Record{
		Leader:      st.Cluster,
		Epoch:       st.Term.Epoch,
		State:       Leading,
		Reason:      reason.Adopted,
		Since:       now.Wall,
		AcquireTime: st.Term.AcquireTime,
		Duration:    max(st.Term.Duration, longest(s)), // a Lease shows the duration of its last renewal only
		Skew:        max(r.Skew, s.LargestSkew),
		Stop:        max(r.Stop, s.LargestStop),
		LeaseName:   p.LeaseName,
		Next:        next(cs, st.Cluster),
		Observed:    observedPriorities(r, cs, true),
		Rebalanced:  r.Rebalanced,
	}
	if !live {
		raised.State, raised.Reason = Ending, reason.LeaseLost
		s.Record = raised
		raised.Next, raised.NotBefore = successor(now, p, s, cs), promiseExpiry(s, p.bounds()).wall
	}
	return raised, true
}
