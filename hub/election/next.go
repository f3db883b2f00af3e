package election

import (
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// otherHubAgain is when to decide again where another hub leads: no event comes when its term ends.
const otherHubAgain = 2 * time.Second

// pacedAgain is when to decide again where a planned change waits for others.
const pacedAgain = 500 * time.Millisecond

// fencedAgain is when to decide again after a declaration was accepted.
const fencedAgain = 100 * time.Millisecond

// Next decides on one namespace now. A nil policy means that no policy selects the namespace any more. It changes
// none of its arguments.
func Next(now lease.Reading, p *Policy, s State, candidates []Candidate) Decision {
	cs := slices.Clone(candidates)
	Rank(cs)
	if s.Moved || p != nil && len(cs) == 0 {
		return decide(now, p, s, cs)
	}
	open, rebalanced := s.Record.OpenLocks, s.Record.Rebalanced
	s.Record.OpenLocks = stillFenced(p, open)
	if p != nil && !s.OtherHub {
		s.Record.rebalance(now.Wall, p.RebalanceAt, cs)
	}
	d := decide(now, p, s, cs)
	switch {
	case d.StopRenewing, d.Gone:
		d.Record.OpenLocks = open
	case !slices.Equal(d.Record.OpenLocks, open), !d.Record.Rebalanced.Equal(rebalanced):
		d.Persist = true
	}
	if p != nil {
		rest := timeToAnswer(now, *p, s)
		if d.Unanswered = rest > 0; s.LeaderUnread && !d.StopRenewing && !d.Persist {
			d.After = Soonest(d.After, rest) // resource sets wait for it
		}
	}
	return d
}

func decide(now lease.Reading, p *Policy, s State, cs []Candidate) Decision {
	if s.Moved && p != nil && len(cs) > 0 {
		return moved(now, *p, s, cs)
	}
	if s.OtherHub {
		return otherHub(now, p, s)
	}
	if p == nil {
		return retire(now, s)
	}
	if len(cs) == 0 {
		// An empty list decides nothing: more likely it was not read than that all clusters are gone.
		return Decision{Record: s.Record, Waiting: reason.NoCandidate}
	}
	if r, ok := raise(now, *p, s, cs); ok {
		return Decision{Record: r, Persist: true}
	}
	switch s.Record.State {
	case Leading:
		return lead(now, *p, s, cs)
	case Ending, Retired:
		return awaitEnd(now, *p, s, cs)
	default:
		return elect(now, *p, s, cs)
	}
}

// lead keeps the leader, or begins to replace it.
func lead(now lease.Reading, p Policy, s State, cs []Candidate) Decision {
	why := whyReplace(now, p, s, cs)
	if why == "" {
		return keep(now, p, s, cs)
	}
	if !s.Sent.Final {
		return Decision{Record: s.Record, StopRenewing: true, Planned: Planned(why)}
	}
	b := promiseExpiry(s, p.bounds())
	r := s.Record
	r.State, r.Reason, r.Since, r.NotBefore = Ending, why, now.Wall, b.wall
	r.noteUnfenced(cs)
	s.Record = r
	r.Next = successor(now, p, s, cs)
	return Decision{Record: r, Persist: true, Planned: Planned(why), After: b.wait(now)}
}

// keep updates the record of a leader that stays.
func keep(now lease.Reading, p Policy, s State, cs []Candidate) Decision {
	r := s.Record
	holder, ok := named(cs, r.Leader)
	// A planned change that waits, for a fence, others or the end of a freeze, has not counted the priorities yet.
	if holder.Unfenced == FenceInForce && !s.Paced && !s.Frozen || !overtaken(r, holder, cs) {
		r.Observed = observedPriorities(r, cs, false)
	}
	r.Next = next(cs, r.Leader)
	r.raise(p) // recorded before any Lease is sent under it
	wait := time.Duration(0)
	if p.Timings.Duration < r.Duration || p.Timings.Skew < r.Skew || p.StopTime < r.Stop {
		wait = outlasting(now, p, s)
		switch {
		case wait > 0:
		case !s.Sent.Final:
			return Decision{Record: s.Record, StopRenewing: true}
		default:
			r.Duration, r.Skew, r.Stop = p.Timings.Duration, p.Timings.Skew, p.StopTime
		}
	}
	if s.Paced {
		wait = Soonest(wait, pacedAgain)
	}
	if ok && holder.Fitness == Unknown {
		answer := timeToAnswer(now, p, s)
		if wait = Soonest(wait, max(answer, promiseExpiry(s, p.bounds()).wait(now))); p.ManualFailover {
			wait = Soonest(wait, answer)
		}
	}
	opens := time.Duration(0)
	r.OpenLocks, opens = openLocks(now, p, s)
	r.UnfencedLeader = stillUnfenced(r, r.Leader, cs)
	d := Decision{Record: r, Persist: !same(r, s.Record)}
	d.After = Soonest(wait, opens, untilFailback(now, p, s, cs), p.RebalanceAt.Sub(now.Wall))
	if p.ManualFailover && failoverPending(now, p, s, cs, holder) {
		d.Waiting = reason.FailoverPending
	}
	return d
}

// failoverPending reports whether the hub would replace the leader, if operators did not fail over. A leader that was
// not reached in the time to answer counts before its promises have passed, which may take a day.
func failoverPending(now lease.Reading, p Policy, s State, cs []Candidate, holder Candidate) bool {
	silent := holder.Fitness == Unknown && timeToAnswer(now, p, s) == 0 && !s.Frozen
	p.ManualFailover = false
	return whyDepose(now, p, s, cs) != "" || silent && unlessAlone(reason.NeverReached, p, s, cs) != ""
}

// raise raises the record's bounds to the policy's, because Leases are sent under it.
func (r *Record) raise(p Policy) {
	r.Duration = max(r.Duration, p.Timings.Duration)
	r.Skew, r.Stop = max(r.Skew, p.Timings.Skew), max(r.Stop, p.StopTime)
}

// outlasting returns how long to wait until no promise under the record's D, ε and stop time outlasts a promise
// made now under the policy's. Only then may the record have the policy's. A tenure that takes over counts with
// them, from the last time at which this one can have written.
func outlasting(now lease.Reading, p Policy, s State) time.Duration {
	r, longest := s.Record, p.Timings.Duration+p.Timings.Skew+p.StopTime
	rest := max(s.Sent.Skew, p.Timings.Skew) + s.Sent.Stop - longest
	own := max(0, s.Sent.Until.Sub(now.Wall)+rest, s.Sent.BootUntil-now.Boot+rest)
	own = max(own, s.Sent.EarlierEnd.Sub(now.Wall.Add(longest)), s.Sent.BootEarlierEnd-now.Boot-longest)
	return max(min(own, r.Duration+r.Skew+r.Stop), inheritedExpiry(s, p.bounds()).wait(now))
}

// Soonest returns the shortest of some waits. A wait that is not positive means never.
func Soonest(waits ...time.Duration) (first time.Duration) {
	for _, wait := range waits {
		if wait > 0 && (first == 0 || wait < first) {
			first = wait
		}
	}
	return first
}

// awaitEnd waits for the end of the term, and then grants the next one. A term is over when everything promised has
// passed, or when the record says that the leader's cluster is off.
func awaitEnd(now lease.Reading, p Policy, s State, cs []Candidate) Decision {
	if !s.Sent.Final {
		return Decision{Record: s.Record, StopRenewing: true}
	}
	b := promiseExpiry(s, p.bounds())
	r := s.Record
	if holder, _ := named(cs, r.Leader); !b.passed(now) {
		if r.noteFence(now, p, s, holder) {
			return Decision{Record: r, Persist: true, After: fencedAgain} // before a term is granted because of it
		}
		if !r.isOff(now, p, s, holder) {
			return expire(now, p, s, cs, b)
		}
	}
	c, ok := successorOf(now, p, s, cs)
	if why := reserved(now, p, s, cs); !ok && why != "" {
		return Decision{Record: r, Waiting: why}
	}
	if mustWait(p, s, cs, c) {
		return Decision{Record: r, Waiting: reason.MostUnreachable}
	}
	if late, wait := waitsFor(now, p, s, c, cs); wait > 0 {
		return Decision{Record: r, Waiting: reason.WaitingForClusters, Awaited: late, After: wait}
	}
	switch {
	case !ok && (comesBack(s, cs) || !b.passed(now)):
		return Decision{Record: r, Waiting: reason.NoCandidate, After: b.wait(now)}
	case !ok:
		return Decision{Record: vacate(now, r, cs), Persist: true, Waiting: reason.NoCandidate}
	case !c.Prepared && c.Name != r.Leader && !s.stale():
		r.State, r.Next = Ending, c.Name
		// A revoked term is over now. What is written from here on has the revocation's epoch. The successor's
		// cluster may have a Lease with that epoch already, if the record is older.
		r.Revoked = 0
		if r.Since.After(now.Wall) {
			r.Since = now.Wall // from a clock that was ahead: no Lease would have so late a renewTime
		}
		return Decision{Record: r, Persist: !same(r, s.Record), Waiting: reason.WaitingForClusters}
	default:
		return Decision{Record: grant(now, p, s, c, cs), Persist: true}
	}
}

// expire waits for the expiry. The leader resumes if the cause is gone, and the term ends early if all readers have
// released it.
func expire(now lease.Reading, p Policy, s State, cs []Candidate, b expiry) Decision {
	r := s.Record
	if resumes(now, p, s, cs) {
		r.State, r.Reason, r.Since, r.NotBefore = Leading, reason.Resumed, now.Wall, time.Time{}
		return Decision{Record: r, Persist: true}
	}
	if c, ok := ready(now, p, s, cs); ok && acknowledged(now, p, s) {
		return Decision{Record: grant(now, p, s, c, cs), Persist: true}
	}
	r.State, r.NotBefore = Ending, b.wall
	r.Next = successor(now, p, s, cs)
	r.noteUnfenced(cs)
	if revokes(now, p, s, cs) {
		r.Revoked, r.Epoch = r.Epoch, r.Epoch+1
	}
	d := Decision{Record: r, Persist: !same(r, s.Record), Waiting: waiting(r), After: b.wait(now)}
	if holder, _ := named(cs, r.Leader); holder.Fenced != "" {
		d.After = Soonest(d.After, timeToProbe(now, p, s, holder))
	}
	return d
}

// successorOf returns the candidate that gets the next term if it is granted now. That is the best candidate, unless
// the cause is gone for which the leader's term ends. Recovery moves nothing, so the leader then leads again, in a new
// term. Where people have frozen who leads, or fail over by hand, nobody else gets one. Lead is given back only to a
// cluster that was able to lead for long enough. An order or an edit leads to no cluster in which what is required is
// in a worse state. A leader in which something required has failed is followed by a cluster in which all of it is
// healthy, if there still is one.
func successorOf(now lease.Reading, p Policy, s State, ranked []Candidate) (Candidate, bool) {
	holder, ok := named(ranked, s.Record.Leader)
	if ok && mayGoOn(holder) && whyDepose(now, p, s, ranked) == "" {
		return holder, true
	}
	if reserved(now, p, s, ranked) != "" {
		return Candidate{}, false
	}
	if s.Record.State == Ending {
		c, ok := Candidate{}, false
		switch s.Record.Reason {
		case reason.Drained, reason.Ordered, reason.PriorityChanged:
			c, ok = best(ranked, func(c Candidate) bool { return mayFollow(c, holder) })
		case reason.Failback:
			c, ok = settled(now, p, s, ranked)
		case reason.RequiredUnhealthy:
			c, ok = healthy(now, p, s, ranked)
		}
		if ok {
			return c, true
		}
	}
	return best(ranked, mayLead)
}

// reserved returns why a namespace is kept for its leader, or "". People have frozen it. Or they fail over by hand,
// have ordered no change, and nothing but the hub's own view speaks against the leader.
func reserved(now lease.Reading, p Policy, s State, ranked []Candidate) reason.Reason {
	holder, _ := named(ranked, s.Record.Leader)
	switch {
	case s.Record.Leader == "", holder.Fenced != "":
		return ""
	case s.Frozen:
		return reason.Frozen
	case p.ManualFailover && !Planned(s.Record.Reason) && !ordered(ranked, holder) && whyDepose(now, p, s, ranked) == "":
		return reason.FailoverPending
	default:
		return ""
	}
}

// successor returns the name of the candidate that gets the next term if it is granted now.
func successor(now lease.Reading, p Policy, s State, ranked []Candidate) string {
	c, _ := successorOf(now, p, s, ranked)
	return c.Name
}

// resumes reports whether the leader of an ending term may go on in it. The cause of the end must be gone, the
// leader must answer, and its Lease can still be live. A revoked term never goes on.
func resumes(now lease.Reading, p Policy, s State, cs []Candidate) bool {
	holder, ok := named(cs, s.Record.Leader)
	return ok && s.Record.State == Ending && s.Record.Revoked == 0 && holder.Answering &&
		now.Wall.Before(s.Sent.Until) &&
		(holder.Fitness == Fit || holder.Fitness == RetainOnly) &&
		whyReplace(now, p, s, cs) == ""
}

// vacate returns the record of a namespace without a leader. Its epoch stays: no cluster can act in it any more.
func vacate(now lease.Reading, r Record, cs []Candidate) Record {
	r.noteUnfenced(cs)
	return Record{
		Epoch: r.Epoch, State: Vacant, Reason: reason.NoCandidate, Since: now.Wall,
		Duration: r.Duration, Skew: r.Skew, Stop: r.Stop, OpenLocks: r.OpenLocks, UnfencedLeader: r.UnfencedLeader,
		LeaseName: r.LeaseName, Observed: observedPriorities(r, cs, false), Rebalanced: r.Rebalanced,
	}
}

// elect grants a namespace without a leader.
func elect(now lease.Reading, p Policy, s State, cs []Candidate) Decision {
	if !s.Sent.Final {
		return Decision{Record: s.Record, StopRenewing: true} // a record can get lost in the middle of a term
	}
	r := s.Record
	r.Next = next(cs, "")
	// What Leases show is recorded before any Lease is removed, as Leases of another name are. The next tenure may
	// find no other trace of it.
	r.Epoch = max(r.Epoch, s.Highest)
	if r.Lost() {
		r.State, r.Since, r.LeaseName = Vacant, now.Wall, p.LeaseName
		r.Duration = max(s.LargestDuration, p.Timings.Duration) // still bounds what was lost
		r.Skew, r.Stop, r.OpenLocks = max(r.Skew, s.LargestSkew), max(r.Stop, s.LargestStop), nil
	}
	b := promiseExpiry(s, p.bounds())
	if b.passed(now) {
		r.LeaseName = p.LeaseName // nothing is live under the old name, and its Lease may be in the way
	}
	c, ok := best(cs, mayLead)
	wait, why, late := time.Duration(0), reason.Reason(""), ""
	switch {
	case !b.passed(now):
		wait, why = b.wait(now), reason.WaitingForExpiry
	case !ok:
		why = reason.NoCandidate
	default:
		late, wait = waitsFor(now, p, s, c, cs)
		if better, delay := firstWaitsFor(now, p, r, c, cs); delay > wait {
			late, wait = better, delay
		}
		if wait > 0 {
			why = reason.WaitingForClusters
		}
	}
	if why == "" {
		return Decision{Record: grant(now, p, s, c, cs), Persist: true}
	}
	if why == reason.WaitingForExpiry {
		r.NotBefore = b.wall
	}
	if why != reason.WaitingForExpiry || r.Reason != reason.OtherHub {
		r.Reason = why
	}
	return Decision{Record: r, Persist: !same(r, s.Record), Waiting: why, Awaited: late, After: wait}
}

// waitsFor returns which cluster to wait for, and how long, because it would get the term rather than c but is not
// ready. That is a better cluster, or the leader itself if nothing speaks against it. So a hub that has just
// started does not choose whichever cluster answers first.
func waitsFor(now lease.Reading, p Policy, s State, c Candidate, ranked []Candidate) (string, time.Duration) {
	if c.Name != "" && c.Name == s.Record.Leader {
		return "", 0
	}
	better, ok := best(ranked, func(o Candidate) bool {
		return notReady(o) && !o.Drained &&
			(c.Name == "" || compare(o, c) < 0 || o.Name == s.Record.Leader && whyDepose(now, p, s, ranked) == "")
	})
	since, able := s.AbleSince[c.Name]
	switch holder, _ := named(ranked, s.Record.Leader); {
	case holder.Reason == reason.Recovering && comesBack(s, ranked) && !c.Ordered && able &&
		now.Boot-since < p.Timings.Duration:
		// Both may have been out of reach together, and the leader has a moment to be fit again.
		return holder.Name, max(timeToAnswer(now, p, s), p.Timings.Renew)
	case ok:
		return better.Name, timeToAnswer(now, p, s)
	default:
		return "", 0
	}
}

// firstWaitsFor returns which cluster the first leader of a namespace waits for, and how long. That is a better
// cluster that is not ready, or in which the namespace was not seen yet. Namespaces that are created in all
// clusters at one moment are seen in an arbitrary order. The wait counts from when the namespace was first seen in
// any cluster. So a cluster that never gets the namespace delays only the first election.
func firstWaitsFor(now lease.Reading, p Policy, r Record, c Candidate, ranked []Candidate) (string, time.Duration) {
	if r.Epoch != 0 || r.Since.After(now.Wall) {
		return "", 0
	}
	better, ok := best(ranked, func(o Candidate) bool {
		return compare(o, c) < 0 && !o.Drained && (notReady(o) || o.Reason == reason.NamespaceMissing)
	})
	if !ok {
		return "", 0
	}
	return better.Name, max(0, r.Since.Add(p.InitialDelay).Sub(now.Wall))
}

// comesBack reports whether the leader that is being replaced may be fit again: only the hub's failure to reach it
// speaks against it. As long as no other cluster could replace it, the record keeps its name, because recovery
// moves nothing.
func comesBack(s State, ranked []Candidate) bool {
	holder, ok := named(ranked, s.Record.Leader)
	unreached := func(r reason.Reason) bool {
		return r == reason.Unreachable || r == reason.Recovering || r == reason.NeverReached
	}
	return ok && s.Record.State == Ending && unreached(s.Record.Reason) && unreached(holder.Reason)
}

// timeToAnswer returns how long the clusters still have to answer: D from the start of the tenure. Where operators fail
// over, D may be a day, and no leader is replaced for its silence: then a minute is enough.
func timeToAnswer(now lease.Reading, p Policy, s State) time.Duration {
	d := p.Timings.Duration
	if p.ManualFailover {
		d = min(d, time.Minute)
	}
	return max(0, s.Tenure.Started.Boot+d-now.Boot)
}

// notReady reports whether a cluster may be fit in a moment. Either the hub has not reached, guarded or fenced it
// yet, or the cluster has begun to answer again.
func notReady(c Candidate) bool {
	return c.Fitness == Unknown || c.Reason == reason.Unguarded || c.Reason == reason.Unfenced ||
		c.Reason == reason.Recovering
}

// retire ends the record of a namespace that no policy selects any more, once all that was promised has passed.
// Without a policy ε is not known. The largest ε that a policy with this D could have had bounds it.
func retire(now lease.Reading, s State) Decision {
	if !s.Sent.Final {
		return Decision{Record: s.Record, StopRenewing: true}
	}
	b := promiseExpiry(s, bounds{skew: longest(s)})
	r := s.Record
	if r.State != Retired && (!r.Lost() || s.Highest > 0) {
		// The Leases are removed now: from here on the record alone holds their epoch and D.
		r.Epoch, r.Duration = max(r.Epoch, s.Highest), longest(s)
		r.State, r.Reason, r.Since, r.NotBefore, r.Next = Retired, reason.PolicyGone, now.Wall, b.wall, ""
		return Decision{Record: r, Persist: true, After: b.wait(now)}
	}
	if !b.passed(now) {
		return Decision{Record: r, Waiting: reason.WaitingForExpiry, After: b.wait(now)}
	}
	if ahead := max(r.Epoch, s.Highest) + 1 - lease.EpochFloor(now.Wall); ahead > 0 {
		// Changes that came faster than one a second drove the epoch ahead of the seconds.
		// Without this record the next term could start below it.
		return Decision{Record: r, Waiting: reason.WaitingForExpiry, After: time.Second}
	}
	return Decision{Record: r, Gone: true}
}
