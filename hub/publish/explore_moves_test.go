package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/election"
)

// move is one step of the world: what, who and where.
type move struct {
	what what
	x, m uint8
}

type what uint8

// What can happen.
const (
	tickPasses what = iota
	wins
	stalls
	crashes
	releases
	decidesFit
	decidesUnfit
	decidesStepped
	rulingArrives
	rulingAnswers
	rulingLost
	lateRuling
	reads
	works
	drops
	arrives
	answers
	lost
	shows
	lateWrite
	lists
	listed
	registers
	sees
	seesOld
	frees
)

// moves are all that can be tried in any state, in the order in which they are.
func (e *explorer) allMoves() []move {
	var ms []move
	for x := range uint8(replicas) {
		for w := wins; w <= rulingLost; w++ {
			ms = append(ms, move{what: w, x: x})
		}
		for w := reads; w <= shows; w++ {
			for m := range uint8(e.sites) {
				ms = append(ms, move{what: w, x: x, m: m})
			}
		}
	}
	for m := range uint8(e.sites) {
		ms = append(ms, move{what: lateWrite, m: m})
	}
	if e.acknowledged {
		ms = append(ms, e.registeredMoves()...)
	}
	ms = append(ms, move{what: lateRuling}, move{what: tickPasses})
	return slices.DeleteFunc(ms, func(mv move) bool { return slices.Contains(e.without, mv.what) })
}

// do returns the state after a move, or nil if it cannot happen.
func (e *explorer) do(s *scene, mv move) *scene {
	x, m := int(mv.x), int(mv.m)
	switch mv.what {
	case tickPasses:
		return e.tick(s)
	case wins:
		return e.win(s, x)
	case stalls:
		return e.stall(s, x)
	case crashes:
		return e.crash(s, x)
	case releases:
		return e.release(s, x)
	case decidesFit, decidesUnfit, decidesStepped:
		return e.decide(s, x, view(mv.what-decidesFit))
	case rulingArrives:
		return e.rulingArrives(s, x)
	case rulingAnswers:
		return e.rulingAnswers(s, x)
	case rulingLost:
		return e.rulingLost(s, x)
	case lateRuling:
		return e.lateRuling(s)
	case reads:
		return e.read(s, x, m)
	case works:
		return e.work(s, x, m)
	case drops:
		return e.drop(s, x, m)
	case arrives:
		return e.arrives(s, x, m)
	case answers:
		return e.answers(s, x, m)
	case lost:
		return e.lost(s, x, m)
	case shows:
		return e.shows(s, x, m)
	case lateWrite:
		return e.lateWrite(s, m)
	default:
		return e.doRegistered(s, mv)
	}
}

// registeredMoves are those of readers that register, and of who asks them.
func (e *explorer) registeredMoves() []move {
	var ms []move
	for x := range uint8(replicas) {
		ms = append(ms, move{what: lists, x: x}, move{what: listed, x: x})
	}
	for i := range uint8(readers) {
		for w := registers; w <= frees; w++ {
			ms = append(ms, move{what: w, x: i})
		}
	}
	return ms
}

func (e *explorer) doRegistered(s *scene, mv move) *scene {
	x := int(mv.x)
	switch mv.what {
	case lists:
		return e.lists(s, x)
	case listed:
		return e.listed(s, x)
	case registers:
		return e.registers(s, x)
	case sees:
		return e.sees(s, x)
	case seesOld:
		return e.seesOld(s, x)
	case frees:
		return e.frees(s, x)
	default:
		panic("no such move")
	}
}

// tick lets time pass.
func (e *explorer) tick(s *scene) *scene {
	if s.now >= e.ticks {
		return nil
	}
	for _, r := range s.replicas {
		if r.ruling.overdue(s.now) || slices.ContainsFunc(r.out[:], func(w *posted) bool { return w.overdue(s.now) }) {
			return nil // it is answered or given up before
		}
	}
	n := s.clone()
	n.now++
	e.renew(n)
	e.lapse(n)
	e.expire(n)
	for x := range replicas {
		n = e.idle(n, x)
	}
	return n
}

func (w *posted) overdue(now int) bool { return w != nil && now-w.sent >= exploredTau }

func (r *ruling) overdue(now int) bool { return r != nil && now-r.sent >= exploredTau }

