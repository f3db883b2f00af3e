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
	// lockEvery is how often a fenced lock is checked for a holder until one was seen, and heldEvery from then on.
	lockEvery, heldEvery = 10 * time.Second, time.Minute
	// lockTimeout bounds the requests of one turn.
	lockTimeout = 5 * time.Second
)

// LockState is what was seen of a fenced lock in a member that leads. It is for warnings only, and affects no
// decision.
type LockState int

const (
	// LockUnseen: the member does not lead, or nothing is known yet.
	LockUnseen LockState = iota
	// LockHeld: a holder was seen to renew it.
	LockHeld
	// LockIdle: its Lease exists, but was not renewed for a while.
	LockIdle
	// LockMissing: its Lease does not exist, and was not renewed for a while.
	LockMissing
)

// LockOf returns the state of a fence's lock.
func (w *Worker) LockOf(f guard.Fence) LockState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.locks[f.Name()]
}

// lockLook is the result of the last request for a lock in a term.
type lockLook struct {
	state LockState
	// renewal is the lock's last renewal. It is zero where the lock has no holder.
	renewal renewal
	looked  bool
	// since is the boot reading at which the term was first seen, or at which the lock was last seen to be renewed.
	since time.Duration
	next  time.Duration // boot reading of the next request
}

// renewal is one renewal of a lock, as its holder wrote it.
type renewal struct {
	holder string
	at     int64 // in microseconds, by the holder's clock
}

// watchLocks checks whether the fenced locks of each namespace that the member leads have holders, until ctx ends.
// In followers they have none.
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

// lookAtLocks sends the requests that are due. Silence keeps a lock's state.
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

// after returns the next lockLook, given the lock's Lease, or nil where it does not exist. Clocks of members do not
// count: as for electors themselves, a lock is held if its holder has renewed it since the last request.
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

// renewalOf returns the last renewal of a held lock, or zero.
func renewalOf(l *coordinationv1.Lease) (r renewal) {
	if l == nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil {
		return renewal{}
	}
	return renewal{*l.Spec.HolderIdentity, l.Spec.RenewTime.UnixMicro()}
}

// noteLocks records the states of locks, and enqueues the policies' statuses if they changed.
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
