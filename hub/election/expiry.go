package election

import (
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// expiry is the time from which all promises are over.
type expiry struct {
	wall  time.Time
	boot  time.Duration
	extra time.Duration // D + ε
}

// passed reports whether the expiry has passed on both clocks: a wall clock that was stepped forward does not end a
// promise early. If the wall clock was ahead at a renewal and is right again, the expiry would be as far ahead.
// Readers reject a renewTime in the future, so another D + ε on the clock that never steps is enough.
func (b expiry) passed(now lease.Reading) bool {
	return now.Boot >= b.boot && (!now.Wall.Before(b.wall) || now.Boot >= b.boot+b.extra)
}

// wait returns how long until the expiry passes, or until it should be checked again. It may come nearer when a
// clock is corrected after a step.
func (b expiry) wait(now lease.Reading) time.Duration {
	boot := b.boot - now.Boot
	return max(0, min(b.extra, max(boot, min(b.wall.Sub(now.Wall), boot+b.extra))))
}

// bounds are the durations of a policy that a promise counts with: D and ε. A stop time counts only once a Lease
// was sent under it.
type bounds struct{ d, skew time.Duration }

func (p Policy) bounds() bounds { return bounds{p.Timings.Duration, p.Timings.Skew} }

// promiseExpiry returns the expiry of all that can have been promised for the namespace, under a policy with these
// bounds. It covers what is inherited, and what this tenure has sent: the latest renewTime + the duration sent with
// it. That is final only once all renewals have stopped.
//
// A promise under a larger ε or stop time counts with that one, not with a smaller one that was sent since.
//
// A leader whose clock is known to be behind by more than ε gets that much time, but not more than another D. A
// clock that is off by years must not keep a namespace without a leader for years, and beyond ε nothing is
// promised.
func promiseExpiry(s State, p bounds) expiry {
	behind := min(s.Behind, max(p.d, longest(s)))
	late := max(0, behind-p.skew)
	p.skew = max(p.skew, behind)
	p.skew = max(p.skew, s.Sent.Skew)
	b := inheritedExpiry(s, p)
	if !s.Sent.Until.IsZero() {
		b.wall = latest(b.wall, s.Sent.Until.Add(p.skew+s.Sent.Stop), s.Sent.EarlierEnd.Add(late))
		b.boot = max(b.boot, s.Sent.BootUntil+p.skew+s.Sent.Stop, s.Sent.BootEarlierEnd+late)
	}
	return b
}

// inheritedExpiry returns the expiry of what earlier tenures can have promised. They can have written until the
// deadline that this tenure inherited. Nothing that a member shows shortens this, because its etcd may have been
// restored. Nor does a record with a smaller D, ε or stop time than the seal has for its policy. That record may
// have been created again from a backup.
func inheritedExpiry(s State, p bounds) expiry {
	d := max(p.d, longest(s), s.LargestDuration)
	skew := max(p.skew, s.Record.Skew, s.LargestSkew)
	stop := max(s.Record.Stop, s.LargestStop)
	b := expiry{wall: s.Tenure.Inherited.Add(d + skew + stop), extra: max(d+skew, time.Second)}
	if s.Record.Reason == reason.OtherHub || s.stale() || s.LeaderUnread && !s.endedBefore() {
		b.wall = latest(b.wall, s.Tenure.Started.Wall.Add(d+skew+stop))
	}
	b.boot = s.Tenure.Started.Boot + b.wall.Sub(s.Tenure.Started.Wall)
	return b
}

// endedBefore reports whether an earlier tenure ended the term: the leader is renewed no more. If the election's
// Lease is older than a minute, it and the record may come from a backup, and the term may have been resumed since.
func (s State) endedBefore() bool {
	started := s.Tenure.Started.Wall
	return s.Record.State != Leading && s.Record.Since.Before(started) &&
		started.Sub(s.Tenure.Inherited) <= time.Minute
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// longest returns the longest D that an earlier tenure can have sent. That is the record's D or, if the record is
// lost or older than what was sent, the largest D ever.
func longest(s State) time.Duration {
	if s.Record.Lost() || s.stale() {
		return max(s.Record.Duration, s.LargestDuration)
	}
	return s.Record.Duration
}
