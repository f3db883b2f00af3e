package publish

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"time"

	"github.com/leasecast/leasecast/hub/election"
)

// Two states are one if everything that can happen from now on happens in the same way. So an instant counts as seen
// from now, and only for as long as any comparison still looks at it: what ages past that is "past". What no
// comparison looks at, as when a term was acquired, is left out; so is which replica is which, and numbers of versions
// that compare alike. Each line below says why what it leaves out cannot matter, and
// TestNothingIsLostByMerging compares with an exploration that merges by the time alone.

// key is a hash of what distinguishes a state from others.
type key [2]uint64

// writer puts what it is given behind each other.
type writer struct {
	e      *explorer
	b      []byte
	s      *world
	margin int // by how many ticks longer an instant counts than it has to
}

// exactly is a margin with which instants never become just past, at least not within what is explored.
const exactly = 1000

// brokenMargin is the margin where a rule is broken: what is broken may look at what is long past.
const brokenMargin = 2

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
	w.int(int64(max(d, -time.Duration(matters+w.margin)*unit) / time.Microsecond))
}

func (w *writer) text(s string) {
	w.int(int64(len(s)))
	w.b = append(w.b, s...)
}

// epoch writes an epoch that only matters if it is the recorded one, or a newer one. The record's epoch never falls;
// only a slow answer shows an earlier record.
func (w *writer) epoch(n int64) {
	if n < w.s.record.Epoch && !w.e.slowAnswers && w.margin < exactly {
		n = 0
	}
	w.int(n)
}

// said writes what a Lease in a member says. A leader's renewTime is compared with now: the Lease is live for D, by the
// slowest clock. No clock is behind true time here, so none finds it live when it is D old. A follower's renewTime is
// compared with what asks for a new Lease: with what has asked, and with what is still to come, which no clock
// dates before now.
func (w *writer) said(c sight) {
	w.int(c.Epoch)
	w.text(c.Holder)
	if c.LeadsHere() {
		w.time(c.RenewTime, w.e.d)
		return
	}
	w.time(c.RenewTime, 1)
	w.bool(w.stale(c, w.s.record.Since), w.s.late != nil && w.stale(c, w.s.late.record.Since))
	for _, r := range w.s.replicas {
		w.bool(r.ruling != nil && w.stale(c, r.ruling.record.Since))
	}
}

func (w *writer) stale(c sight, fresh time.Time) bool { return c.RenewTime.Before(fresh) }

// record leaves out when the term was acquired, which nothing is compared with. A new Lease is compared with Since:
// those that are still to be written have a later renewTime, once Since is in the past. NotBefore is compared with
// the bound of whoever decides next, and only while that bound lies ahead.
func (w *writer) record(r *election.Record) {
	w.text(string(r.State))
	w.text(r.Leader)
	w.text(r.Next)
	w.text(string(r.Reason))
	w.int(r.Epoch)
	w.int(r.Revoked)
	w.int(int64(len(r.Observed)))
	if r.State == election.Ending {
		w.time(r.Since, 1)
	}
	w.time(r.NotBefore, 0)
}

// ruling is a write of the record: late, if nobody waits for it, and then it may arrive at any time.
func (w *writer) ruling(r *ruling, late bool) {
	if r == nil {
		w.int(0)
		return
	}
	w.int(1)
	if !late {
		w.int(int64(w.s.now - r.sent))
	}
	w.bool(r.base == w.s.version, r.grants, r.settled, r.done, r.record.Since.Equal(w.s.record.Since))
	w.record(r.record)
}

// posted is a write of a syncer: late, if nobody waits for it.
func (w *writer) posted(p *posted, m int, late bool) {
	if p == nil {
		w.int(0)
		return
	}
	w.int(int64(p.step.action) + 1)
	if !late {
		w.int(int64(w.s.now - p.sent))
	}
	c := w.s.sites[m]
	w.bool(p.settled, p.err == nil, p.step.action == create && c.copy == nil,
		c.copy != nil && p.step.lease.ResourceVersion == c.copy.ResourceVersion,
		p.obj != nil && c.copy != nil && p.obj.ResourceVersion == c.copy.ResourceVersion)
	w.said(p.said)
	w.bool(p.step.minRenewTime.IsZero(), p.step.revokes != 0)
	w.fresh(p.step.minRenewTime)
}

// fresh writes which records have asked for a Lease that is as fresh as this.
func (w *writer) fresh(t time.Time) {
	w.bool(t.Equal(w.s.record.Since), w.s.late != nil && t.Equal(w.s.late.record.Since))
	for _, r := range w.s.replicas {
		w.bool(r.ruling != nil && t.Equal(r.ruling.record.Since))
	}
}

