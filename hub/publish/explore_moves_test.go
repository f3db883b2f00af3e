package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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

// moveNames describe the moves in a trace.
var moveNames = [...]string{
	tickPasses:     "a tick passes",
	wins:           "HUB wins the election",
	stalls:         "HUB's renewals of its election get lost from now on",
	crashes:        "HUB crashes and restarts",
	releases:       "HUB releases its election in order",
	decidesFit:     "HUB decides, and finds all fit",
	decidesUnfit:   "HUB decides, and finds the leader unfit",
	decidesStepped: "HUB decides by a wall clock stepped forward, and finds the leader unfit",
	rulingArrives:  "HUB's record arrives",
	rulingAnswers:  "HUB's record is answered",
	rulingLost:     "HUB's record is never answered",
	lateRuling:     "a record that was given up arrives",
	reads:          "HUB reads all Leases in MEMBER",
	works:          "HUB writes to MEMBER",
	drops:          "HUB writes a follower's Lease to MEMBER, which is never answered",
	arrives:        "HUB's write arrives in MEMBER",
	answers:        "HUB's write is answered by MEMBER",
	lost:           "HUB's write is never answered by MEMBER",
	shows:          "a watch shows HUB the Lease in MEMBER",
	lateWrite:      "a write that was given up arrives in MEMBER",
	lists:          "HUB lists the registrations",
	listed:         "HUB's list is answered",
	registers:      "READER registers",
	sees:           "READER sees the Lease",
	seesOld:        "READER sees an older Lease",
	frees:          "READER releases the term that it saw revoked",
}

// say describes a move, and what there is after it.
func (e *explorer) say(mv move, after *scene) string {
	names := strings.NewReplacer("HUB", "hub "+replicaNames[min(mv.x, 1)], "MEMBER", siteNames[mv.m],
		"READER", [...]string{"the reader", "the newcomer"}[min(mv.x, 1)])
	return fmt.Sprintf("%d s: %s\n    %s", after.now, names.Replace(moveNames[mv.what]), e.outline(after))
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
