package publish

import (
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
)

// acks tracks the registered readers of a member, and which of them have not released a revoked term yet. It is not
// safe for concurrent use.
//
// Only a consistent list that was begun after the revocation shows who has to release the term. A release in a
// registration counts wherever it comes from, and however late, because a release is final.
type acks struct {
	registrations map[types.UID]*registration
	questions     map[string]*question // by namespace
	asked         int                  // questions asked so far
	skew          time.Duration        // the largest ε of any assignment, or zero if none is known
	bytes         int                  // what the registrations take
	// full: the member's registrations exceed a bound. Some are not known, so no answer of readers counts.
	full bool
}

// registration is a reader's registration as it was last seen.
type registration struct {
	lease      *coordinationv1.Lease // its name, version and times
	reader     lease.Registration
	bytes      int
	unreadable bool // it is invalid: such a reader has never released anything
	future     bool // it was confirmed in the future: that time is ignored
	// missing: a list did not show it, and no watch showed its end. The process may be alive.
	missing bool
	// since is when this version was first seen or, if it is missing, first missed.
	since lease.Reading
}

// question asks whether all readers have released an epoch.
type question struct {
	lease  types.NamespacedName
	epoch  int64
	number int
	// waiting are the readers that have not released it; nil before a list has shown the readers. While an answer
	// counts, all of them are known.
	waiting      map[types.UID]bool
	unanswerable bool // no answer of readers counts any more
	released     bool // all readers have released it, which is final
}

func newAcks() acks {
	return acks{registrations: map[types.UID]*registration{}, questions: map[string]*question{}}
}

// ask starts to ask whether the readers have released the term that a Lease named.
func (r *acks) ask(key types.NamespacedName, epoch int64) {
	r.asked++
	r.questions[key.Namespace] = &question{lease: key, epoch: epoch, number: r.asked}
}

// cancel ends the question about a Lease, and returns the names of the readers that have not answered. It returns nil
// if no answer counted.
func (r *acks) cancel(key types.NamespacedName) (waiting []string) {
	q := r.questions[key.Namespace]
	if q == nil || q.lease != key {
		return nil
	}
	delete(r.questions, key.Namespace)
	if q.unanswerable {
		return nil
	}
	for uid := range q.waiting {
		e := r.registrations[uid]
		waiting = append(waiting, e.lease.Namespace+"/"+e.lease.Name)
	}
	slices.Sort(waiting)
	return waiting
}

// unanswered reports whether a question may still be answered.
func (r *acks) unanswered() bool {
	for _, q := range r.questions {
		if !q.unanswerable && !q.released {
			return true
		}
	}
	return false
}

// observe records a registration from a watch. It ignores a version that is older than the known one, or equal to
// it.
func (r *acks) observe(obj *coordinationv1.Lease, now lease.Reading) {
	if e := r.registrations[obj.UID]; e != nil && !older(e.lease.ResourceVersion, obj.ResourceVersion) {
		return
	}
	r.put(obj, now)
}

// contradicts reports whether a list shows a known version with different content. Then the member's etcd was
// restored, and has used that version a second time.
func (r *acks) contradicts(items []coordinationv1.Lease) bool {
	return slices.ContainsFunc(items, func(obj coordinationv1.Lease) bool {
		e := r.registrations[obj.UID]
		return e != nil && e.lease.ResourceVersion == obj.ResourceVersion &&
			!e.equals(newRegistration(&obj, lease.Reading{}, r.slack()))
	})
}

// put records a version of a registration as the present one.
func (r *acks) put(obj *coordinationv1.Lease, now lease.Reading) {
	is := newRegistration(obj, now, r.slack())
	if e := r.registrations[obj.UID]; e != nil && e.lease.ResourceVersion == obj.ResourceVersion &&
		!e.missing && e.equals(is) {
		return
	}
	r.store(is)
}

// gone records the end of a registration. Its finalizer was removed by a reader that had stopped, or because the
// reader must have stopped.
func (r *acks) gone(uid types.UID) {
	r.drop(uid)
	for _, q := range r.questions {
		delete(q.waiting, uid)
	}
}

// observeList records a consistent list of all registrations, with its version. asked is how many questions had
// been asked when the list was begun. A registration newer than the list came by a watch.
func (r *acks) observeList(items []coordinationv1.Lease, version string, asked int, now lease.Reading) {
	r.full = false
	shown := map[types.UID]bool{}
	for i := range items {
		obj := &items[i]
		shown[obj.UID] = true
		if e := r.registrations[obj.UID]; e == nil || !older(version, e.lease.ResourceVersion) {
			r.put(obj, now)
		}
	}
	for uid, e := range r.registrations {
		if !shown[uid] && !e.missing && !older(version, e.lease.ResourceVersion) {
			e.missing, e.since = true, now
		}
	}
	for namespace, q := range r.questions {
		if q.number <= asked && q.waiting == nil {
			q.waiting = r.readersOf(namespace)
			q.unanswerable = len(q.waiting) == 0 || r.full // an empty or truncated list decides nothing
		}
	}
}

// observePart records some registrations of a member that has more than are kept. The others are not known.
func (r *acks) observePart(items []coordinationv1.Lease, now lease.Reading) {
	for i := range items {
		r.observe(&items[i], now)
	}
	r.full = true
}

// readersOf returns the readers that may act in a namespace.
func (r *acks) readersOf(namespace string) map[types.UID]bool {
	f := map[types.UID]bool{}
	for uid, e := range r.registrations {
		if e.reader.Follows(namespace) {
			f[uid] = true
		}
	}
	return f
}

// answered returns the namespaces whose questions all readers have answered since it was last called.
func (r *acks) answered() (namespaces []string) {
	for _, namespace := range slices.Sorted(maps.Keys(r.questions)) {
		q := r.questions[namespace]
		if q.unanswerable = q.unanswerable || r.full; q.released || q.unanswerable || q.waiting == nil {
			continue
		}
		for uid := range q.waiting {
			// No Lease has shown readers a later epoch, so a reader that released a later one has not acted.
			if released, ok := r.registrations[uid].reader.Released[namespace]; ok && released == q.epoch {
				delete(q.waiting, uid)
			}
		}
		if len(q.waiting) == 0 {
			q.released = true
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces
}
