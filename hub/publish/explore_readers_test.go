package publish

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// stepBack is how far the wall clock of a reader may be stepped back after it has seen a Lease for the first time.
const stepBack = 3

// acts says in which epochs a reader of a member may act at this instant; none if high is zero.
type acts struct{ low, high int64 }

func (a *acts) in(epoch int64) {
	if a.high == 0 || epoch < a.low {
		a.low = epoch
	}
	a.high = max(a.high, epoch)
}

// acts asks every reader that there can be in a member: one that has been there since a Lease was written or that has
// just been started, that was shown this Lease first, by a stale list, and that Lease last, by a watch that lags; by
// each of three clocks. Each was shown what it saw now, or a tick ago; and those may see the last Lease again after
// their wall clock was stepped back.
//
// Readers do not act on anything else, so asking all of them in every state is the same as exploring their steps. A
// reader that saw a Lease at any other time is none the wiser: by a constant clock what is frozen of a Lease ends at
// the same instant whenever it was seen, which TestAReaderFreezesTheSameWheneverItLooks shows of the real one.
func (e *explorer) acts(s *world, m int) acts {
	if e.acknowledged && m == registrar {
		return e.registeredActs(s)
	}
	seen := s.sites[m].seen
	if len(seen) == 0 {
		return acts{}
	}
	key := string(e.appendSights(nil, s, seen))
	if a, ok := e.asked[key]; ok {
		return a
	}
	var a acts
	for wrong := range e.skew + 1 {
		for from := range seen {
			for to := from; to < len(seen); to++ {
				for _, when := range []int{s.now, s.now - 1} {
					a.ask(e, s.now, wrong, when, seen[from:to+1])
				}
			}
		}
	}
	e.asked[key] = a
	return a
}

// ask asks a reader that was shown the Leases at that time.
func (a *acts) ask(e *explorer, now, wrong, when int, shown []sight) {
	r, p := lease.Reader{Skew: time.Duration(e.skew) * unit}, lease.Permit{}
	for _, c := range shown {
		if e.broken.byObservation {
			c.RenewTime = reading(when, wrong).Wall
		}
		p = r.Observe(c, reading(when, wrong))
	}
	if p.Holds(e.look(now, wrong, when)) {
		a.in(p.Epoch)
	}
	if when == now || !p.Holds(reading(when, wrong)) {
		return // a clock that is stepped before anything was seen is beyond the promise
	}
	stepped := e.look(now, wrong, when)
	stepped.Wall = stepped.Wall.Add(-stepBack * unit)
	if p.Holds(stepped) {
		a.in(p.Epoch)
	}
	if e.broken.frozenAgain {
		r = lease.Reader{Skew: time.Duration(e.skew) * unit}
	}
	if p = r.Observe(shown[len(shown)-1], stepped); p.Holds(stepped) {
		a.in(p.Epoch)
	}
}

// look reads the clocks of a reader that saw the last Lease then.
func (e *explorer) look(now, wrong, when int) lease.Reading {
	r := reading(now, wrong)
	if e.broken.noBootForReaders {
		r.Boot = reading(when, wrong).Boot
	}
	return r
}

// violation returns what is wrong in a state, and keeps the highest epoch that anybody acted in.
func (e *explorer) violation(s *world) string {
	high, who := s.acted, -1
	for m := range e.sites {
		a := e.acts(s, m)
		switch {
		case a.high == 0:
			continue
		case who >= 0:
			return "readers of " + siteNames[who] + " and of " + siteNames[m] + " may act at the same instant"
		case a.low < s.acted:
			return "a reader of " + siteNames[m] + " may act in an epoch after another acted in a higher one"
		case a.high == s.acted && s.actor != m:
			return "readers of " + siteNames[s.actor] + " and of " + siteNames[m] + " may act in the same epoch"
		}
		who, high = m, max(high, a.high)
		if a.low < a.high {
			return "readers of " + siteNames[m] + " may act in two epochs at the same instant"
		}
	}
	if s.acted = high; who >= 0 {
		s.actor = who
	}
	return ""
}

// expire drops the Leases by which no reader can act any more, and what came before them. The last one stays.
func (e *explorer) expire(s *world) {
	for m := range e.sites {
		seen, from := s.sites[m].seen, 0
		for from < len(seen)-1 && !e.visible(s, seen[from]) {
			from++
		}
		if from > 0 {
			s.changeSite(m).seen = seen[from:]
		}
	}
}

// addSight adds a Lease to those that readers may be shown. Of one term the latest Leases stay: an earlier one permits
// less.
func addSight(seen []sight, c sight, keep int) []sight {
	from := len(seen)
	for from > 0 && seen[from-1].Epoch == c.Epoch && seen[from-1].LeadsHere() == c.LeadsHere() {
		from--
	}
	n := append([]sight{}, seen...)
	switch same := len(n) - from; {
	case same == 0:
	case !c.LeadsHere(), n[len(n)-1].RenewTime.Equal(c.RenewTime):
		return n // it changes nothing for a reader
	case same == keep:
		n = append(n[:from], n[from+1:]...)
	}
	return append(n, c)
}

// visibleFor is how many ticks after a Lease has run out readers are still asked about it: a reader that saw it while
// it stood may not go on by a clock that was stepped back.
const visibleFor = 1

// visible reports whether the slowest reader could act by a Lease, or could have a little while ago.
func (e *explorer) visible(s *world, c sight) bool {
	return c.LeadsHere() && c.Live(reading(s.now-visibleFor-e.margin(), 0).Wall)
}
