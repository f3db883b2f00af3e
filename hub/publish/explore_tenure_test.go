package publish

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/tenure"
)

// A Tenure has a mutex and cannot be copied. It is made again from its history whenever something happens.
type right struct {
	found       ballot // the election's Lease before it was won
	won         lease.Reading
	transitions int
	doubt       time.Time // the latest renewTime of an earlier tenure that was read
	stamp       lease.Reading
	answered    lease.Reading
}

// tenure makes the real one.
func (r right) tenure(x int) *tenure.Tenure {
	t, _ := r.replay(x)
	return t
}

// replay makes the real one and its lock.
func (r right) replay(x int) (*tenure.Tenure, *scriptedLock) {
	l := &scriptedLock{found: r.found, identity: replicaNames[x], clock: &scriptedClock{}}
	t := tenure.New(l.clock, exploredH*unit)
	l.wrapped = t.Lock(l)
	update := func(sent, answered lease.Reading) {
		l.clock.script = []lease.Reading{sent, answered}
		must(l.wrapped.Update(context.Background(), ballotOf(x, sent.Wall, r.transitions).record()))
	}
	_, _, _ = l.wrapped.Get(context.Background())
	update(r.won, r.won)
	if !r.doubt.IsZero() {
		t.ObserveEarlier(r.doubt)
	}
	// A Tenure refuses what is not unbroken: those in between are any that led there.
	for at := r.won; at.Wall.Before(r.stamp.Wall); {
		if at.Wall, at.Boot = at.Wall.Add(unit), at.Boot+unit; at.Wall.Before(r.stamp.Wall) {
			update(at, at)
			continue
		}
		update(r.stamp, r.answered)
	}
	return t, l
}

// released is the instant that the real Tenure puts into an orderly release.
func (r right) released(x int, b ballot, now lease.Reading) time.Time {
	_, l := r.replay(x)
	l.found, l.clock.script = b, []lease.Reading{now}
	_, _, _ = l.wrapped.Get(context.Background())
	must(l.wrapped.Update(context.Background(), resourcelock.LeaderElectionRecord{}))
	return l.written.RenewTime.Time
}

var replicaNames = [replicas]string{"A", "B"}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func ballotOf(x int, renewed time.Time, transitions int) ballot {
	return ballot{holder: x, renewed: renewed, transitions: transitions}
}

func (b ballot) record() resourcelock.LeaderElectionRecord {
	r := resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: exploredH, LeaderTransitions: b.transitions,
		RenewTime: metav1.NewTime(b.renewed), AcquireTime: metav1.NewTime(origin.Add(-time.Hour)),
	}
	if b.released {
		r.AcquireTime = metav1.NewTime(b.renewed.Add(time.Microsecond)) // as a tenure marks an orderly release
	} else if b.holder >= 0 {
		r.HolderIdentity = replicaNames[b.holder]
	}
	return r
}

// scriptedLock is the election's Lease as one replica finds it.
type scriptedLock struct {
	resourcelock.Interface
	wrapped  resourcelock.Interface
	clock    *scriptedClock
	found    ballot
	identity string
	written  resourcelock.LeaderElectionRecord
}

func (l *scriptedLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r := l.found.record()
	return &r, nil, nil
}

func (l *scriptedLock) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	l.written = r
	return nil
}

func (l *scriptedLock) Identity() string { return l.identity }

// scriptedClock gives one reading after the other.
type scriptedClock struct{ script []lease.Reading }

func (c *scriptedClock) Now() lease.Reading {
	now := c.script[0]
	c.script = c.script[1:]
	return now
}

