package election

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// expiry is the instant from which on nobody holds a promise any more.
type expiry struct {
	wall  time.Time
	boot  time.Duration
	extra time.Duration // D + ε
}

// passed reports whether the bound has passed on both clocks: a wall clock that
// was stepped forward does not end a promise early. A wall clock that was ahead and is
// right again would hold it up for as long as it was ahead. Readers refuse the stamps of such a clock, so that
// another D + ε on the clock that never steps is enough.
func (b expiry) passed(now lease.Reading) bool {
	return now.Boot >= b.boot && (!now.Wall.Before(b.wall) || now.Boot >= b.boot+b.extra)
}

// wait is how long until the bound passes, or until it should be looked at again: a
// clock that is put right after a step may have brought it nearer.
func (b expiry) wait(now lease.Reading) time.Duration {
	boot := b.boot - now.Boot
	return max(0, min(b.extra, max(boot, min(b.wall.Sub(now.Wall), boot+b.extra))))
}

// promiseExpiry counts the bound of all that can have been promised for the namespace under a
// policy with that D: what is inherited, and what this tenure has sent: the latest stamp + the duration sent
// with it, which only is final once the source of stamps is closed.
//
// What was sent under a larger ε stands for as long as was right then: a smaller one in the policy shortens
// no more than a shorter D does.
//
// A leader whose clock is known to be further behind than ε is waited for, but not for more
// than another D: a clock that is off by years must not keep a namespace without a leader for
// years, and beyond ε nothing is promised.
func promiseExpiry(s State, d, skew time.Duration) expiry {
	skew = max(skew, min(s.Behind, max(d, longest(s))))
	skew = max(skew, s.Sent.Skew)
	b := inheritedExpiry(s, d, skew)
	if !s.Sent.Until.IsZero() {
		if own := s.Sent.Until.Add(skew); own.After(b.wall) {
			b.wall = own
		}
		b.boot = max(b.boot, s.Sent.BootUntil+skew)
	}
	return b
}

// inheritedExpiry counts the bound of what earlier tenures can have promised: they can
// have stamped until the deadline that this tenure inherited. Nothing that a member
// shows shortens this, because its etcd may have been restored; and no D in the record
// that is shorter than the largest ever sent, because somebody may have edited it before
// this tenure, or so early in it that the edit could be the word of another one. Nor does an
// ε that is smaller than the largest one.
func inheritedExpiry(s State, d, skew time.Duration) expiry {
	d = max(d, longest(s), s.LargestDuration)
	skew = max(skew, s.LargestSkew)
	b := expiry{wall: s.Tenure.Inherited.Add(d + skew)}
	b.boot = s.Tenure.Started.Boot + b.wall.Sub(s.Tenure.Started.Wall)
	b.extra = max(d+skew, time.Second)
	return b
}

// longest is the longest D that an earlier tenure can have sent: the record's or, if
// the record is lost or older than what was sent, the largest D ever.
func longest(s State) time.Duration {
	if s.Record.Lost() || s.stale() {
		return max(s.Record.Duration, s.LargestDuration)
	}
	return s.Record.Duration
}
