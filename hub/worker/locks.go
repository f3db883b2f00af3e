package worker

import (
	"context"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/hub/guard"
)

const (
	// lockEvery is how often it is looked whether somebody holds a fenced lock, until that was seen, and heldEvery from
	// then on.
	lockEvery, heldEvery = 10 * time.Second, time.Minute
	// lockTimeout bounds the looks of one turn.
	lockTimeout = 5 * time.Second
)

// LockState is what was seen of a fenced lock in a member that leads. It warns people, and decides nothing.
type LockState int

const (
	// LockUnseen: the member does not lead, or nothing is known yet.
	LockUnseen LockState = iota
	// LockHeld: somebody was seen to renew it.
	LockHeld
	// LockIdle: its Lease is there, but nobody has renewed it for a while.
	LockIdle
	// LockMissing: there is no such Lease, and nobody has renewed it for a while.
	LockMissing
)

// LockOf returns what was seen of the lock of a fence.
func (w *Worker) LockOf(f guard.Fence) LockState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.locks[f.Name()]
}

// lockLook is the result of the last look at a lock in a term.
type lockLook struct {
	state LockState
	// renewal is the one that the look has found. It is zero where nobody holds the lock.
	renewal renewal
	looked  bool
	// since is the boot reading at which the term was seen first, or at which the lock was last seen to be renewed.
	since time.Duration
	next  time.Duration // boot reading of the next look
}

// renewal is one of a lock, as its holder has noted it.
type renewal struct {
	holder string
	at     int64 // in microseconds, by the holder's clock
}

// watchLocks looks whether somebody holds the fenced locks of each namespace that the member leads, until ctx ends. In
// followers nobody holds them.
func (w *Worker) watchLocks(ctx context.Context) {
	looks := map[fencedTerm]lockLook{}
	for ; ctx.Err() == nil; pause(ctx, fenceLook) {
		var terms map[fencedTerm]guard.Fence
		if !w.leaving() && w.Hub.Serves(w.Member.Fleet) {
			var err error
			if terms, err = w.fencedTerms(ctx, guard.Fence.IsOfLock); err != nil {
				continue
			}
		}
		w.lookAtLocks(ctx, terms, looks)
		w.noteLocks(looks)
	}
}

// lookAtLocks looks at those that are due. Silence says nothing of a lock.
func (w *Worker) lookAtLocks(ctx context.Context, terms map[fencedTerm]guard.Fence, looks map[fencedTerm]lockLook) {
	maps.DeleteFunc(looks, func(t fencedTerm, _ lockLook) bool { return !has(terms, t) })
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for t, f := range terms {
		now := w.Clock.Now().Boot
		last := looks[t]
		if !has(looks, t) {
			last.since = now
		}
		if now < last.next {
			continue
		}
		lock, _ := f.Lock()
		found, err := w.Client.CoordinationV1().Leases(lock.Namespace).Get(ctx, lock.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			looks[t] = last.after(now, nil, lock.Patience())
		case err != nil:
			last.next = now + lockEvery
			looks[t] = last
		default:
			looks[t] = last.after(now, found, lock.Patience())
		}
	}
}

// after is the result of the next look, which finds the Lease of the lock, or nil. Clocks of members do not count: a lock is held if
// its holder has renewed it since the look before, as electors themselves see it.
func (l lockLook) after(now time.Duration, found *coordinationv1.Lease, patience time.Duration) lockLook {
	is := lockLook{state: l.state, renewal: renewalOf(found), looked: true, since: l.since, next: now + lockEvery}
	switch {
	case !l.looked:
	case is.renewal != l.renewal && is.renewal != renewal{}:
		is.state, is.since = LockHeld, now
	case now < l.since+patience:
	case found == nil:
		is.state = LockMissing
	default:
		is.state = LockIdle
	}
	if is.state == LockHeld {
		is.next = now + heldEvery
	}
	return is
}

// renewalOf is the last one of a lock that somebody holds.
func renewalOf(l *coordinationv1.Lease) (r renewal) {
	if l == nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil {
		return renewal{}
	}
	return renewal{*l.Spec.HolderIdentity, l.Spec.RenewTime.UnixMicro()}
}

// noteLocks notes what was seen of locks, and has the policies tell of news.
func (w *Worker) noteLocks(looks map[fencedTerm]lockLook) {
	states := map[string]LockState{}
	for t, l := range looks {
		if l.state != LockUnseen {
			states[t.fence] = l.state
		}
	}
	w.mu.Lock()
	news := !maps.Equal(w.locks, states)
	w.locks = states
	w.mu.Unlock()
	if news {
		w.Hub.FenceNews(w.Member.Key)
	}
}
