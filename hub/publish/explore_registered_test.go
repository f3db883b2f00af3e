package publish

import (
	"maps"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
)

// The acknowledged handover. Two readers may be in the member that leads first: one that has registered and follows
// the leader's Lease since long, and one that starts at any time. They use the real lease.Reader and the real
// registrations; the hub's side is the real Readers and what the real Publisher does with them. Each of them does any
// of its next steps at any time, or none, so that one that died needs no step of its own: what it could still do is
// looked at too.
//
// A reader counts as acting from when it sees a Lease that lets it, until its permit ends or it has said that it
// released the term: what it has under way when it sees the revocation goes on until then. Its clock is the slowest
// that there may be, with which it acts for longest.
//
// What is left out: registrations do not expire, and nobody deletes them.

// registrar is the member in which readers register: the first leader.
const registrar = 0

const (
	settledReader = iota // registered, and follows the Lease since long
	newcomer
	readers
)

// reader is a process that reads the Leases of its member.
type reader struct {
	rule     lease.Reader
	permit   lease.Permit // by the last Lease that let it act, unless it has released that
	acting   sight        // that Lease
	saw      sight        // the last Lease that it saw
	seen     string       // and its version
	released int64
	obj      *coordinationv1.Lease // its registration; nil: none
}

// listing is a list of registrations that is under way.
type listing struct {
	items   []coordinationv1.Lease
	version string
	asked   int // how many questions there were when it was begun
}

// withReaders is a settled world in which readers register, and nothing is in doubt any more.
func withReaders(e *explorer) *world {
	s := inOrder(e)
	s.change(0).past.since = 0
	rule := lease.Reader{Skew: time.Duration(e.skew) * unit}
	r := &reader{rule: rule, released: e.firstEpoch - 1}
	s.readers[settledReader], s.readers[newcomer] = r, &reader{rule: rule}
	e.register(s, settledReader, r)
	return e.sees(s, settledReader)
}

// acknowledging is a scope in which readers register and the leader has to go.
func acknowledging(s *scope) {
	s.acknowledged, s.start, s.terms, s.ticks = true, withReaders, 3, afterAnyTick
	s.without = append(s.without, decidesFit)
}

// noNewcomer leaves out the reader that starts at any time.
func noNewcomer(s *scope) { s.without = append(s.without, registers) }

// changeReader returns a copy of a reader to be changed.
func (s *world) changeReader(i int) *reader {
	r := *s.readers[i]
	s.readers[i] = &r
	return &r
}

// register writes the registration of a reader.
func (e *explorer) register(s *world, i int, r *reader) {
	c := s.changeSite(registrar)
	c.version++
	name := "reader-" + strconv.Itoa(i)
	r.obj = &coordinationv1.Lease{}
	r.obj.Name, r.obj.Namespace, r.obj.UID, r.obj.ResourceVersion = name, "ns", types.UID(name), strconv.Itoa(c.version)
	must(wire.WriteRegistration(lease.Registration{
		Identity: name, Namespaces: []string{"ns"}, Confirmed: s.at(0).Wall, Duration: time.Duration(e.d) * unit,
		Released: map[string]int64{"ns": r.released}, Account: name,
	}, r.obj))
}

// registers has a newcomer register, before it trusts any Lease.
func (e *explorer) registers(s *world, i int) *world {
	if s.readers[i] == nil || s.readers[i].obj != nil {
		return nil
	}
	n := s.clone()
	e.register(n, i, n.changeReader(i))
	return n
}

// sees has a reader see the Lease: by the consistent read after it has registered, or by its watch.
func (e *explorer) sees(s *world, i int) *world {
	r, c := s.readers[i], s.sites[registrar]
	if r == nil || r.obj == nil && !e.broken.trustsUnregistered || c.copy == nil || r.seen == c.copy.ResourceVersion {
		return nil
	}
	return e.looks(s, i, c.said, c.copy.ResourceVersion)
}

// seesOld has a reader that has just registered see a Lease of before, as from a cache.
func (e *explorer) seesOld(s *world, i int) *world {
	r, c := s.readers[i], s.sites[registrar]
	if !e.broken.readsFromCache || r == nil || r.obj == nil || r.seen != "" || len(c.seen) < 2 {
		return nil
	}
	return e.looks(s, i, c.seen[0], "old")
}

