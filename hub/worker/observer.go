package worker

import (
	"context"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/guard"
)

const (
	// lockEvery is how often a fenced lock is read until its holder was seen to renew it, and heldEvery from then on.
	lockEvery, heldEvery = 10 * time.Second, time.Minute
	// readTimeout bounds the reads of one turn.
	readTimeout = 5 * time.Second
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

// observer reads what the fences of a member are about, and wakes its CronJobs when a term begins.
type observer struct {
	Options
	locks   map[fencedTerm]lockLook
	wakings map[fencedTerm]waking

	mu         sync.Mutex
	lockStates map[string]LockState // by the name of the fence; no entry: nothing was seen
}

func newObserver(o Options) *observer {
	return &observer{Options: o, locks: map[fencedTerm]lockLook{}, wakings: map[fencedTerm]waking{}}
}

// LockOf returns the state of a fence's lock.
func (w *Worker) LockOf(f guard.Fence) LockState {
	w.observer.mu.Lock()
	defer w.observer.mu.Unlock()
	return w.observer.lockStates[f.Name()]
}

// observe is one turn of the observer.
func (w *Worker) observe(ctx context.Context) {
	w.observer.turn(ctx, !w.leaving() && w.mayWrite())
}

// turn sends the requests that are due. Silence keeps a state.
func (o *observer) turn(ctx context.Context, serves bool) {
	var fences []guard.Fence
	var terms map[fencedTerm]guard.Fence
	if serves {
		var err error
		if fences, _, err = o.Hub.Fences(ctx, o.Member.Key); err != nil {
			return
		}
	}
	if len(fences) > 0 {
		leases, namespaces, err := cached(ctx, o.Cluster.GetCache(), fences)
		if err != nil {
			return
		}
		terms = termsOf(fences, leases, namespaces, o.Clock.Now().Wall)
	}
	o.wakeTerms(ctx, terms)
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	o.readLocks(ctx, terms)
	o.publish()
}

// publish makes the states readable, and enqueues the policies' statuses if they changed.
func (o *observer) publish() {
	locks := map[string]LockState{}
	for t, l := range o.locks {
		locks[t.fence] = l.state
	}
	maps.DeleteFunc(locks, func(_ string, s LockState) bool { return s == LockUnseen })
	o.mu.Lock()
	changed := !maps.Equal(o.lockStates, locks)
	o.lockStates = locks
	o.mu.Unlock()
	if changed {
		o.Hub.FencesChanged(o.Member.Key)
	}
}

// fencedTerm is a term of this member, in a namespace that a fence covers.
type fencedTerm struct {
	fence, namespace string
	began            int64 // in microseconds, the Lease's acquireTime
}

// termsOf returns the terms that these Leases show at an instant, each with its fence. A term that has not begun is
// left out: waking its CronJobs early would put them to sleep until then.
func termsOf(fences []guard.Fence, leases []coordinationv1.Lease, namespaces []corev1.Namespace,
	now time.Time) map[fencedTerm]guard.Fence {
	var live []lease.Content
	in := map[string]*corev1.Namespace{}
	for i := range leases {
		if l, _ := wire.Read(&leases[i]); l.LeadsHere() && l.Live(now) && !l.AcquireTime.After(now) {
			live, in[l.Namespace] = append(live, l), nil
		}
	}
	for i := range namespaces {
		if _, leads := in[namespaces[i].Name]; leads {
			in[namespaces[i].Name] = &namespaces[i]
		}
	}
	terms := map[fencedTerm]guard.Fence{}
	for _, l := range live {
		ns := in[l.Namespace]
		if ns == nil {
			continue
		}
		for _, f := range fences {
			if l.Name == f.LeaseName() && f.Selects(l.Namespace, ns.Labels) {
				terms[fencedTerm{f.Name(), l.Namespace, l.AcquireTime.UnixMicro()}] = f
			}
		}
	}
	return terms
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

// readLocks reads the fenced locks of each namespace that the member leads. In followers they have no holders.
func (o *observer) readLocks(ctx context.Context, terms map[fencedTerm]guard.Fence) {
	maps.DeleteFunc(o.locks, func(t fencedTerm, _ lockLook) bool { return !has(terms, t) })
	for t, f := range terms {
		lock, isLock := f.Lock()
		last, known := o.locks[t]
		now := o.Clock.Now().Boot
		if !isLock || now < last.next {
			continue
		}
		if !known {
			last.since = now
		}
		found, err := o.Client.CoordinationV1().Leases(lock.Namespace).Get(ctx, lock.Name, metav1.GetOptions{})
		last.next = now + lockEvery
		switch {
		case apierrors.IsNotFound(err):
			last = last.after(now, nil, lock.Patience())
		case err == nil:
			last = last.after(now, found, lock.Patience())
		}
		o.locks[t] = last
	}
}

// after returns the next lockLook, given the lock's Lease, or nil where it does not exist. Clocks of members do not
// count: as for electors themselves, a lock is held if its holder has renewed it since the last request.
func (l lockLook) after(now time.Duration, found *coordinationv1.Lease, patience time.Duration) lockLook {
	is := lockLook{state: l.state, renewal: renewalOf(found), looked: true, since: l.since, next: l.next}
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

func has[K comparable, V any](m map[K]V, key K) bool {
	_, ok := m[key]
	return ok
}
