package publish

import (
	"math"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/election"
)

// What the Publisher and a member's API server do around a real syncer.

// read has a replica read the Lease of a member at the start of its tenure, as Publisher.ReadAll and the
// controller's fold do.
func (e *explorer) read(s *world, x, m int) *world {
	r := s.replicas[x]
	if r.tenure == nil || r.isRead[m] || !e.anyOrder && m+1 < e.sites && !r.isRead[m+1] {
		return nil
	}
	n := s.clone()
	r = n.change(x)
	r.isRead[m] = true
	if e.acknowledged && m == registrar {
		r.roll = newAcks()
		r.roll.skew = time.Duration(e.skew) * unit
		r.past = history{newestVersion: strconv.Itoa(s.sites[m].version), since: s.at(r.wrong).Boot}
	}
	obj := s.sites[m].copy
	if obj == nil {
		return e.idle(n, x)
	}
	l := *r.syncers[m]
	l.setKnown(obj)
	l.known.watched = true
	l.blocked()
	r.syncers[m] = &l
	if c := l.known.content; l.known.sealed {
		r.highest = max(r.highest, c.Epoch)
		if c.LeadsHere() && (r.standing == nil || c.Epoch > r.standing.Term.Epoch) {
			// No wall clock is stepped in these worlds, so it shows alone how long the Lease is live.
			r.standing = &election.FoundTerm{Cluster: siteNames[m], Term: c.Term, Boot: math.MaxInt64}
		}
		if c.RenewTime.After(r.right.doubt) {
			r.right.doubt = c.RenewTime
			r.tenure = r.right.tenure(x)
		}
	}
	return e.idle(n, x)
}

// work has a syncer send its next write, if it has one.
func (e *explorer) work(s *world, x, m int) *world {
	r := s.replicas[x]
	if r.tenure == nil || !r.isRead[m] || r.out[m] != nil {
		return nil
	}
	now := s.at(r.wrong)
	l, may := *r.syncers[m], e.mayWrite(s, r)
	switch {
	case e.broken.noDeadline:
		may = true
	case e.broken.stampAfterCheck:
		may = r.tenure.MayWrite(reading(s.now-2, r.wrong)) // two ticks before the renewTime is drawn
	}
	st := l.next(now, may, true)
	if st.action == idle || st.action == read {
		return nil
	}
	n := s.clone()
	r = n.change(x)
	r.syncers[m] = &l
	if st.promised > 0 {
		r.promise = enter(r.promise, l.want.Term.Epoch, st.reading, st, l.timings.Skew)
	}
	said, _ := wire.Read(st.lease)
	st.newestVersion = r.past.newestVersion
	r.out[m] = &posted{step: st, said: said, sent: s.now}
	if st.promised == 0 && st.revokes == 0 && !e.slowAnswers {
		return e.arrives(n, x, m)
	}
	return n
}

var exploredLeases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// idle has every syncer of a replica that has nothing to write say so, and read what it has to, as a Publisher does
// without delay.
func (e *explorer) idle(s *world, x int) *world {
	r := s.replicas[x]
	if r.tenure == nil {
		return s
	}
	may := e.mayWrite(s, r) || e.broken.noDeadline
	for m := range e.sites {
		if !r.isRead[m] || r.out[m] != nil {
			continue
		}
		l := *r.syncers[m]
		st := l.next(s.at(r.wrong), may, true)
		if st.action == read {
			obj, err := s.sites[m].copy, error(nil)
			if obj == nil {
				err = apierrors.NewNotFound(exploredLeases, "leasecast")
			}
			l.handleAnswer(st, obj, err)
			l.known.watched = obj != nil // by the watch, as soon as it is known
			again := l
			if again.next(s.at(r.wrong), may, true).action == idle {
				l = again
			}
		} else if st.action != idle {
			continue
		}
		r = s.change(x)
		r.syncers[m] = &l
	}
	return s
}

// arrives carries out a syncer's write.
func (e *explorer) arrives(s *world, x, m int) *world {
	w := s.replicas[x].out[m]
	if w == nil || w.settled {
		return nil
	}
	n := s.clone()
	settled := *w
	settled.settled = true
	settled.obj, settled.err = e.write(n, m, w.step)
	n.change(x).out[m] = &settled
	if e.slowAnswers || w.step.revokes != 0 {
		return n
	}
	return e.answers(n, x, m)
}

