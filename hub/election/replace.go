package election

import (
	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// whyReplace says why the recorded term must end, or "" if it goes on. The candidates
// are ranked.
func whyReplace(now lease.Reading, p Policy, s State, ranked []Candidate) reason.Reason {
	if s.stale() {
		return reason.LeaseLost // a newer term was seen, and it does not stand any more
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
		// Another policy owns the namespace now. Nothing may be promised in its Lease while
		// something stands in the old one.
		return reason.LeaseRenamed
	default:
		return ""
	}
}

// whyDepose says why somebody else must lead, or "" if nobody must: the part of
// whyReplace that lies with the clusters, not with the term.
func whyDepose(now lease.Reading, p Policy, s State, ranked []Candidate) reason.Reason {
	holder, known := named(ranked, s.Record.Leader)
	if !known {
		// The Cluster is gone, or takes no part any more. Its term ends in order.
		return reason.Gone
	}
	switch holder.Fitness {
	case Unknown:
		// Unknown is not dead. But once all that it can have been promised has passed, and every
		// cluster had the time to answer, it leads no more, whatever it is.
		if timeToAnswer(now, p, s) > 0 || !promiseExpiry(s, p.Timings.Duration, p.Timings.Skew).passed(now) {
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
	if overtaken(s.Record, holder, ranked) {
		return reason.PriorityChanged
	}
	return ""
}

// isObservation tells what the hub observes of a cluster from what an operator asks of
// it. Only an observation can be the observer's fault.
func isObservation(r reason.Reason) bool {
	return r == reason.Unreachable || r == reason.Recovering || r == reason.Forbidden
}

// unlessAlone holds a leader that the hub cannot reach, or whose clock it finds to be off, when
// deposing it helps nobody: there is no successor, or most clusters were lost at once, so that
// the hub is the likelier culprit. The copy of one that cannot be reached is not renewed; its
// term may lapse by itself.
func unlessAlone(why reason.Reason, p Policy, s State, ranked []Candidate) reason.Reason {
	if s.MostUnreachable && !p.FailOverWhenMostUnreachable {
		return ""
	}
	if _, ok := best(ranked, mayLead); !ok {
		return ""
	}
	return why
}

// overtaken reports whether an operator's edit put an eligible cluster above the
// leader: the leader's priority was lowered or the other's raised, compared with
// what decisions have heeded so far. A recovery edits nothing, so it moves nothing.
func overtaken(r Record, holder Candidate, ranked []Candidate) bool {
	heeded, ok := r.Observed[holder.Name]
	lowered := ok && holder.Priority < heeded
	_, found := best(ranked, func(c Candidate) bool {
		if !mayLead(c) || c.Priority <= holder.Priority {
			return false
		}
		before, ok := r.Observed[c.Name]
		return lowered || !ok || c.Priority > before
	})
	return found
}

// observedPriorities takes the present priorities into account. A cluster that is still settling is
// left as it was until it can be judged: its label is an edit that has not been acted
// on. all observes even those, when a leader is chosen in their absence.
func observedPriorities(r Record, cs []Candidate, all bool) map[string]int32 {
	heeded := make(map[string]int32, len(cs))
	for _, c := range cs {
		if all || !notReady(c) {
			heeded[c.Name] = c.Priority
		} else if before, ok := r.Observed[c.Name]; ok {
			heeded[c.Name] = before
		}
	}
	return heeded
}
