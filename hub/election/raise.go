package election

import (
	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// raise lets sealed copies, read at the start of the tenure, raise a record that is
// older than they are. A live one that names its own cluster is the standing term:
// the record follows it, and no leader changes. It is safe to believe, because while
// it is live nobody else can have been granted the namespace.
func raise(now lease.Reading, p Policy, s State, cs []Candidate) (Record, bool) {
	st := s.Standing
	if st == nil || !st.Term.Live(now.Wall) {
		return s.Record, false
	}
	// Where nobody leads, the epoch may have been raised by the copy of a follower already.
	vacant := s.Record.Phase == Vacant && st.Term.Epoch == s.Record.Epoch
	if st.Term.Epoch <= s.Record.Epoch && !vacant {
		return s.Record, false
	}
	return Record{
		Leader:    st.Cluster,
		Epoch:     st.Term.Epoch,
		Phase:     Leading,
		Reason:    reason.Adopted,
		Since:     now.Wall,
		Acquired:  st.Term.Acquired,
		Duration:  max(st.Term.Duration, longest(s)), // the copy tells of its last stamp only
		LeaseName: p.LeaseName,
		Next:      next(cs, st.Cluster),
		Heeded:    heed(s.Record, cs, true),
	}, true
}
