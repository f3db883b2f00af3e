package controller

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard/locks"
)

// simLock is the fenced lock of worlds that have one. Its stop time is 4 s.
var simLock = v1alpha1.LockFence{
	Namespace: "stock", Name: "stock", LeaseDurationSeconds: 3, RenewDeadlineSeconds: 2, RetryPeriodSeconds: 1,
	RequestTimeoutSeconds: 1, ReleaseTimeoutSeconds: ptr.To[int32](0),
}

// locksWorld has a stock controller in each member, which knows nothing of Leases. Its API server lets it renew its lock
// as long as a reader there may act. So it works until the stop time after that.
var locksWorld = special{"locks are fenced", func(w *world) {
	w.stops = locks.Of(&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{simLock}})[0].StopTime()
}}

// outlived is a permit that another one has followed. An API server that is behind may go on by it.
type outlived struct {
	namespace string
	permit    lease.Permit
}

// outlives keeps what an API server may go on by.
func (r *reader) outlives(namespace string, before lease.Permit) {
	if r.w.stops > 0 && before.Epoch != 0 {
		r.outlived = append(r.outlived, outlived{namespace, before})
	}
}

// holdsLock reports whether the lock of a namespace may still be held in the reader's member.
func (r *reader) holdsLock(namespace string) (epoch int64, held bool) {
	now := r.host.read(r.w.now)
	admitted := lease.Reading{Wall: now.Wall.Add(-r.w.stops), Boot: now.Boot - r.w.stops}
	for _, o := range r.outlived {
		if o.namespace == namespace && o.permit.Holds(admitted) {
			return o.permit.Epoch, true
		}
	}
	for _, name := range leaseNames {
		if p := r.permits[namespace+"/"+name]; p.Holds(admitted) {
			return p.Epoch, true
		}
	}
	return 0, false
}

// checkLocks judges a member that may take its lock for a namespace now.
func (o *oracle) checkLocks(w *world, r *reader, namespace string, p lease.Permit) {
	if w.stops == time.Duration(0) {
		return
	}
	for _, other := range w.readers {
		if other.m == r.m || !other.alive {
			continue
		}
		if epoch, held := other.holdsLock(namespace); held {
			o.fail(w, "%s may hold the lock of %s in epoch %d, and %s still does in epoch %d", r.m.name, namespace, p.Epoch, other.m.name, epoch)
		}
	}
}
