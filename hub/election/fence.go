package election

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// noteFence accepts the declaration that the leader's cluster is off, voids it when the cluster answers, and forgets it
// when it is taken back. All renewals have stopped. No newer term than the recorded one may be at work. It returns
// whether it has changed the record.
func (r *Record) noteFence(now lease.Reading, p Policy, s State, holder Candidate) (changed bool) {
	before := r.Fence
	switch {
	case holder.Fenced != r.Fence.UID && r.Fence.UID != "":
		r.Fence = Acceptance{}
	case holder.Fenced == "" || s.stale() || s.OtherHub:
	case r.Fence.UID == "" && timeToProbe(now, p, s, holder) == 0:
		r.Fence = Acceptance{UID: holder.Fenced, At: now.Wall}
	case r.Fence.UID != "" && holder.Answered.Wall.After(r.Fence.At):
		r.Fence.Voided = true
	}
	return !r.Fence.equal(before)
}

// timeToProbe returns how long the leader's cluster still has to answer: r + τ from its latest answer, and from the
// start of the tenure.
func timeToProbe(now lease.Reading, p Policy, s State, holder Candidate) time.Duration {
	return max(0, max(s.Tenure.Started.Boot, holder.Answered.Boot)+p.Timings.Renew+p.Timings.Timeout-now.Boot)
}

// isOff reports whether the record shows that the leader's cluster is off, so that its term is over.
func (r Record) isOff(now lease.Reading, p Policy, s State, holder Candidate) bool {
	return timeToProbe(now, p, s, holder) == 0 && r.Fence.UID != "" && r.Fence.UID == holder.Fenced && !r.Fence.Voided &&
		!s.stale() && !s.OtherHub
}

func (a Acceptance) equal(b Acceptance) bool {
	return a.UID == b.UID && a.At.Equal(b.At) && a.Voided == b.Voided
}
