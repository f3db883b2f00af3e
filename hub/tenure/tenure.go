// Package tenure tracks until when this hub replica has the right to write.
//
// client-go's elector does not expose when the request was sent that won or renewed the election. Its IsLeader
// stays true for up to one and a half renew deadlines after that. So its lock is wrapped. The renewTime that a
// successful request carried + h is the deadline of the tenure. Each renewTime that goes to a member is compared
// with it on both clocks. The successor reads the same renewTime in the election's Lease, so it can compute until
// when its predecessor can have written (protocol, rules 1 and 6).
//
// A process whose clock is so wrong that its Leases would be useless neither wins the election nor renews it: see
// [Tenure.RefuseIf].
package tenure

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/api/lease"
)

// Tenure is the right of one process to write. It is safe for concurrent use.
type Tenure struct {
	clock lease.Clock
	h     time.Duration
	veto  func() error // see RefuseIf

	mu         sync.Mutex                         // never held across I/O
	lastRecord *resourcelock.LeaderElectionRecord // the election's Lease as this process last read or wrote it
	held       bool
	released   bool
	started    lease.Reading
	inherited  time.Time
	// orderly: the earlier tenure had ended when this one won the election.
	orderly bool
	// earlierDuration is how long an earlier tenure may go on after the start of this one: h, or the duration of
	// the earlier tenure's election.
	earlierDuration time.Duration
	skew            time.Duration // the largest difference of clocks that Overlap was called with
	// lastWrite is the latest wall reading at which this tenure may have written.
	lastWrite time.Time
	// transitions and acquired identify this process's term in the election.
	transitions int
	acquired    time.Time
	wall        time.Time     // deadline by the wall clock
	boot        time.Duration // deadline by the boot clock
}

// New returns the tenure of a process that has not been elected yet. h is the duration of the hub's election:
// the LeaseDuration of its elector.
func New(clock lease.Clock, h time.Duration) *Tenure {
	return &Tenure{clock: clock, h: h}
}

// Lock wraps the lock of the hub's election, so that the tenure tracks each request and its outcome.
func (t *Tenure) Lock(inner resourcelock.Interface) resourcelock.Interface {
	return &lock{Interface: inner, tenure: t}
}

// MayWrite reports whether a request whose renewTime is now may be sent to a member: now is before the
// deadline on both clocks.
func (t *Tenure) MayWrite(now lease.Reading) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	may := t.held && !t.released && now.Wall.Before(t.wall) && now.Boot < t.boot
	if may && now.Wall.After(t.lastWrite) {
		t.lastWrite = now.Wall
	}
	return may
}

// Holds is MayWrite at the present time.
func (t *Tenure) Holds() bool { return t.MayWrite(t.clock.Now()) }

// Started returns when the tenure was acquired: a reading taken after the request that won the election was
// answered. inherited is the latest time at which an earlier tenure can have written. Both are zero before the
// election is won.
func (t *Tenure) Started() (started lease.Reading, inherited time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.started, t.inherited
}

// ObserveEarlier records an instant at which an earlier tenure was at work: a renewTime that it wrote into a member, or
// its last change of a record. If that is later than inherited, the election's Lease was wrong, as after a restore of
// the hub's etcd, or by a clock that is far behind. The earlier tenure can then have written until earlierDuration
// after the start of this one.
func (t *Tenure) ObserveEarlier(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held && at.After(t.inherited) {
		t.orderly = false
		if latest := t.started.Wall.Add(t.earlierDuration); latest.After(t.inherited) {
			t.inherited = latest
		}
	}
}

// Overlap returns how long after a reading an earlier tenure may still be at work by its own right. The clocks of
// the two differ by skew at most. It is 0 where the earlier tenure ended in order.
//
// The earlier tenure can write until the inherited time, by its clock, so both clocks of this one must have passed
// it. It cannot have renewed its election after the start of this one. So it ends when its election's duration has
// passed since, with an allowance for the drift of the clocks that count it.
//
// The earlier tenure does not track this one, so it does not count what this one promises.
func (t *Tenure) Overlap(at lease.Reading, skew time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := t.inherited
	if !t.orderly {
		end = end.Add(skew)
	}
	rest := max(end.Sub(at.Wall), t.started.Boot+end.Sub(t.started.Wall)-at.Boot)
	t.skew = max(t.skew, skew)
	return max(0, min(rest, t.started.Boot+t.earlierLasts(skew)-at.Boot))
}