// syncer leaves out of what the syncer knows what a read is about to replace, and what it has renewed in terms before
// the one that it wants: the epoch that is wanted never falls.
func (w *writer) syncer(r *replica, m int) {
	l, c := r.syncers[m], w.s.sites[m]
	w.int(int64(l.want.Role))
	w.int(l.want.Term.Epoch)
	w.text(l.want.Term.Holder)
	w.time(l.want.MinRenewTime, 1)
	w.fresh(l.want.MinRenewTime)
	w.fresh(l.status.MinRenewTime)
	w.bool(l.want.MinRenewTime.IsZero(), l.status.MinRenewTime.IsZero(), l.status.MinRenewTime.Equal(l.want.MinRenewTime),
		w.stale(l.known.content, l.want.MinRenewTime),
		c.copy != nil && w.stale(c.said, l.want.MinRenewTime), c.late != nil && w.stale(c.late.said, l.want.MinRenewTime),
		r.out[m] != nil && w.stale(r.out[m].said, l.want.MinRenewTime))
	w.bool(l.want.First, l.known.read, l.known.lease != nil, l.known.watched,
		c.copy != nil && l.known.lease != nil && l.known.lease.ResourceVersion == c.copy.ResourceVersion,
		r.out[m] != nil && r.out[m].step.observations == l.observations,
		l.status.InPlace, l.status.Lost, l.status.Refused, l.status.Failing != "", l.writeTried)
	if l.known.lease != nil && (l.known.read || w.e.watch || w.margin >= exactly) {
		w.said(l.known.content)
	}
	if l.sent.Epoch == l.want.Term.Epoch || w.margin >= exactly {
		w.int(l.sent.Epoch)
		w.time(l.sent.RenewTime, w.e.d)
	}
	w.posted(r.out[m], m, false)
}

// replica writes what a process knows. The election's renewTime counts until h after it. What was inherited counts
// until D and ε after it. When the tenure began matters to a hub that waits for members that it has not read, and
// otherwise only as the first of its renewTimes. What it has promised counts until ε after it.
func (w *writer) replica(e *explorer, x int) {
	r := w.s.replicas[x]
	w.int(int64(r.wrong))
	b := w.s.election
	w.bool(b.holder == x, r.tenure != nil)
	if r.tenure == nil {
		return
	}
	w.bool(b.holder == x && b.transitions == r.right.transitions && !b.released, r.stalled)
	started, inherited := r.tenure.Started()
	unread := false
	for m := range e.sites {
		unread = unread || !r.isRead[m]
	}
	if unread || w.margin > 0 {
		w.time(started.Wall, e.d)
	}
	w.time(inherited, e.d+e.skew)
	stamp := r.right.won.Wall
	if r.right.stamp.Wall.After(stamp) {
		stamp = r.right.stamp.Wall
	}
	w.time(stamp, exploredH)
	w.time(r.promise.Until, e.skew)
	w.epoch(r.promise.Epoch)
	w.epoch(r.granted)
	w.int(max(r.highest, r.granted, w.s.record.Epoch))
	if st := r.standing; st != nil && (st.Term.Live(w.s.at(0).Wall) || w.margin > 0) {
		w.text(st.Cluster)
		w.int(st.Term.Epoch)
		w.time(st.Term.RenewTime, e.d)
	} else {
		w.int(0)
	}
	for m := range e.sites {
		w.bool(r.isRead[m])
		w.syncer(r, m)
	}
	w.ruling(r.ruling, false)
	if e.acknowledged {
		w.roll(r)
	}
}

// appendSights writes what readers of a member may be shown.
func (e *explorer) appendSights(b []byte, s *world, seen []sight) []byte {
	w := writer{e: e, b: b, s: s, margin: e.margin()}
	for _, c := range seen {
		w.int(c.Epoch)
		w.bool(c.LeadsHere())
		if c.LeadsHere() {
			w.time(c.RenewTime, e.d+visibleFor)
		}
	}
	return w.b
}

// margin is how much longer than it has to an instant counts.
func (e *explorer) margin() int {
	switch {
	case e.exact:
		return exactly
	case e.broken != breakage{}:
		return brokenMargin
	default:
		return 0
	}
}

// key hashes what distinguishes a state from others. Replicas are sorted, so that it is the same whoever is called A.
func (e *explorer) key(s *world) key {
	w := writer{e: e, b: e.buffer[:0], s: s, margin: e.margin()}
	w.record(s.record)
	w.ruling(s.late, true)
	w.int(s.acted)
	w.int(int64(s.actor))
	w.int(int64(s.faults))
	w.election()
	w.registered()
	for m := range e.sites {
		c := s.sites[m]
		w.bool(c.copy != nil)
		w.b = e.appendSights(w.b, s, c.seen)
		w.posted(c.late, m, true)
		if c.copy != nil {
			w.said(c.said)
			w.bool(c.said.RenewTime.After(s.election.latest()))
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

// election writes the hub's election. The next tenure inherits its renewTime, and h more unless it was released, and
// counts D and ε from there.
func (w *writer) election() {
	b := w.s.election
	w.time(b.latest(), w.e.d+w.e.skew)
	w.bool(b.released, b.holder < 0)
	w.int(int64(max(b.changed-w.s.now, -exploredH)))
}

// latest is when the tenure of this ballot can have renewed last.
func (b ballot) latest() time.Time {
	if b.released {
		return b.renewed
	}
	return b.renewed.Add(exploredH * unit)
}
