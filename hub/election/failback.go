package election

import (
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// AbleSince returns, by cluster, the boot reading since when every decision found it able to lead. before is what the
// last decision returned.
func AbleSince(now lease.Reading, before map[string]time.Duration, cs []Candidate) map[string]time.Duration {
	return since(now, before, cs, mayLead)
}

// FitSince returns, by cluster, the boot reading since when every decision found it able to lead, and all that is
// required healthy. before is what the last decision returned.
func FitSince(now lease.Reading, before map[string]time.Duration, cs []Candidate) map[string]time.Duration {
	return since(now, before, cs, func(c Candidate) bool { return mayLead(c) && c.Required == RequiredHealthy })
}

// settled returns the best of the clusters that have been able to lead for as long as the policy asks before it gives
// the lead back, or false.
func settled(now lease.Reading, p Policy, s State, ranked []Candidate) (Candidate, bool) {
	return best(ranked, func(c Candidate) bool {
		since, fit := s.FitSince[c.Name]
		return p.Failback > 0 && fit && now.Boot-since >= p.Failback && mayLead(c)
	})
}

// untilFailback returns how long it takes until another cluster than the leader may be settled, or zero.
func untilFailback(now lease.Reading, p Policy, s State, ranked []Candidate) (wait time.Duration) {
	holder, _ := named(ranked, s.Record.Leader)
	for _, c := range ranked {
		if since, fit := s.FitSince[c.Name]; fit && compareMerit(c, holder) > 0 {
			wait = Soonest(wait, max(p.Failback-(now.Boot-since), s.Record.AcquireTime.Add(p.Failback).Sub(now.Wall)))
		}
	}
	return wait
}

// RefusesOrder reports whether no candidate to which an operator has ordered a move may lead, after a decision. A
// candidate that is not ready has the time to become so. While a change is under way, nothing is refused.
func RefusesOrder(now lease.Reading, p Policy, s State, d Decision, cs []Candidate) bool {
	ranked := slices.Clone(cs)
	Rank(ranked)
	holder, _ := named(ranked, s.Record.Leader)
	_, late := best(ranked, func(c Candidate) bool { return c.Ordered && notReady(c) && timeToAnswer(now, p, s) > 0 })
	mayCome := late || holder.Ordered && mayLead(holder) || ordered(ranked, holder)
	stands := d.Waiting == reason.FailoverPending || d.Waiting == reason.Frozen || d.Waiting == reason.MostUnreachable
	return (d.Record.State != Ending || stands) && !mayCome
}

// uncounted is below every priority.
const uncounted = -1

// rebalance makes all priorities count as edited from an instant on, once.
func (r *Record) rebalance(now, at time.Time, cs []Candidate) {
	if at.After(now) || !at.After(r.Rebalanced) {
		return
	}
	r.Rebalanced, r.Observed = at, make(map[string]int32, len(cs))
	for _, c := range cs {
		r.Observed[c.Name] = uncounted
	}
}

// observedPriorities returns the priorities that decisions have counted, updated with the present ones. A cluster that
// is not ready, that the hub cannot reach or write, or in which not all that is required is healthy keeps the priority
// that was last counted, until it can lead. Its label may be an edit that has not been acted on. all counts those
// clusters too, when a leader is chosen without them.
func observedPriorities(r Record, cs []Candidate, all bool) map[string]int32 {
	counted := make(map[string]int32, len(cs))
	for _, c := range cs {
		if all || !notReady(c) && !isObservation(c.Reason) && c.Required == RequiredHealthy {
			counted[c.Name] = c.Priority
		} else if before, ok := r.Observed[c.Name]; ok {
			counted[c.Name] = before
		}
	}
	return counted
}