// EarlierEndIn returns how long after a reading all earlier tenures will have ended, even if the election's Lease
// was lost or wrong. Clocks differ by skew at most. A write of an earlier tenure that arrives later has no
// consequences.
func (t *Tenure) EarlierEndIn(at lease.Reading, skew time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.started.Boot+t.earlierLasts(skew)-at.Boot)
}

// drift is the share of a duration by which two clocks that count it may differ. It is far above the drift of real
// machines.
const drift = 0.1

// earlierLasts returns how long an earlier tenure may go on after the start of this one, by this one's clock. In so
// short a time, clocks with a bounded drift do not come to differ by all of a large skew. The caller holds mu.
func (t *Tenure) earlierLasts(skew time.Duration) time.Duration {
	return t.earlierDuration + min(skew, time.Duration(drift*float64(t.earlierDuration)))
}

// lock is a resourcelock.Interface that reports to a Tenure.
type lock struct {
	resourcelock.Interface
	tenure *Tenure
}

// Get remembers the Lease, in case this process wins next.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.Interface.Get(ctx)
	l.tenure.mu.Lock()
	defer l.tenure.mu.Unlock()
	l.tenure.lastRecord = nil
	if err == nil {
		seen := *r
		l.tenure.lastRecord = &seen
	}
	return r, raw, err
}

// Create wins an election that left no trace. It never renews: if the Lease was deleted, another replica may have
// created it again, and that replica may be gone too.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	sent := l.tenure.clock.Now()
	if l.tenure.wasHeld() {
		return errOver
	}
	if err := l.tenure.vetoed(); err != nil {
		return err
	}
	err := l.Interface.Create(ctx, r)
	if err == nil {
		l.tenure.won(r, sent)
	}
	return err
}

// Update wins, renews or releases the election.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == "" {
		// The time of the release is read after the last promise.
		latest, mark := l.tenure.release()
		if !l.tenure.leaseIsOwn(l.Identity()) {
			return errNotHeld
		}
		r.RenewTime, r.AcquireTime = metav1.NewTime(latest), metav1.NewTime(latest.Add(mark))
		return l.Interface.Update(ctx, r)
	}
	sent := l.tenure.clock.Now()
	if !l.tenure.unbroken(r, sent) {
		return errOver
	}
	if err := l.tenure.vetoed(); err != nil {
		return err
	}
	err := l.Interface.Update(ctx, r)
	if err == nil {
		l.tenure.won(r, sent)
	}
	return err
}

// errOver ends a process whose tenure is over. Its elector gives up when it could not renew for its renew deadline.
var errOver = errors.New("the tenure of this process is over, and another replica may have had one since: " +
	"restart the process")

// unbroken reports whether winning the election with r, sent at the reading, starts the first tenure of this
// process or continues it. client-go's elector, while it tries to renew, takes the election back from a replica
// that held it in between. That would be another tenure, and this process does not know the promises in between. A
// renewTime that is too old does not continue the tenure either: the successor counts from it, and would inherit
// less than this tenure did.
func (t *Tenure) unbroken(r resourcelock.LeaderElectionRecord, sent lease.Reading) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.held || !t.released && t.isOwn(r) &&
		(t.lastRecord == nil || t.lastRecord.HolderIdentity == r.HolderIdentity && t.isOwn(*t.lastRecord)) &&
		r.RenewTime.Before(&metav1.Time{Time: t.wall}) && sent.Boot < t.boot &&
		!asStored(r.RenewTime).Add(t.h).Before(t.inherited.Truncate(time.Microsecond))
}

// isOwn reports whether a record belongs to the term in the election that this process has won. The record that the
// elector sends does not suffice. If a renewal failed because another replica held the election in between, the
// elector may send the old AcquireTime. Its transitions may have begun again with a new Lease. So the record that
// it last read has to be its own, too. The caller holds mu.
func (t *Tenure) isOwn(r resourcelock.LeaderElectionRecord) bool {
	return r.LeaderTransitions == t.transitions && asStored(r.AcquireTime).Equal(t.acquired)
}

