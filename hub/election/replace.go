package election

import (
	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// whyReplace returns why the recorded term must end, or "" if it goes on. The candidates are ranked.
func whyReplace(now lease.Reading, p Policy, s State, ranked []Candidate) reason.Reason {
	if s.stale() {
		return reason.LeaseLost // a newer term was seen, and it is not live any more
	}
	if why := whyDepose(now, p, s, ranked); why != "" {
		return why
	}
	switch holder, _ := named(ranked, s.Record.Leader); {
	case holder.Fitness != RetainOnly && holder.Fitness != Fit:
		return ""
	case s.LeaseLost:
		return reason.LeaseLost
	case holder.Fitness == Fit && s.Record.LeaseName != p.LeaseName:
		// Another policy owns the namespace now. Nothing may be promised in its Lease while the old one is live.
		return reason.LeaseRenamed
	default:
		return ""
	}
}

// whyDepose returns why another cluster must lead, or "". It is the part of whyReplace that depends on the
// clusters, not on the term.
func whyDepose(now lease.Reading, p Policy, s State, ranked []Candidate) reason.Reason {
	holder, known := named(ranked, s.Record.Leader)
	if holder.Fenced != "" {
		return reason.Fenced
	}
	if s.Frozen {
		return ""
	}
	if !known {
		// The Cluster is gone, or takes no part any more. Its term ends in order.
		return reason.Gone
	}
	switch holder.Fitness {
	case Unknown:
		// Unknown is not dead. But it does not lead any more, in whatever state it is, after two things: all that
		// it can have been promised has passed, and every cluster had the time to answer. An order does not wait for that,
		// unless the leader has begun to answer: then its fences will be known in a moment.
		if ordered(ranked, holder) && !holder.Answering {
			return reason.Ordered
		}
		if timeToAnswer(now, p, s) > 0 || !promiseExpiry(s, p.bounds()).passed(now) {
			return ""
		}
		return unlessAlone(reason.NeverReached, p, s, ranked)
	case Unfit:
		if notReady(holder) && timeToAnswer(now, p, s) > 0 {
			return ""
		}
		if isObservation(holder.Reason) || holder.Reason == reason.ClockSkewed {
			return unlessAlone(holder.Reason, p, s, ranked)
		}
		return holder.Reason
	case RetainOnly, Fit:
	}
	switch {
	case holder.Unfenced != FenceInForce:
		return "" // without the fence, programs in the leader's cluster would go on
	case hasFailed(now, p, s, holder, ranked):
		return reason.RequiredUnhealthy
	case s.Paced:
		return ""
	default:
		return whyMove(now, p, s, holder, ranked)
	}
}

// whyMove returns why a leader that may go on is moved, or "". What comes first is stronger.
func whyMove(now lease.Reading, p Policy, s State, holder Candidate, ranked []Candidate) reason.Reason {
	_, found := best(ranked, func(c Candidate) bool { return mayFollow(c, holder) })
	better, back := settled(now, p, s, ranked)
	switch {
	case holder.Drained && found:
		return reason.Drained
	case ordered(ranked, holder):
		return reason.Ordered
	case overtaken(s.Record, holder, ranked):
		return reason.PriorityChanged
	case back && compareMerit(better, holder) > 0 && now.Wall.Sub(s.Record.AcquireTime) >= p.Failback:
		return reason.Failback
	default:
		return ""
	}
}

// Planned reports whether a term ends by a planned change for a reason: paced, and without a warning.
func Planned(why reason.Reason) bool {
	switch why {
	case reason.Drained, reason.Ordered, reason.PriorityChanged, reason.Failback:
		return true
	default:
		return false
	}
}

// ordered reports whether an operator has ordered a move from the leader to another cluster, which may lead.
func ordered(ranked []Candidate, holder Candidate) bool {
	c, _ := best(ranked, func(c Candidate) bool { return mayFollow(c, holder) })
	return c.Ordered // it ranks first, unless something required has failed there
}

// isObservation reports whether the hub observed a reason, as opposed to an operator's request. Only an observation
// can be the observer's fault.
func isObservation(r reason.Reason) bool {
	return r == reason.Unreachable || r == reason.Recovering || r == reason.Forbidden
}

// unlessAlone keeps a leader that the hub cannot reach, or whose clock it finds to be off, when deposing it would not
// help. That is so without a successor, and when most clusters were lost at once: then the hub is more likely at fault.
// It also keeps the leader where operators fail over by hand. The Lease of a leader that cannot be reached is not
// renewed, and its term may end by itself.
func unlessAlone(why reason.Reason, p Policy, s State, ranked []Candidate) reason.Reason {
	holder, _ := named(ranked, s.Record.Leader)
	if ordered(ranked, holder) {
		return reason.Ordered
	}
	if s.MostUnreachable && !p.FailOverWhenMostUnreachable {
		return ""
	}
	if _, ok := best(ranked, mayLead); !ok {
		return ""
	}
	switch {
	case !p.ManualFailover:
		return why
	case holder.Drained:
		return reason.Drained // it was drained before it was switched off
	default:
		return ""
	}
}

// overtaken reports whether an operator's edit put an eligible cluster above the leader. Since the last decision
// that counted it, the leader's priority was lowered or the other's raised. A recovery edits nothing, so it moves
// nothing. Nor does a new cluster of the leader's priority, where namespaces are spread.
func overtaken(r Record, holder Candidate, ranked []Candidate) bool {
	counted, ok := r.Observed[holder.Name]
	lowered := ok && holder.Priority < counted
	_, found := best(ranked, func(c Candidate) bool {
		if !mayFollow(c, holder) || compareMerit(c, holder) <= 0 {
			return false
		}
		before, ok := r.Observed[c.Name]
		return lowered || !ok && c.Priority > holder.Priority || ok && c.Priority > before
	})
	return found
}