func (e *explorer) looks(s *world, i int, c sight, version string) *world {
	n := s.clone()
	r := n.changeReader(i)
	r.saw, r.seen = c, version
	if p := r.rule.Observe(c, s.at(0)); p.Holds(s.at(0)) {
		r.permit, r.acting = p, c
	}
	return n
}

// frees has a reader that has stopped say so.
func (e *explorer) frees(s *world, i int) *world {
	r := s.readers[i]
	if r == nil || r.obj == nil {
		return nil
	}
	epoch, ok := r.rule.Over()
	if !ok || epoch <= r.released {
		return nil
	}
	n := s.clone()
	r = n.changeReader(i)
	r.released = epoch
	if !e.broken.releasesFirst {
		r.permit, r.acting = lease.Permit{}, sight{}
	}
	e.register(n, i, r)
	return n
}

// registeredActs says in which epochs the readers that there are may act.
func (e *explorer) registeredActs(s *world) (a acts) {
	for _, r := range s.readers {
		if r != nil && r.permit.Holds(s.at(0)) {
			a.in(r.permit.Epoch)
		}
	}
	return a
}

// lists has a replica begin to list the registrations.
func (e *explorer) lists(s *world, x int) *world {
	r := s.replicas[x]
	if !e.acknowledged || r.tenure == nil || !r.isRead[registrar] || r.listing != nil || !e.asks(s, r) {
		return nil
	}
	n := s.clone()
	l := &listing{version: strconv.Itoa(s.sites[registrar].version), asked: r.roll.asked}
	for _, rd := range s.readers {
		if rd.obj != nil {
			l.items = append(l.items, *rd.obj)
		}
	}
	n.change(x).listing = l
	return n
}

// asks reports whether a list can show a replica anything: while it revokes, and while it waits for what it has not
// heard yet.
func (e *explorer) asks(s *world, r *replica) bool {
	w, q := r.out[registrar], r.roll.questions["ns"]
	switch {
	case w != nil && w.step.revokes != 0:
		return true
	case q == nil || q.unanswerable || q.released:
		return false
	case q.waiting == nil:
		return true
	}
	for _, rd := range s.readers {
		if rd.obj != nil {
			if known := r.roll.registrations[rd.obj.UID]; known == nil || known.lease.ResourceVersion != rd.obj.ResourceVersion {
				return true
			}
		}
	}
	return false
}

// listed has a replica hear of its list.
func (e *explorer) listed(s *world, x int) *world {
	if s.replicas[x].listing == nil {
		return nil
	}
	n := s.clone()
	r := n.change(x)
	l := r.listing
	r.listing = nil
	if e.broken.listBeforeRevoke {
		l = &listing{items: l.items, version: l.version, asked: r.roll.asked}
	}
	r.roll = r.roll.clone()
	r.past.observe(l.version)
	r.roll.observeList(l.items, l.version, l.asked, s.at(r.wrong))
	r.roll.answered()
	return e.idle(n, x)
}

// explorationKey is the one Lease in a member.
var explorationKey = types.NamespacedName{Namespace: "ns", Name: "leasecast"}

// handleAnswer hands an answer to a syncer, as the Publisher does.
func (e *explorer) handleAnswer(s *world, r *replica, m int, st step, obj *coordinationv1.Lease, err error) {
	l := *r.syncers[m]
	r.syncers[m] = &l
	if !e.acknowledged || m != registrar {
		l.handleAnswer(st, obj, err)
		return
	}
	o := Options{
		Key: testKey, Clock: &fixedClock{s.at(r.wrong)}, Queue: nowhere{}, Changed: func(string) {}, Log: logr.Discard(),
	}
	p := &Publisher{Options: o, syncers: syncers{}, Readers: &Readers{Options: o, acks: r.roll.clone(), history: r.past}}
	p.syncers.add(&l)
	p.handleAnswer(explorationKey, st, obj, err)
	r.roll, r.past = p.Readers.acks, p.Readers.history
	if e.broken.askAnyway && st.revokes != 0 && outcomeOf(err) == ambiguous {
		r.roll.ask(explorationKey, st.revokes)
	}
	if q := r.roll.questions["ns"]; q != nil && e.broken.anyRelease && q.epoch == s.record.Revoked {
		q.epoch--
	}
}

