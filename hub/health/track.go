package health

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// poll is the least Next while a member recovers. The member then needs one more success, and no event announces
// that.
const poll = time.Second

// maxLapses bounds how many past lapses of one kind are kept separately.
const maxLapses = 64

// Track keeps the facts about one member. The zero Track has seen nothing. It is not
// safe for concurrent use.
type Track struct {
	facts [kinds]facts
}

// facts are the facts about one kind of request. Its successes form streaks, unbroken by failures, with lapses
// between them.
type facts struct {
	reached bool
	// first is the first success, start the first success of the latest streak, and last the latest success.
	first, start, last lease.Reading
	// failure is the latest failure if it was sent after last.
	failure *Observation
	// lapses are the times between streaks, oldest first.
	lapses []lapse
}

// lapse lies between two streaks: the last success before it and the first after it.
type lapse struct {
	lost, found lease.Reading
	// gap is the time from lost to found, or the longest gap of merged lapses.
	gap time.Duration
	// steady is the longest streak between merged lapses.
	steady time.Duration
}

// Observe records the outcome of a request. Outcomes may arrive in any order: they count by when the requests were
// sent. A failure that was sent before the last success is ignored.
func (t *Track) Observe(o Observation) {
	f := &t.facts[o.Kind]
	if o.OK {
		f.succeed(o.At)
	} else {
		f.fail(o)
	}
}

func (f *facts) succeed(at lease.Reading) {
	switch {
	case !f.reached:
		f.reached, f.first, f.start, f.last = true, at, at, at
	case at.Boot <= f.last.Boot:
		return
	case f.failure != nil && f.failure.At.Boot <= at.Boot:
		f.addLapse(lapse{lost: f.last, found: at, gap: at.Boot - f.last.Boot})
		f.start, f.last = at, at
	default:
		f.last = at
	}
	if f.failure != nil && f.failure.At.Boot <= at.Boot {
		f.failure = nil
	}
}

func (f *facts) fail(o Observation) {
	if f.reached && o.At.Boot < f.last.Boot {
		return
	}
	if f.failure == nil || f.failure.At.Boot <= o.At.Boot {
		f.failure = &o
	}
}

// addLapse adds a lapse, and keeps at most maxLapses. It merges the two oldest into one that is at least as long. So an
// outage is forgotten only if a streak between the two was long enough to recover from it.
func (f *facts) addLapse(l lapse) {
	f.lapses = append(f.lapses, l)
	if len(f.lapses) <= maxLapses {
		return
	}
	a, b := f.lapses[0], f.lapses[1]
	f.lapses = f.lapses[1:]
	f.lapses[0] = lapse{
		lost:   b.lost,
		found:  b.found,
		gap:    max(a.gap, b.gap),
		steady: max(a.steady, b.lost.Boot-a.found.Boot),
	}
}

// Excuse excludes the time between two readings from the judgement of a kind, because the hub sent no requests
// then. The process was paused, or this replica had no right to write. That time counts neither as silence nor as
// an answer.
func (t *Track) Excuse(k Kind, from, to lease.Reading) {
	f := &t.facts[k]
	if !f.reached {
		return
	}
	d := to.Boot - max(from.Boot, f.last.Boot)
	if d <= 0 {
		return
	}
	// The whole streak moves, so that it gets no longer.
	f.start, f.last = later(f.start, d), later(f.last, d)
	if n := len(f.lapses); n > 0 {
		f.lapses[n-1].found = f.start
	}
}

// Answering reports whether the latest read and the latest write both succeeded.
func (t *Track) Answering() bool {
	for i := range t.facts {
		if !t.facts[i].reached || t.facts[i].failure != nil {
			return false
		}
	}
	return true
}

// Reached reports whether a request of the kind ever succeeded.
func (t *Track) Reached(k Kind) bool { return t.facts[k].reached }

// Last returns the send time of the latest success of a kind. It returns false if there was no success, or if a
// failure followed it.
func (t *Track) Last(k Kind) (lease.Reading, bool) {
	f := &t.facts[k]
	return f.last, f.reached && f.failure == nil
}

// Failure returns the latest failure that no success of its kind has followed yet, or the zero Observation.
func (t *Track) Failure() Observation {
	var latest Observation
	for i := range t.facts {
		if f := t.facts[i].failure; f != nil && f.At.Boot >= latest.At.Boot {
			latest = *f
		}
	}
	return latest
}

// State judges the member at now. The reading must not be older than any observation.
func (t *Track) State(now lease.Reading, th Thresholds) Verdict {
	v := Verdict{State: Healthy, Answering: t.Answering()}
	for i := range t.facts {
		v = worse(v, t.facts[i].state(Kind(i), now, th))
	}
	return v
}

// worse combines the verdicts on two kinds: unknown before unhealthy before healthy, and in a tie the one that
// began later.
func worse(a, b Verdict) Verdict {
	rank := func(s State) int { return slices.Index([]State{Healthy, Unhealthy, Unknown}, s) }
	w := a
	if rank(b.State) > rank(a.State) || b.State == a.State && b.Since.Boot > a.Since.Boot {
		w = b
	}
	w.Answering = a.Answering
	w.Next = sooner(a.Next, b.Next)
	return w
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func (f *facts) state(k Kind, now lease.Reading, th Thresholds) Verdict {
	if !f.reached {
		v := Verdict{State: Unknown, Reason: reason.NeverReached, Message: fmt.Sprintf("no %s has been answered yet", k)}
		if f.failure != nil {
			v.Message = f.failure.Message
			if f.failure.Reason == reason.Forbidden {
				v.Reason = reason.Forbidden
			}
		}
		return v
	}
	v := f.history(th)
	if f.failure == nil {
		if v.State == Unhealthy {
			v.Next = max(poll, th.RecoverAfter-(now.Boot-f.start.Boot))
		}
		return v
	}
	end := later(f.last, th.UnreachableAfter)
	if now.Boot <= end.Boot {
		v.Next = end.Boot - now.Boot + 1
		return v
	}
	if v.State != Unhealthy {
		v.Since = end
	}
	v.State, v.Reason, v.Message = Unhealthy, f.failure.Reason, f.failure.Message
	return v
}

// history replays the lapses, and returns the verdict at the last success.
func (f *facts) history(th Thresholds) Verdict {
	v := Verdict{State: Healthy, Since: f.first}
	for i, l := range f.lapses {
		if l.gap > th.UnreachableAfter && l.steady < th.RecoverAfter {
			if v.State == Healthy {
				v.Since = later(l.lost, th.UnreachableAfter)
			}
			v.State = Unhealthy
		}
		end := f.last // of the streak that followed
		if i+1 < len(f.lapses) {
			end = f.lapses[i+1].lost
		}
		if v.State == Unhealthy && end.Boot-l.found.Boot >= th.RecoverAfter {
			v.State, v.Since = Healthy, later(l.found, th.RecoverAfter)
		}
	}
	if v.State == Unhealthy {
		v.Reason = reason.Recovering
		v.Message = fmt.Sprintf("answers again, but not yet for %v without a failure", th.RecoverAfter)
	}
	return v
}

// later returns the reading d after r, if no clock steps.
func later(r lease.Reading, d time.Duration) lease.Reading {
	return lease.Reading{Wall: r.Wall.Add(d), Boot: r.Boot + d}
}