// say puts a move into words, with what came of it.
func (e *explorer) say(mv move, before, after *scene) string {
	x, m := int(mv.x), int(mv.m)
	name, where := "hub "+replicaNames[x], siteNames[m]
	switch mv.what {
	case tickPasses:
		return fmt.Sprintf("— %d s —", after.now)
	case wins:
		_, inherited := after.replicas[x].tenure.Started()
		return fmt.Sprintf("%s wins the election; an earlier tenure can have renewed until %s", name, clockOf(inherited))
	case stalls:
		return fmt.Sprintf("%s's renewals of its election get lost from now on", name)
	case crashes:
		return name + " crashes and starts anew"
	case releases:
		return name + " gives up its election in order"
	case decidesFit, decidesUnfit, decidesStepped:
		return e.sayDecision(mv, name, before, after)
	case rulingArrives:
		return fmt.Sprintf("%s's record arrives: %s", name, sayDone(after.version > before.version))
	case rulingAnswers:
		return name + " hears of its record"
	case rulingLost:
		return name + " never hears of its record"
	case lateRuling:
		return fmt.Sprintf("a record that nobody waits for arrives: %s", sayDone(after.version > before.version))
	case reads:
		return fmt.Sprintf("%s reads all Leases in %s", name, where)
	case works:
		if w := after.replicas[x].out[m]; w != nil {
			return fmt.Sprintf("%s sends to %s: %s", name, where, e.sayPosted(w))
		}
		return fmt.Sprintf("%s writes to %s, where there is now: %s", name, where, e.sayLease(after.sites[m].copy))
	case drops:
		return fmt.Sprintf("%s sends a follower's Lease to %s, and never hears of it", name, where)
	case arrives:
		return fmt.Sprintf("%s's write arrives in %s: %s", name, where, sayDone(after.sites[m].version > before.sites[m].version))
	case answers:
		return fmt.Sprintf("%s hears of its write in %s", name, where)
	case lost:
		return fmt.Sprintf("%s never hears of its write in %s", name, where)
	case shows:
		return fmt.Sprintf("%s is shown the Lease in %s", name, where)
	case lateWrite:
		return fmt.Sprintf("a write that nobody waits for arrives in %s: %s: %s", where, e.sayPosted(before.sites[m].late),
			sayDone(after.sites[m].version > before.sites[m].version))
	default:
		return e.sayRegistered(mv, after)
	}
}

func (e *explorer) sayRegistered(mv move, after *scene) string {
	name := []string{"the reader", "the newcomer"}
	switch x := int(mv.x); mv.what {
	case lists:
		return "hub " + replicaNames[x] + " lists the registrations in " + siteNames[registrar]
	case listed:
		return fmt.Sprintf("hub %s hears of its list: released is epoch %d", replicaNames[x], e.short(after.replicas[x].syncers[registrar].status.Released))
	case registers:
		return name[x] + " registers"
	case sees, seesOld:
		return fmt.Sprintf("%s sees: %s", name[x], e.sayTerm(after.readers[x].saw))
	case frees:
		return fmt.Sprintf("%s releases epoch %d", name[x], e.short(after.readers[x].released))
	default:
		panic("no such move")
	}
}

func sayDone(done bool) string {
	if done {
		return "done"
	}
	return "refused, something else was there"
}

func (e *explorer) sayPosted(w *posted) string { return e.sayLease(w.step.lease) }

func (e *explorer) sayLease(obj *coordinationv1.Lease) string {
	c, _ := wire.Read(obj)
	return e.sayTerm(c)
}

func (e *explorer) sayTerm(c sight) string {
	holder, _, _ := strings.Cut(c.Holder, ".")
	if holder == "" {
		holder = "nobody"
	}
	if c.LeadsHere() {
		return fmt.Sprintf("%s leads in epoch %d until %s", holder, e.short(c.Epoch), clockOf(c.Deadline()))
	}
	return fmt.Sprintf("%s leads elsewhere in epoch %d", holder, e.short(c.Epoch))
}

func (e *explorer) sayDecision(mv move, name string, before, after *scene) string {
	sees := "finds all fit"
	switch mv.what {
	case decidesUnfit:
		sees = "finds " + before.record.Leader + " unfit"
	case decidesStepped:
		sees = "finds " + before.record.Leader + " unfit, by a wall clock stepped forward,"
	}
	r := after.replicas[mv.x].ruling
	if r == nil {
		return fmt.Sprintf("%s %s and follows the record", name, sees)
	}
	return fmt.Sprintf("%s %s and sends the record: %s", name, sees, e.sayRecord(r.record))
}

func (e *explorer) sayRecord(r *election.Record) string {
	words := []string{"nothing"}
	if r.State != "" {
		words = []string{string(r.State), cmp.Or(r.Leader, "nobody"), fmt.Sprintf("epoch %d", e.short(r.Epoch))}
	}
	if r.Revoked != 0 {
		words = append(words, fmt.Sprintf("after epoch %d was revoked", e.short(r.Revoked)))
	}
	if !r.NotBefore.IsZero() {
		words = append(words, "not before "+clockOf(r.NotBefore))
	}
	return strings.Join(words, " ")
}

// short numbers epochs from 1.
func (e *explorer) short(epoch int64) int64 { return max(0, epoch-e.firstEpoch+1) }
