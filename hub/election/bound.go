package election

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// bound is the instant from which on nobody holds a promise any more.
type bound struct {
	wall time.Time
	boot time.Duration
}

// passed reports whether the bound has passed on both clocks: a wall clock that
// was stepped forward does not end a promise early.
func (b bound) passed(now lease.Reading) bool {
	return !now.Wall.Before(b.wall) && now.Boot >= b.boot
}

// wait is how long until the bound passes, if no clock steps.
func (b bound) wait(now lease.Reading) time.Duration {
	return max(0, b.wall.Sub(now.Wall), b.boot-now.Boot)
}

// boundOf counts the bound of all that can have been promised for the namespace.
//
// By this tenure: the latest stamp + the duration sent with it, which only is final
// once the source of stamps is closed. By earlier tenures: they can have stamped
// until the deadline that this tenure inherited, with the longest D of the record
// or, if that is lost, with the largest ever sent. Nothing that a member shows
// shortens this, because its etcd may have been restored.
func boundOf(s State, skew time.Duration) bound {
	longest := s.Record.Duration
	if s.Record.Lost() {
		longest = s.LargestDuration
	}
	b := bound{wall: s.Tenure.Inherited.Add(longest + skew)}
	b.boot = s.Tenure.Started.Boot + b.wall.Sub(s.Tenure.Started.Wall)
	if !s.Sent.Until.IsZero() {
		if own := s.Sent.Until.Add(skew); own.After(b.wall) {
			b.wall = own
		}
		b.boot = max(b.boot, s.Sent.BootUntil+skew)
	}
	return b
}
