package publish

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/election"
)

// Two states are one if they differ by the time alone, by how long ago what is over was over, by which replica is
// which, or in numbers of versions that compare alike.

// key is a hash of what tells a state from others.
type key [2]uint64

// From how many ticks ago on an instant is just the past.
const (
	mattersAsNew = 2 // by no clock it is of this tick
)

// writer puts what it is given behind each other.
type writer struct {
	e         *explorer
	b         []byte
	s         *scene
	notBefore bool // what only people read matters
}

func (w *writer) int(n int64) { w.b = binary.AppendVarint(w.b, n) }

func (w *writer) bool(bs ...bool) {
	n := int64(0)
	for _, b := range bs {
		n <<= 1
		if b {
			n |= 1
		}
	}
	w.int(n)
}

// time writes an instant as seen from now. How long ago it was does not matter beyond so many ticks.
func (w *writer) time(t time.Time, matters int) {
	if t.IsZero() {
		w.int(1 << 30)
		return
	}
	d := t.Sub(origin) - time.Duration(w.s.now)*unit
	w.int(int64(max(d, -time.Duration(matters)*unit) / time.Microsecond))
}

func (w *writer) text(s string) {
	w.int(int64(len(s)))
	w.b = append(w.b, s...)
}

// term writes a term in a member. The stamp of a follower's copy is compared with nothing but what asked for a fresh
// one.
func (w *writer) term(t lease.Term, m int) {
	w.int(t.Epoch)
	w.text(t.Holder)
	if t.Holder == w.s.identity(m) {
		w.time(t.Renewed, w.e.d+2)
	} else {
		w.time(t.Renewed, mattersAsNew)
		w.bool(t.Renewed.Before(w.s.record.Since))
	}
	w.bool(t.Renewed.Sub(t.Acquired) < exploredRenew*unit/2) // whether the next renewal is the first
}

func (w *writer) record(r *election.Record) {
	w.text(string(r.Phase))
	w.text(r.Leader)
	w.text(r.Next)
	w.text(string(r.Reason))
	w.int(r.Epoch)
	w.int(int64(len(r.Heeded)))
	if r.Phase == election.Draining {
		w.time(r.Since, w.e.d+w.e.skew+2) // what a fresh copy is compared with
	}
	w.time(r.Acquired, mattersAsNew)
	if w.notBefore {
		w.time(r.NotBefore, w.e.d+w.e.skew+2)
	}
}

func (w *writer) ruling(r *ruling) {
	if r == nil {
		w.int(0)
		return
	}
	w.int(1)
	w.int(int64(w.s.now - r.sent))
	w.bool(r.base == w.s.version, r.grants, r.settled, r.done)
	w.record(r.record)
}

func (w *writer) posted(p *posted, m int) {
	if p == nil {
		w.int(0)
		return
	}
	w.int(int64(p.step.action) + 1)
	w.int(int64(w.s.now - p.sent))
	c := w.s.sites[m]
	w.bool(p.settled, p.err == nil, p.step.action == create && c.copy == nil,
		c.copy != nil && p.step.lease.ResourceVersion == c.copy.ResourceVersion,
		p.obj != nil && c.copy != nil && p.obj.ResourceVersion == c.copy.ResourceVersion)
	w.copy(p.step.lease, m)
	w.bool(p.step.fresh.IsZero(), p.step.fresh.Equal(w.s.record.Since))
}

func (w *writer) copy(obj *coordinationv1.Lease, m int) {
	c, _ := wire.Read(obj)
	w.term(c.Term, m)
}