// win has a replica take the election: because it is free, was released, or was not renewed for h since that was seen.
// One that restarts does not win at once again: the other one does, with the same clock in some of the scopes.
func (e *explorer) win(s *world, x int) *world {
	b := s.election
	free := b.holder < 0 || b.released || s.now >= b.changed+exploredH
	if s.replicas[x].tenure != nil || !free || x == b.holder {
		return nil
	}
	n := s.clone()
	r := n.change(x)
	now := s.at(r.wrong)
	r.right = right{found: b, won: now, transitions: b.transitions + 1}
	r.tenure = r.right.tenure(x)
	for m := range e.sites {
		r.syncers[m] = &leaseSyncer{
			key:  explorationKey,
			self: self{cluster: s.identity(m), uid: "uid", hub: "hub", key: testKey},
		}
	}
	n.election = ballotOf(x, now.Wall, b.transitions+1)
	n.election.changed = s.now
	return n
}

// renew renews the election of every replica that holds it, whenever time passes: a request that was sent a tick ago is
// answered now. That its renewals stop is a move of its own.
func (e *explorer) renew(s *world) {
	for x, r := range s.replicas {
		b := s.election
		if r.tenure == nil || r.stalled || b.holder != x || b.released || b.transitions != r.right.transitions {
			continue
		}
		stamp := reading(s.now-1, r.wrong)
		if !stamp.Wall.After(r.right.won.Wall) || !r.tenure.MayWrite(stamp) {
			continue
		}
		r = s.change(x)
		s.election = ballotOf(x, stamp.Wall, b.transitions)
		s.election.changed = s.now
		r.right.stamp, r.right.answered = stamp, s.at(r.wrong)
		r.tenure = r.right.tenure(x)
	}
}

// stall has a replica's renewals of its election get lost from now on, which it cannot know before its deadline.
func (e *explorer) stall(s *world, x int) *world {
	r := s.replicas[x]
	if r.tenure == nil || r.stalled || s.election.holder != x || s.faults >= e.faults {
		return nil
	}
	n := s.clone()
	n.change(x).stalled = true
	n.faults++
	return n
}

// crash restarts a process. What it had under way is gone, unless it was lost before and arrives late.
func (e *explorer) crash(s *world, x int) *world {
	if s.replicas[x].tenure == nil || s.faults >= e.faults {
		return nil
	}
	n := s.clone()
	n.replicas[x] = &replica{wrong: s.replicas[x].wrong}
	n.faults++
	return n
}

// lapse ends the processes whose tenure is over, as client-go's elector does.
func (e *explorer) lapse(s *world) {
	for x, r := range s.replicas {
		idle := r.ruling == nil && r.out == [sites]*posted{}
		if r.tenure != nil && idle && !e.mayWrite(s, r) && !e.broken.noDeadline {
			s.replicas[x] = &replica{wrong: r.wrong}
		}
	}
}

// release ends a tenure in order.
func (e *explorer) release(s *world, x int) *world {
	r := s.replicas[x]
	if s.election.holder != x || s.election.released || s.election.transitions != r.right.transitions {
		return nil
	}
	n := e.crash(s, x)
	if n == nil {
		return nil
	}
	n.election.renewed = r.right.released(x, s.election, s.at(r.wrong))
	n.election.released, n.election.changed = true, s.now
	return n
}

// state gathers what the real election asks for.
func (e *explorer) state(s *world, r *replica, closed bool) election.State {
	st := election.State{
		Record: *s.record, Sent: e.sent(r, closed), Highest: max(r.highest, e.firstEpoch-1), Found: r.standing,
		Released: e.hasReleased(s, r), LargestDuration: time.Duration(e.d) * unit,
	}
	st.Tenure.Started, st.Tenure.Inherited = r.tenure.Started()
	switch {
	case e.broken.nothingInherited:
		st.Tenure.Inherited = origin.Add(-time.Hour)
	case e.broken.newTenureCounts && st.Released:
		st.Tenure.Inherited = origin.Add(-time.Hour)
	case e.broken.lastRenewalInherited:
		st.Tenure.Inherited = st.Tenure.Inherited.Add(-exploredH * unit)
	}
	if e.broken.recordAlone {
		st.Highest, st.Found = 0, nil
	}
	for m := range e.sites {
		if siteNames[m] == s.record.Leader {
			st.LeaseLost = r.syncers[m].status.Lost
		}
	}
	return st
}
