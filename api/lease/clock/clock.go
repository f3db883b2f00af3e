// Package clock reads the clocks that leadership depends on: the wall clock, and the clock that keeps counting in
// suspend.
package clock

import (
	"sync/atomic"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// System reads the clocks of this machine. The zero value is ready, and safe for concurrent use.
//
// CLOCK_BOOTTIME costs a system call. Go's own reading of the wall and monotonic clocks does not. So Now derives Boot
// from the monotonic clock, which differs from it only by the time spent in suspend. A suspend, like a step, moves the
// wall clock against the monotonic one. When the two have moved apart by more than drift, Now asks the kernel again. It
// misses a suspend that a step back of the wall clock undoes to within drift before the next reading. Those are two
// faults that cancel out, the second of them outside the promise.
type System struct {
	cal atomic.Pointer[calibration]
}

var _ lease.Clock = (*System)(nil)

// drift is how far the wall and the monotonic clock may move apart before the kernel is asked again. It is
// small against any ε, and large against slewing: NTP slews both clocks alike.
const drift = 500 * time.Microsecond

// tight is how long the two readings of a calibration may take together. A pause
// between them would make Boot lag behind for as long as the calibration is used.
const tight = 50 * time.Microsecond

type calibration struct {
	base time.Time     // with its monotonic reading
	wall time.Time     // the same instant, without
	boot time.Duration // CLOCK_BOOTTIME at that instant or just before
}

// Now reads both clocks, Boot first.
func (s *System) Now() lease.Reading {
	if c := s.cal.Load(); c != nil {
		now := time.Now()
		mono := now.Sub(c.base)
		wall := now.Round(0)
		if apart := wall.Sub(c.wall) - mono; apart < drift && apart > -drift {
			return lease.Reading{Wall: wall, Boot: c.boot + mono}
		}
	}
	return s.ask(boottime, time.Now)
}

// ask reads the kernel's clock, then the wall clock, and keeps the pair if no pause came between.
func (s *System) ask(boottime func() time.Duration, wallclock func() time.Time) lease.Reading {
	before := boottime()
	now := wallclock()
	wall := now.Round(0)
	if boottime()-before <= tight {
		s.cal.Store(&calibration{base: now, wall: wall, boot: before})
	}
	return lease.Reading{Wall: wall, Boot: before}
}