// released is what all readers have released, as Readers say it.
func (r *replica) released() int64 { return (&Readers{acks: r.roll}).released(explorationKey) }

// hasReleased says what the controller says of the recorded term.
func (e *explorer) hasReleased(s *world, r *replica) bool {
	switch {
	case !e.acknowledged || s.record.Revoked == 0:
		return false
	case e.broken.noRelease:
		return true
	case e.broken.newTenureCounts && s.readers[settledReader].released >= s.record.Revoked:
		return true // as a cache may say that does not know the newcomer yet
	case e.broken.anyRelease:
		return r.released() != 0
	default:
		return r.released() == s.record.Revoked
	}
}

// clone copies what a roll may change.
func (r acks) clone() acks {
	c := acks{registrations: maps.Clone(r.registrations), questions: map[string]*question{}, asked: r.asked, skew: r.skew,
		bytes: r.bytes, full: r.full}
	for namespace, q := range r.questions {
		other := *q
		other.waiting = maps.Clone(q.waiting)
		c.questions[namespace] = &other
	}
	return c
}

// last reports whether no term can follow the recorded one in this scope, so that nobody asks readers any more.
func (w *writer) last() bool {
	return w.s.record.Epoch >= w.e.firstEpoch+int64(w.e.terms)-1 && w.margin < exactly
}

// registered writes the readers: what they saw, what they may do, and what they have said.
func (w *writer) registered() {
	for _, r := range w.s.readers {
		if r == nil {
			continue
		}
		over, vacant := r.rule.Over()
		w.int(over)
		if !w.last() {
			w.int(r.released)
			w.bool(vacant)
		}
		w.bool(r.obj != nil, r.seen == "", w.s.sites[registrar].copy != nil &&
			r.seen == w.s.sites[registrar].copy.ResourceVersion)
		if r.permit.Holds(w.s.at(0)) {
			w.said(r.acting)
		}
	}
}

// roll writes what a replica knows of the readers, and of the past of their member.
func (w *writer) roll(r *replica) {
	now, bound := w.s.at(r.wrong).Boot, time.Duration(w.e.d+w.e.skew)*unit
	if w.last() {
		return
	}
	w.int(int64(max(0, r.past.since+bound-now)))
	w.int(int64(max(0, r.syncers[registrar].createPendingUntil-now)))
	w.int(r.released())
	q := r.roll.questions["ns"]
	if r.released() != 0 {
		q = nil // it is over
	}
	w.bool(q != nil, r.listing != nil, r.listing != nil && q != nil && q.number <= r.listing.asked)
	if q != nil {
		w.bool(q.unanswerable, q.waiting == nil)
		w.int(q.epoch)
	}
	for _, rd := range w.s.readers {
		if rd == nil || rd.obj == nil {
			continue
		}
		uid := rd.obj.UID
		w.bool(q != nil && q.waiting[uid])
		if known := r.roll.registrations[uid]; known != nil {
			w.int(known.reader.Released["ns"])
		} else {
			w.int(0)
		}
		if r.listing != nil {
			w.listed(r.listing, uid)
		}
	}
}

func (w *writer) listed(l *listing, uid types.UID) {
	for i := range l.items {
		if l.items[i].UID == uid {
			listed, err := wire.ReadRegistration(&l.items[i])
			must(err)
			w.int(listed.Released["ns"])
			return
		}
	}
	w.int(0)
}

// fixedClock stands.
type fixedClock struct{ now lease.Reading }

func (c *fixedClock) Now() lease.Reading { return c.now }

// nowhere is a queue that nobody reads: the exploration does whatever may be done at any time.
type nowhere struct {
	workqueue.TypedDelayingInterface[types.NamespacedName]
}

func (nowhere) Add(types.NamespacedName)                     {}
func (nowhere) AddAfter(types.NamespacedName, time.Duration) {}
