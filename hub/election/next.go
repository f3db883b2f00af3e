package election

import (
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// Next decides what becomes of one namespace now. A nil policy means that none
// claims the namespace any more. It changes none of its arguments.
func Next(now lease.Reading, p *Policy, s State, candidates []Candidate) Decision {
	cs := slices.Clone(candidates)
	Rank(cs)
	if s.OtherHub {
		// Another hub leads here: whatever this one thinks, it deposes nobody.
		return Decision{Record: s.Record, Waiting: reason.OtherHub}
	}
	if p == nil {
		return retire(now, s)
	}
	if r, ok := raise(now, *p, s, cs); ok {
		return Decision{Record: r, Persist: true}
	}
	switch s.Record.Phase {
	case Leading:
		return lead(now, *p, s, cs)
	case Draining, Retired:
		return drain(now, *p, s, cs)
	default:
		return elect(now, *p, s, cs)
	}
}

// lead keeps the leader, or begins to replace it.
func lead(now lease.Reading, p Policy, s State, cs []Candidate) Decision {
	why := whyReplace(now, p, s, cs)
	if why == "" && s.Highest > s.Record.Epoch {
		// A newer term than the recorded one was seen, and it does not stand any more.
		why = reason.CopyLost
	}
	if why == "" {
		return keep(now, p, s, cs)
	}
	if !s.Sent.Closed {
		return Decision{Record: s.Record, Close: true}
	}
	b := boundOf(s, p.Timings.Skew)
	r := s.Record
	r.Phase, r.Reason, r.Since, r.NotBefore = Draining, why, now.Wall, b.wall
	r.Next = next(cs, r.Leader)
	if r.Next == "" {
		r.Next = next(cs, "")
	}
	return Decision{Record: r, Persist: true, After: b.wait(now)}
}

// keep brings the record of a leader that stays up to date.
func keep(now lease.Reading, p Policy, s State, cs []Candidate) Decision {
	r := s.Record
	r.Heeded = heed(r, cs, false)
	r.Next = next(cs, r.Leader)
	switch want := p.Timings.Duration; {
	case want > r.Duration:
		r.Duration = want // recorded before any copy carries it
	case want < r.Duration && s.Sent.Settled && now.Wall.After(inheritedEnd(s)):
		r.Duration = want // no longer promise is open any more
	}
	d := Decision{Record: r, Persist: !same(r, s.Record)}
	if holder, ok := named(cs, r.Leader); ok && holder.Fitness == Unknown {
		d.After = boundOf(s, p.Timings.Skew).wait(now)
	}
	if r.Duration != p.Timings.Duration && d.After == 0 {
		d.After = r.Duration
	}
	return d
}

// inheritedEnd is when the last promise of an earlier tenure ends.
func inheritedEnd(s State) time.Time { return s.Tenure.Inherited.Add(s.Record.Duration) }

// drain waits for the bound, lets the leader resume if the cause is gone before it,
// and grants the next term after it.
func drain(now lease.Reading, p Policy, s State, cs []Candidate) Decision {
	if !s.Sent.Closed {
		return Decision{Record: s.Record, Close: true}
	}
	b := boundOf(s, p.Timings.Skew)
	r := s.Record
	if !b.passed(now) {
		if resumes(now, p, s, cs) {
			r.Phase, r.Reason, r.Since, r.NotBefore = Leading, reason.Resumed, now.Wall, time.Time{}
			return Decision{Record: r, Persist: true}
		}
		r.Phase, r.NotBefore = Draining, b.wall
		r.Next = successor(cs, r.Leader)
		return Decision{Record: r, Persist: !same(r, s.Record), Waiting: reason.WaitingForBound, After: b.wait(now)}
	}
	if s.MostUnreachable && !p.FailOverWhenMostUnreachable && observed(r.Reason) {
		return Decision{Record: r, Waiting: reason.MostUnreachable}
	}
	c, ok := best(cs, mayLead)
	switch {
	case !ok:
		return Decision{Record: vacate(now, r, cs), Persist: true, Waiting: reason.NoCandidate}
	case !c.Prepared && c.Name != r.Leader:
		r.Phase, r.Next = Draining, c.Name
		return Decision{Record: r, Persist: !same(r, s.Record), Waiting: reason.WaitingForClusters}
	default:
		return Decision{Record: grant(now, p, s, c, cs), Persist: true}
	}
}

// successor names the cluster that the next grant would go to if it came now. The
// leader itself may be its own successor, in a new term.
func successor(ranked []Candidate, leader string) string {
	if n := next(ranked, leader); n != "" {
		return n
	}
	return next(ranked, "")
}

// resumes reports whether the draining leader may go on in its term: the cause of
// the draining is gone, it answers, and its copy can still be live.
func resumes(now lease.Reading, p Policy, s State, cs []Candidate) bool {
	holder, ok := named(cs, s.Record.Leader)
	return ok && s.Record.Phase == Draining && holder.Answering && now.Wall.Before(s.Sent.Until) &&
		(holder.Fitness == Fit || holder.Fitness == KeepsOnly) &&
		whyReplace(now, p, s, cs) == ""
}

// vacate is the record of a namespace that nobody leads. Its epoch stays: nothing
// of that epoch can be acted on any more.
func vacate(now lease.Reading, r Record, cs []Candidate) Record {
	return Record{
		Epoch: r.Epoch, Phase: Vacant, Reason: reason.NoCandidate, Since: now.Wall,
		Duration: r.Duration, LeaseName: r.LeaseName, Heeded: heed(r, cs, false),
	}
}

// elect grants a namespace that nobody leads.
func elect(now lease.Reading, p Policy, s State, cs []Candidate) Decision {
	r := s.Record
	r.Next = next(cs, "")
	if r.Lost() {
		r.Phase, r.Since, r.LeaseName = Vacant, now.Wall, p.LeaseName
		r.Duration = max(s.LargestDuration, p.Timings.Duration) // stays the bound of what was lost
	}
	b := boundOf(s, p.Timings.Skew)
	c, ok := best(cs, mayLead)
	wait, why := time.Duration(0), reason.Reason("")
	switch {
	case !b.passed(now):
		wait, why = b.wait(now), reason.WaitingForBound
	case !ok:
		why = reason.NoCandidate
	default:
		if wait = patience(now, p, s, c, cs); wait > 0 {
			why = reason.WaitingForClusters
		}
	}
	if why == "" {
		return Decision{Record: grant(now, p, s, c, cs), Persist: true}
	}
	r.Reason = why
	if why == reason.WaitingForBound {
		r.NotBefore = b.wall
	}
	return Decision{Record: r, Persist: !same(r, s.Record), Waiting: why, After: wait}
}

// patience is how long to wait for clusters that would be better than c but are still
// settling: at most D from the start of the tenure, so that a hub that
// has just started does not crown whichever member answers first.
func patience(now lease.Reading, p Policy, s State, c Candidate, cs []Candidate) time.Duration {
	if _, better := best(cs, func(o Candidate) bool { return settling(o) && outranks(o, c) }); !better {
		return 0
	}
	return max(0, s.Tenure.Started.Boot+p.Timings.Duration-now.Boot)
}

// settling is true of a cluster that the hub has not reached yet, or has not guarded
// yet: in a moment it may be fit.
func settling(c Candidate) bool { return c.Fitness == Unknown || c.Reason == reason.Unguarded }

// retire ends the record of a namespace that no policy claims any more, once all
// that was promised has passed. ε is not known without a policy: the largest one that
// a policy of this D could have had bounds it.
func retire(now lease.Reading, s State) Decision {
	if s.Record.Lost() {
		return Decision{Record: s.Record, Gone: true}
	}
	if !s.Sent.Closed {
		return Decision{Record: s.Record, Close: true}
	}
	b := boundOf(s, s.Record.Duration)
	r := s.Record
	if r.Phase != Retired {
		r.Phase, r.Reason, r.Since, r.NotBefore, r.Next = Retired, reason.PolicyGone, now.Wall, b.wall, ""
		return Decision{Record: r, Persist: true, After: b.wait(now)}
	}
	if !b.passed(now) {
		return Decision{Record: r, Waiting: reason.WaitingForBound, After: b.wait(now)}
	}
	if ahead := r.Epoch + 1 - lease.EpochFloor(now.Wall); ahead > 0 {
		// Changes that came faster than one a minute drove the epoch ahead of the minutes.
		// Without this record the next term could start below it.
		return Decision{Record: r, Waiting: reason.WaitingForBound, After: time.Duration(ahead) * time.Minute}
	}
	return Decision{Record: r, Gone: true}
}