// write is a member's API server, with its compare-and-swap.
func (e *explorer) write(s *world, m int, st step) (*coordinationv1.Lease, error) {
	old := s.sites[m].copy
	same := old != nil && old.UID == st.lease.UID && old.ResourceVersion == st.lease.ResourceVersion
	switch {
	case st.action == create && old != nil:
		return nil, apierrors.NewAlreadyExists(exploredLeases, "leasecast")
	case st.action != create && old == nil:
		return nil, apierrors.NewNotFound(exploredLeases, "leasecast")
	case st.action != create && !same && !e.broken.noMemberSwap:
		return nil, apierrors.NewConflict(exploredLeases, "leasecast", errTimeout)
	case st.action == remove:
		panic("the exploration has no poisoned Leases")
	}
	c := s.changeSite(m)
	c.version++
	obj := *st.lease // what it points to is never changed
	obj.UID, obj.ResourceVersion = "Lease", strconv.Itoa(c.version)
	c.copy = &obj
	c.said, _ = wire.Read(&obj)
	c.seen = addSight(c.seen, c.said, e.sights)
	if c.late != nil && !e.alive(c, c.late) {
		c.late = nil // it can never be carried out any more
	}
	return &obj, nil
}

// alive reports whether a write can still be carried out.
func (e *explorer) alive(c *site, w *posted) bool {
	if c.copy == nil {
		return w.step.action == create
	}
	return w.step.action == update && (e.broken.noMemberSwap || w.step.lease.ResourceVersion == c.copy.ResourceVersion)
}

// answers settles a syncer's write.
func (e *explorer) answers(s *world, x, m int) *world {
	w := s.replicas[x].out[m]
	if w == nil || !w.settled {
		return nil
	}
	n := s.clone()
	r := n.change(x)
	e.handleAnswer(n, r, m, w.step, w.obj, w.err)
	if l := r.syncers[m]; w.err == nil && l.known.read {
		l.known.watched = true // the Lease is this state's own
	}
	r.out[m] = nil
	return e.idle(n, x)
}

// drop sends a write that promises nothing, and gets lost. The others are under way before they do.
func (e *explorer) drop(s *world, x, m int) *world {
	if e.slowAnswers || s.faults >= e.faults {
		return nil
	}
	e.slowAnswers = true
	n := e.work(s, x, m)
	e.slowAnswers = false
	if n == nil || n.replicas[x].out[m].step.promised > 0 {
		return nil
	}
	return e.lost(n, x, m)
}

// lost loses the answer to a write. The write may still arrive.
func (e *explorer) lost(s *world, x, m int) *world {
	w := s.replicas[x].out[m]
	if w == nil || s.faults >= e.faults {
		return nil
	}
	n := s.clone()
	e.leave(n, m, w)
	r := n.change(x)
	e.handleAnswer(n, r, m, w.step, nil, errTimeout)
	r.out[m] = nil
	n.faults++
	return e.idle(n, x)
}

// leave leaves a write to arrive late, if it can be carried out then.
func (e *explorer) leave(s *world, m int, w *posted) {
	if w == nil || w.settled {
		return
	}
	c := s.changeSite(m)
	if e.alive(c, w) {
		c.late = w
	}
}

// lateWrite carries out a write that nobody waits for any more.
func (e *explorer) lateWrite(s *world, m int) *world {
	w := s.sites[m].late
	if w == nil {
		return nil
	}
	n := s.clone()
	n.changeSite(m).late = nil
	_, _ = e.write(n, m, w.step)
	return n
}

// shows has a replica's watch show a Lease to a syncer that does not know it.
func (e *explorer) shows(s *world, x, m int) *world {
	r, obj := s.replicas[x], s.sites[m].copy
	if !e.watch || r.tenure == nil || !r.isRead[m] || obj == nil {
		return nil
	}
	if k := r.syncers[m].known; k.lease != nil && k.lease.ResourceVersion == obj.ResourceVersion {
		return nil
	}
	n := s.clone()
	r = n.change(x)
	l := *r.syncers[m]
	l.observe(obj)
	r.syncers[m] = &l
	return e.idle(n, x)
}