func (w *writer) lane(r *replica, m int) {
	l, obj := r.lanes[m], w.s.sites[m].copy
	w.int(int64(l.want.Role))
	w.int(l.want.Term.Epoch)
	w.text(l.want.Term.Holder)
	w.time(l.want.Term.Acquired, mattersAsNew)
	w.bool(l.want.Fresh.IsZero(), l.want.Fresh.Equal(w.s.record.Since), l.facts.Fresh.Equal(l.want.Fresh),
		l.known.copy.Renewed.Before(l.want.Fresh))
	w.bool(l.want.First, l.known.read, l.known.lease != nil, l.known.shown,
		obj != nil && l.known.lease != nil && l.known.lease.ResourceVersion == obj.ResourceVersion,
		r.out[m] != nil && r.out[m].step.seen == l.seen,
		l.facts.InPlace, l.facts.Lost, l.facts.Refused, l.facts.Fresh.Equal(w.s.record.Since), !l.facts.Fresh.IsZero())
	if l.known.lease != nil {
		w.term(l.known.copy.Term, m)
	}
	w.int(l.stampedEpoch)
	w.term(l.stamped, m)
	w.posted(r.out[m], m)
}

func (w *writer) replica(e *explorer, x int) {
	r := w.s.replicas[x]
	w.int(int64(r.wrong))
	if r.tenure == nil {
		return
	}
	b := w.s.election
	w.bool(b.holder == x && b.transitions == r.right.transitions && !b.released, r.stalled)
	started, inherited := r.tenure.Started()
	w.time(started.Wall, w.e.d+w.e.skew+2)
	w.time(inherited, w.e.d+w.e.skew+2)
	w.time(r.right.stamp.Wall, mattersAsNew+exploredH)
	w.time(r.promise.Until, w.e.skew+2)
	w.bool(r.promise.Settled)
	w.int(r.promise.Epoch)
	w.int(r.granted)
	w.int(r.highest)
	if r.standing == nil {
		w.int(0)
	} else {
		w.text(r.standing.Cluster)
		w.term(r.standing.Term, slices.Index(siteNames[:], r.standing.Cluster))
	}
	for m := range e.sites {
		w.bool(r.isRead[m])
		w.lane(r, m)
	}
	w.ruling(r.ruling)
}

// appendSights writes what readers of a member may be shown.
func (e *explorer) appendSights(b []byte, s *scene, seen []sight) []byte {
	w := writer{e: e, b: b, s: s}
	for _, c := range seen {
		w.int(c.Epoch)
		w.bool(c.LeadsHere())
		if c.LeadsHere() {
			w.time(c.Renewed, w.e.d+2)
		}
	}
	return w.b
}

// key hashes what tells a state from others. Replicas are sorted, so that it is the same whoever is called A.
func (e *explorer) key(s *scene) key {
	w := writer{e: e, b: e.buffer[:0], s: s, notBefore: e.broken.boundTrusted}
	w.record(s.record)
	w.ruling(s.late)
	w.int(s.acted)
	w.int(int64(s.actor))
	w.int(int64(s.faults))
	w.time(s.election.renewed, w.e.d+w.e.skew+2)
	w.bool(s.election.released, s.election.holder < 0)
	w.int(int64(max(s.election.changed-s.now, -exploredH)))
	for m := range e.sites {
		c := s.sites[m]
		w.bool(c.copy != nil)
		w.b = e.appendSights(w.b, s, c.seen)
		w.posted(c.late, m)
		if c.copy != nil {
			w.copy(c.copy, m)
		}
	}
	var ends [replicas + 1]int
	ends[0] = len(w.b)
	for x := range replicas {
		w.replica(e, x)
		ends[x+1] = len(w.b)
	}
	e.buffer = w.b
	head, one, two := w.b[:ends[0]], w.b[ends[0]:ends[1]], w.b[ends[1]:ends[2]]
	if bytes.Compare(one, two) > 0 {
		one, two = two, one
	}
	var k key
	for i, seed := range e.seeds {
		var h maphash.Hash
		h.SetSeed(seed)
		_, _ = h.Write(head)
		_, _ = h.Write(one)
		_, _ = h.Write(two)
		k[i] = h.Sum64()
	}
	return k
}
