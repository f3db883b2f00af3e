package command

import (
	"syscall"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// leastKillAhead is how long before the deadline SIGKILL is sent at least.
const leastKillAhead = 100 * time.Millisecond

// killAhead returns how long before the deadline SIGKILL is sent, so that the group is gone at the deadline: a tenth of
// the term's duration, which is what a busy machine may take to schedule the watchdog and deliver the signal.
func killAhead(duration, stopAhead time.Duration) time.Duration {
	return max(leastKillAhead, min(duration/10, stopAhead/2))
}

// instant is a point in time on both clocks. It has come when one of them shows it.
type instant lease.Reading

func after(now lease.Reading, d time.Duration) instant {
	return instant{Wall: now.Wall.Add(d), Boot: now.Boot + d}
}

// in returns how long it is until the instant, by the clock that shows less.
func (i instant) in(now lease.Reading) time.Duration {
	return min(i.Boot-now.Boot, i.Wall.Sub(now.Wall))
}

// come reports whether the instant has come.
func (i instant) come(now lease.Reading) bool { return i.in(now) <= 0 }

// near reports whether two instants differ by no more than two readings of the clock do.
func (i instant) near(other instant) bool {
	return i.in(lease.Reading(other)).Abs() < time.Millisecond && other.in(lease.Reading(i)).Abs() < time.Millisecond
}

// situation is the input of one decision.
type situation struct {
	now       lease.Reading
	remaining time.Duration // of the term
	over      bool          // the term is over
	elsewhere bool          // another cluster leads
	stopAhead time.Duration // how long before the deadline the program gets SIGTERM
	killAhead time.Duration // how long before the deadline it gets SIGKILL
}

// run is one run of the program in one term.
type run struct {
	until    instant // SIGKILL is sent then
	stopping bool    // SIGTERM was sent
}

// next applies the situation, and returns the signal that the group must get, 0 for no signal.
func (r *run) next(s situation) syscall.Signal {
	if !r.stopping && !s.over {
		r.until = after(s.now, s.remaining-s.killAhead)
	}
	switch {
	case s.over && s.elsewhere, r.until.come(s.now):
		return syscall.SIGKILL
	case !r.stopping && (s.over || s.remaining <= s.stopAhead):
		r.stopping = true
		// The last deadline may be from an edit that the hub has reverted. So a lost term grants no more than stopAhead.
		if bound := after(s.now, s.stopAhead); bound.in(s.now) < r.until.in(s.now) {
			r.until = bound
		}
		return syscall.SIGTERM
	}
	return 0
}
