package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/worker"
)

const (
	// fencesLook is how often a worker looks whether other fences are asked for, and fencesAgain when it asks again for
	// those that are in force.
	fencesLook, fencesAgain = 500 * time.Millisecond, 2 * time.Second
	// fencesTimeout bounds one request about a fence.
	fencesTimeout = 3 * time.Second
)

// simWorker keeps the fences of one member for a replica as package worker does: one after the other, and those that
// nobody asks for go when all others are in force.
type simWorker struct {
	*laborer
	ct    *contact
	found map[string]seenFence
	asked []string // the names of those that the last turn has kept
	next  time.Duration
	busy  bool
	ended bool
	again func() // look, bound once

	// wanted and kept are what the policies ask for by so many edits and writes of records, as the cache showed until
	// then.
	edits  int
	writes int
	stale  time.Duration
	by     string // versions and owners
	wanted []guard.Fence
	kept   []string
}

// seenFence is what the last turn has found of a fence.
type seenFence struct {
	err     error
	inForce bool
	since   time.Duration // boot reading
	missed  time.Duration // when the member refused it first
	policy  string        // that asks for it
}

func newSimWorker(ct *contact, p *publish.Publisher) *simWorker {
	s := &simWorker{laborer: &laborer{publisher: p}, ct: ct, found: map[string]seenFence{}, edits: -1}
	s.again = s.look
	if len(ct.r.w.locks) > 0 {
		s.look()
	}
	return s
}

// Unfenced says why a fence is not in force in a namespace.
func (s *simWorker) Unfenced(f guard.Fence, _ string) error {
	is, known := s.found[f.Name()]
	switch {
	case !known:
		return worker.ErrUnchecked
	case is.err != nil:
		return is.err
	case !is.inForce:
		return guard.ErrNotEnforced
	}
	return nil
}

// Unguarded says why the guard of the member's Leases is not in force.
func (s *simWorker) Unguarded() error {
	if m := s.ct.m; m.w.now < m.unguarded {
		return guard.ErrNotEnforced
	}
	return nil
}

// FencedSince says since when it is.
func (s *simWorker) FencedSince(f guard.Fence, namespace string) (time.Duration, error) {
	return s.found[f.Name()].since, s.Unfenced(f, namespace)
}

// look is one turn.
func (s *simWorker) look() {
	r := s.ct.r
	if s.ended || !r.alive {
		return
	}
	r.after(fencesLook, s.again)
	if s.busy || !s.ct.connected || !r.controller.Serves(simFleet) {
		return
	}
	s.want()
	if names := namesOfFences(s.wanted); r.w.now >= s.next || !slices.Equal(names, s.asked) {
		s.asked, s.busy = names, true
		r.spawn(func() {
			s.check(s.wanted, slices.Clone(s.kept))
			s.busy = false
		})
	}
}

// want finds out what the policies ask for, by the cache of the replica.
func (s *simWorker) want() {
	r, h := s.ct.r, s.ct.r.w.hub
	if s.edits != r.edits || s.writes != h.writes {
		s.edits, s.writes, s.stale = r.edits, h.writes, r.w.now+r.cacheLag+fencesLook
	} else if r.w.now > s.stale {
		return
	}
	ctx, m := context.Background(), fleet.Member{Key: s.ct.key()}
	policies, err := r.controller.policies.valid(ctx, simFleet)
	if err != nil {
		panic(err)
	}
	lost, by := map[*decide.Policy][]string{}, ""
	for _, p := range policies {
		if lost[p], err = r.controller.policies.lostIn(ctx, p, policies, m); err != nil {
			panic(err)
		}
		by += fmt.Sprint(p.Object.UID, p.Object.Generation, p.Unknown, lost[p])
	}
	if by == s.by {
		return // fences take long to compute
	}
	s.by = by
	s.wanted, s.kept, err = decide.FencesIn(r.hubID(), policies, m, func(p *decide.Policy) ([]string, error) {
		return lost[p], nil
	},
		func(p *decide.Policy) bool { return r.controller.policies.leadsFor(ctx, p, m) })
	if err != nil {
		panic(err)
	}
}

func namesOfFences(fs []guard.Fence) (names []string) {
	for _, f := range fs {
		names = append(names, f.Name())
	}
	return names
}

// check puts the fences in place, and removes others once these are in force.
func (s *simWorker) check(wanted []guard.Fence, kept []string) {
	r, m := s.ct.r, s.ct.m
	found, underWay := map[string]seenFence{}, false
	for _, f := range wanted {
		is, err := s.keep(f)
		switch {
		case errors.Is(err, guard.ErrForbidden):
			kept = append(kept, f.PolicyName())
			before := s.found[f.Name()]
			if is = (seenFence{err: err, missed: before.missed, policy: f.PolicyName()}); before.err == nil {
				is.missed = r.w.now
			}
		case err != nil:
			underWay = true
			before, known := s.found[f.Name()]
			if !known {
				continue
			}
			is = before
		default:
			underWay = underWay || !is.inForce
		}
		found[f.Name()] = is
	}
	news := len(found) != len(s.found)
	for name, is := range found {
		before := s.found[name]
		news = news || before.inForce != is.inForce || (before.err == nil) != (is.err == nil)
	}
	if s.found = found; news {
		r.reconcileAll()
	}
	s.next = r.w.now + fencesLook
	if underWay || !r.controller.Serves(simFleet) {
		return
	}
	names := namesOfFences(wanted)
	_, err := call(r.proc, &m.machine, fencesTimeout, func() (struct{}, error) {
		return struct{}{}, m.removeFences(func(f guard.Fence) bool {
			return slices.Contains(names, f.Name()) || slices.Contains(kept, f.PolicyName())
		})
	})
	if err == nil {
		s.next = r.w.now + fencesAgain
	}
}

// keep has a fence put in place, and asks whether it is in force.
func (s *simWorker) keep(f guard.Fence) (is seenFence, err error) {
	r, m := s.ct.r, s.ct.m
	i := slices.IndexFunc(r.w.spaces, func(ns string) bool { return f.Selects(ns, nil) })
	k, err := call(r.proc, &m.machine, fencesTimeout, func() (keptFence, error) { return m.keepFence(f, r.w.spaces[i]) })
	if err != nil || !k.inForce {
		return seenFence{}, err
	}
	is = seenFence{inForce: true, since: r.host.read(r.w.now).Boot}
	if before := s.found[f.Name()]; before.inForce && !k.written {
		is.since = before.since
	}
	return is, nil
}