// wasHeld reports whether the process has had a tenure. It never gets another one.
func (t *Tenure) wasHeld() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held
}

// errNotHeld rejects a release that would end the tenure of another replica.
var errNotHeld = errors.New("the election is not released: another replica holds it")

// releaseMark is how much the AcquireTime of a Lease that was released in order is later than its RenewTime. No won
// election writes that. A Lease whose holder an edit removed does not count as released.
const releaseMark = time.Microsecond

// leaseIsOwn reports whether the election's Lease was this tenure's when it was last read or written: it named this
// holder, in the term that the holder won. client-go's elector does not check that. When it could not renew, it
// releases whatever it reads last, and the next replica would assume that all writes have ended. A Lease may name
// the holder in another term, or be older than the holder's last renewal. Then an old request was applied late,
// after another replica had lost a Lease that still gives it the right to write.
func (t *Tenure) leaseIsOwn(holder string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastRecord != nil && t.lastRecord.HolderIdentity == holder && t.isOwn(*t.lastRecord) &&
		!asStored(t.lastRecord.RenewTime).Add(t.h).Before(t.wall)
}

// release ends the right to write. It returns a time after the last write of this tenure, also if the wall clock
// was stepped back. It also returns the mark of an orderly release. The mark is zero while an earlier tenure may be
// at work: a tenure that lost its Lease may not have ended yet.
func (t *Tenure) release() (latest time.Time, mark time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.released = true
	now := t.clock.Now()
	if latest = now.Wall; t.lastWrite.After(latest) {
		latest = t.lastWrite
	}
	if t.orderly || now.Boot >= t.started.Boot+t.earlierLasts(t.skew) {
		mark = releaseMark
	}
	return latest.Add(time.Microsecond), mark // a Lease stores whole microseconds
}

// won records that a request which carried r, sent at the reading, succeeded.
func (t *Tenure) won(r resourcelock.LeaderElectionRecord, sent lease.Reading) {
	after := t.clock.Now()
	renewTime := asStored(r.RenewTime) // as the successor will read it
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held {
		t.held, t.transitions, t.acquired = true, r.LeaderTransitions, asStored(r.AcquireTime)
		t.inherit(after)
	}
	t.lastRecord = &r
	t.wall = renewTime.Add(t.h)
	t.boot = sent.Boot - max(0, sent.Wall.Sub(renewTime)) + t.h
}

// asStored returns a time as a Lease stores it.
func asStored(t metav1.Time) time.Time { return t.Truncate(time.Microsecond) }

// longestElection exceeds the election duration of any hub. A Lease with a longer duration was edited.
const longestElection = time.Minute

// inherit records the latest time at which an earlier tenure can have written, by the election's Lease before this
// one took it. The caller holds mu.
func (t *Tenure) inherit(started lease.Reading) {
	r := t.lastRecord
	t.started, t.earlierDuration, t.inherited = started, t.h, started.Wall.Add(t.h) // without a usable Lease
	if r == nil {
		return
	}
	lasts := time.Duration(r.LeaseDurationSeconds)
	switch {
	case r.RenewTime.IsZero(), r.RenewTime.After(started.Wall), lasts <= 0, lasts > longestElection/time.Second: // odd
	case r.HolderIdentity == "" && r.AcquireTime.Time.Equal(r.RenewTime.Add(releaseMark)):
		t.inherited, t.orderly = r.RenewTime.Time, true
	case r.AcquireTime.Equal(&r.RenewTime):
		// The election was won and never renewed. The renewTime may be older than the Lease, or than the end of the
		// tenure before it. A contender can be paused between reading its clock and its request.
	default:
		t.earlierDuration = max(t.h, lasts*time.Second)
		t.inherited = r.RenewTime.Add(t.earlierDuration)
	}
}

// ElectionDuration returns h.
func (t *Tenure) ElectionDuration() time.Duration { return t.h }
