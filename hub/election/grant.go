package election

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// grant returns the record of a new term that starts now, led by c.
func grant(now lease.Reading, p Policy, s State, c Candidate, cs []Candidate) Record {
	open, _ := openLocks(now, p, s)
	before := s.Record
	before.noteUnfenced(cs)
	counted := before.Observed // a new term of the same leader acts on no edit, so those that wait go on waiting
	if c.Name != before.Leader {
		counted = observedPriorities(before, cs, true)
	}
	return Record{
		Leader:      c.Name,
		Epoch:       nextEpoch(now.Wall, max(s.Record.Epoch, s.Highest)),
		State:       Leading,
		Reason:      outcome(s.Record, c.Name),
		Since:       now.Wall,
		AcquireTime: now.Wall,
		Duration:    p.Timings.Duration,
		Skew:        p.Timings.Skew,
		Stop:        p.StopTime,
		OpenLocks:   open,
		LeaseName:   p.LeaseName,

		UnfencedLeader: stillUnfenced(before, c.Name, cs),
		Next:           next(cs, c.Name),
		Observed:       counted,
		Rebalanced:     s.Record.Rebalanced,
	}
}

// outcome returns the reason for the change from the last leader to this one.
func outcome(r Record, to string) reason.Reason {
	switch {
	case r.Leader == "":
		return reason.Elected
	case r.Leader == to:
		return reason.NewTerm
	case isObservation(r.Reason), r.Reason == reason.NeverReached, r.Reason == reason.LeaseLost:
		return reason.FailedOver
	default:
		return reason.HandedOver
	}
}

// next returns the name of the cluster that would lead after leader.
func next(ranked []Candidate, leader string) string {
	c, _ := best(ranked, func(c Candidate) bool { return mayLead(c) && c.Name != leader })
	return c.Name
}

// nextEpoch returns the epoch of a term that starts at now. highest is the highest epoch known from records and
// sealed Leases.
func nextEpoch(now time.Time, highest int64) int64 {
	return max(highest+1, lease.EpochFloor(now))
}
