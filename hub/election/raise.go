package election

import (
	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// raise lets sealed Leases, read at the start of the tenure, raise a record that is older than they are. A
// live one that names its own cluster is the present term: the record follows it, and the leader stays. It is
// safe to believe, because while it is live nobody else can have been granted the namespace.
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

// knowsBetter reports whether the Lease that was found is to be believed although the record has its epoch
// already.
func knowsBetter(s State) bool {
	switch r := s.Record; {
	case r.State == Vacant:
		return true // a follower's Lease may have raised the epoch
	case s.Moved:
		return r.State != Leading // nothing was decided since it came from the other hub
	default:
		// An epoch is granted to one cluster only, so somebody has edited the record before this
		// tenure began.
		return r.Leader != s.Found.Cluster && !s.GrantedHere
	}
}
