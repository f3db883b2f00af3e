package skew

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

const (
	// drift is how fast two clocks may move apart: the most by which the kernel slews a clock under NTP, 500
	// µs in a second.
	drift = 2000 // one part in
	// slack is the error that a reading of the hub's boot clock may have (see clock.System).
	slack = time.Millisecond
	// Fine is how narrow an interval is made by aiming, if the round trip allows it.
	Fine = 50 * time.Millisecond
	// century is the largest offset that is kept: beyond it nothing depends on how much.
	century = 100 * 365 * 24 * time.Hour
)

// Interval says how far a clock is ahead of the hub's wall clock: from Lo to Hi.
// Negative means behind.
type Interval struct{ Lo, Hi time.Duration }

// Least is how far apart the clocks are for certain.
func (i Interval) Least() time.Duration { return max(i.Lo, -i.Hi, 0) }

// Most is how far apart they can be.
func (i Interval) Most() time.Duration { return max(i.Hi, -i.Lo) }

// widened proves less, by d on both sides.
func (i Interval) widened(d time.Duration) Interval {
	return Interval{Lo: i.Lo - d, Hi: i.Hi + d}
}

// Sample says that at some instant after After and before Before, readings of the hub's boot clock, the other
// clock showed a time in [Shown, Shown + Grain).
type Sample struct {
	After, Before time.Duration
	// Open says that After is not known.
	Open  bool
	Shown time.Time
	Grain time.Duration
}

// origins bound what the clock showed, or would have shown, when the hub's boot clock showed zero.
func (s Sample) origins() (lo, hi time.Time) {
	lo, hi = s.Shown.Add(-s.Before-slack), future
	if !s.Open {
		hi = s.Shown.Add(s.Grain - s.After + slack)
	}
	return lo, hi
}

// future is the origin of a clock that is not bounded from above.
var future = time.Date(30000, time.January, 1, 0, 0, 0, 0, time.UTC)

// Estimate is the intersection of the samples of one clock. The zero Estimate knows nothing.
type Estimate struct {
	// lo and hi are the bounds of the origin of the clock as of the boot reading at.
	lo, hi time.Time
	at     time.Duration
	// samples is how many agree.
	samples int
	// trip is the round trip of the latest sample.
	trip time.Duration
}

// Known reports whether there was a sample.
func (e *Estimate) Known() bool { return e.samples > 0 }

// Observe adds a sample. Samples may arrive in any order.
func (e *Estimate) Observe(s Sample) {
	lo, hi := s.origins()
	if !s.Open {
		e.trip = s.Before - s.After
	}
	if !e.Known() {
		*e = Estimate{lo: lo, hi: hi, at: s.Before, samples: 1, trip: e.trip}
		return
	}
	if late := e.at - s.Before; late > 0 {
		lo, hi = lo.Add(-late/drift), hi.Add(late/drift)
	} else {
		e.lo, e.hi = e.bounds(s.Before)
		e.at = s.Before
	}
	if lo.After(e.hi) || hi.Before(e.lo) {
		e.lo, e.hi, e.samples = lo, hi, 1
		return
	}
	if lo.After(e.lo) {
		e.lo = lo
	}
	if hi.Before(e.hi) {
		e.hi = hi
	}
	e.samples++
}

// bounds are those of the origin as of a boot reading: wider, the older the estimate is.
func (e *Estimate) bounds(boot time.Duration) (lo, hi time.Time) {
	wider := max(boot-e.at, e.at-boot) / drift
	return e.lo.Add(-wider), e.hi.Add(wider)
}

// Offset is how far the clock is from the hub's wall clock at now. Call it only if the estimate is Known.
func (e *Estimate) Offset(now lease.Reading) Interval {
	lo, hi := e.bounds(now.Boot)
	own := now.Wall.Add(-now.Boot)
	return Interval{Lo: cut(lo.Sub(own)), Hi: cut(hi.Sub(own))}
}

func cut(d time.Duration) time.Duration { return max(-century, min(century, d)) }

// Aim returns the first boot reading from a given one on at which to send a request whose answer halves the
// interval: the clock's second then flips in the middle of the interval. It is less than a second away. Aim
// returns false if the interval is narrow enough, or unknown.
func (e *Estimate) Aim(from time.Duration) (time.Duration, bool) {
	if !e.Known() {
		return 0, false
	}
	lo, hi := e.bounds(from)
	width := hi.Sub(lo)
	if width <= max(Fine, e.trip*3/2) {
		return 0, false
	}
	way := e.trip / 2
	shows := lo.Add(width / 2).Add(from + way)
	return from + (time.Second-time.Duration(shows.Nanosecond()))%time.Second, true
}
