package election

import (
	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// raise lets sealed Leases, read at the start of the tenure, raise a record that is older. A live Lease that names
// its own cluster is the present term: the record follows it, and the leader stays. That is safe, because while the
// Lease is live the namespace cannot have been granted to another cluster.
func raise(now lease.Reading, p Policy, s State, cs []Candidate) (Record, bool) {
	st := s.Found
	if !st.live(now) {
		return s.Record, false
	}
	if st.Term.Epoch < s.Record.Epoch || st.Term.Epoch == s.Record.Epoch && !knowsBetter(s) {
		return s.Record, false
	}
	return Record{
		Leader:      st.Cluster,
		Epoch:       st.Term.Epoch,
		State:       Leading,
		Reason:      reason.Adopted,
		Since:       now.Wall,
		AcquireTime: st.Term.AcquireTime,
		Duration:    max(st.Term.Duration, longest(s)), // a Lease shows the duration of its last renewal only
		Skew:        max(s.Record.Skew, s.LargestSkew),
		Stop:        max(s.Record.Stop, s.LargestStop),
		LeaseName:   p.LeaseName,
		Next:        next(cs, st.Cluster),
		Observed:    observedPriorities(s.Record, cs, true),
	}, true
}

// knowsBetter reports whether the found Lease takes precedence over a record with the same epoch.
func knowsBetter(s State) bool {
	switch r := s.Record; {
	case r.State == Vacant:
		return true // a follower's Lease may have raised the epoch
	case s.Moved:
		return r.State != Leading // nothing was decided since it came from the other hub
	default:
		// An epoch is granted to one cluster only, so the record was edited before this tenure began.
		return r.Leader != s.Found.Cluster && !s.GrantedHere
	}
}
