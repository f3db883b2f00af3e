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
func (e *explorer) do(s *world, mv move) *world { return steps[mv.what].do(e, s, int(mv.x), int(mv.m)) }

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

// tick lets time pass.
func (e *explorer) tick(s *world) *world {
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

// stepFunc is a step of a replica or a reader x, in a member m.
type stepFunc = func(e *explorer, s *world, x, m int) *world

func alone(do func(*explorer, *world) *world) stepFunc {
	return func(e *explorer, s *world, _, _ int) *world { return do(e, s) }
}

func byHub(do func(*explorer, *world, int) *world) stepFunc {
	return func(e *explorer, s *world, x, _ int) *world { return do(e, s, x) }
}

func inMember(do func(*explorer, *world, int) *world) stepFunc {
	return func(e *explorer, s *world, _, m int) *world { return do(e, s, m) }
}

func decides(v view) stepFunc {
	return func(e *explorer, s *world, x, _ int) *world { return e.decide(s, x, v) }
}

// steps are the moves: how a trace describes them, and what they do.
var steps = [...]struct {
	name string
	do   stepFunc
}{
	tickPasses:     {"a tick passes", alone((*explorer).tick)},
	wins:           {"HUB wins the election", byHub((*explorer).win)},
	stalls:         {"HUB's renewals of its election get lost from now on", byHub((*explorer).stall)},
	crashes:        {"HUB crashes and restarts", byHub((*explorer).crash)},
	releases:       {"HUB releases its election in order", byHub((*explorer).release)},
	decidesFit:     {"HUB decides, and finds all fit", decides(allFit)},
	decidesUnfit:   {"HUB decides, and finds the leader unfit", decides(leaderUnfit)},
	decidesStepped: {"HUB decides by a wall clock stepped forward, and finds the leader unfit", decides(leaderUnfitIn)},
	rulingArrives:  {"HUB's record arrives", byHub((*explorer).rulingArrives)},
	rulingAnswers:  {"HUB's record is answered", byHub((*explorer).rulingAnswers)},
	rulingLost:     {"HUB's record is never answered", byHub((*explorer).rulingLost)},
	lateRuling:     {"a record that was given up arrives", alone((*explorer).lateRuling)},
	reads:          {"HUB reads all Leases in MEMBER", (*explorer).read},
	works:          {"HUB writes to MEMBER", (*explorer).work},
	drops:          {"HUB writes a follower's Lease to MEMBER, which is never answered", (*explorer).drop},
	arrives:        {"HUB's write arrives in MEMBER", (*explorer).arrives},
	answers:        {"HUB's write is answered by MEMBER", (*explorer).answers},
	lost:           {"HUB's write is never answered by MEMBER", (*explorer).lost},
	shows:          {"a watch shows HUB the Lease in MEMBER", (*explorer).shows},
	lateWrite:      {"a write that was given up arrives in MEMBER", inMember((*explorer).lateWrite)},
	lists:          {"HUB lists the registrations", byHub((*explorer).lists)},
	listed:         {"HUB's list is answered", byHub((*explorer).listed)},
	registers:      {"READER registers", byHub((*explorer).registers)},
	sees:           {"READER sees the Lease", byHub((*explorer).sees)},
	seesOld:        {"READER sees an older Lease", byHub((*explorer).seesOld)},
	frees:          {"READER releases the term that it saw revoked", byHub((*explorer).frees)},
}

// say describes a move, and what there is after it.
func (e *explorer) say(mv move, after *world) string {
	names := strings.NewReplacer("HUB", "hub "+replicaNames[min(mv.x, 1)], "MEMBER", siteNames[mv.m],
		"READER", [...]string{"the reader", "the newcomer"}[min(mv.x, 1)])
	return fmt.Sprintf("%d s: %s\n    %s", after.now, names.Replace(steps[mv.what].name), e.outline(after))
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
