package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/guard/locks"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/worker"
)

// apiServer is one of the two API servers of a member. Both write to the same etcd. Each has a clock of its own, and
// each may be behind with what it has read.
type apiServer struct {
	clock *hostClock
	// policies is how late it learns of admission policies.
	policies time.Duration
	// Until then it shows Leases as they were at a time.
	until, as time.Duration
}

// storedFence is the fence of a lock as a member stores it.
type storedFence struct {
	guard.Fence
	lock   locks.Lock
	param  types.NamespacedName
	stored time.Duration
	gone   time.Duration // when it was removed; zero: it is there
}

// slowestPolicies is how late an API server learns of an admission policy at most: less than any D.
const slowestPolicies = 1500 * time.Millisecond

func (w *world) newServers() (both []*apiServer) {
	for range 2 {
		both = append(both, &apiServer{clock: w.newClock(), policies: w.between(100*time.Millisecond, slowestPolicies)})
	}
	return both
}

// behindFault has an API server show older Leases than there are, for longer than any promise lasts or for less.
var behindFault = fault{name: "an API server of a member is behind with the Leases", do: func(w *world) {
	s := pick(w.rng, pick(w.rng, w.members).servers)
	s.as, s.until = w.now, w.now+w.between(time.Second, 3*w.timings.Duration)
}, member: true}

// param is a Lease as the server shows it to admission policies.
func (s *apiServer) param(m *member, key types.NamespacedName) *coordinationv1.Lease {
	if m.w.now >= s.until {
		return m.leases[key]
	}
	for i := len(m.log) - 1; i >= 0; i-- {
		if c := &m.log[i]; c.key == key && c.at <= s.as {
			return c.lease
		}
	}
	return nil
}

// enforces reports whether the server enforces a fence at a time.
func (s *apiServer) enforces(f storedFence, now time.Duration) bool {
	return f.stored+s.policies <= now && (f.gone == 0 || now < f.gone+s.policies)
}

// errFenced is what a fence answers.
var errFenced = apierrors.NewForbidden(leaseResource, "lock", fmt.Errorf("this cluster does not lead the namespace"))

// admit decides as the fences do whether the lock may be taken or renewed now. fenced says that there is a fence.
func (s *apiServer) admit(m *member, l *stockLock) (fenced bool, err error) {
	for _, f := range m.fences {
		if f.lock.NamespacedName != l.NamespacedName || !s.enforces(f, m.w.now) {
			continue
		}
		if fenced = true; !s.admits(m, f) {
			return true, errFenced
		}
	}
	return fenced, nil
}

// admits evaluates one fence: this cluster leads by the Lease, the lock is open, and the time is in the term. The
// server notes the time in whole seconds, and each counts as its end.
func (s *apiServer) admits(m *member, f storedFence) bool {
	obj := s.param(m, f.param)
	if obj == nil {
		return false
	}
	c, _ := wire.Read(obj)
	noted := s.clock.read(m.w.now).Wall.Truncate(time.Second).Add(time.Second)
	return c.LeadsHere() && !noted.After(c.Deadline()) && noted.After(c.RenewTime.Add(-c.Skew)) &&
		slices.Contains(strings.Split(c.OpenLocks, ","), f.lock.ID())
}

// keptFence is what a worker learns of a fence that it has put in place.
type keptFence struct{ inForce, written bool }

// keepFence puts a fence in place, as a worker asks for it.
func (m *member) keepFence(f guard.Fence, namespace string) (k keptFence, err error) {
	if m.w.now < m.unfenceable {
		return k, fmt.Errorf("%w: no rights to admission policies", guard.ErrForbidden)
	}
	i := slices.IndexFunc(m.fences, func(o storedFence) bool { return o.gone == 0 && o.Name() == f.Name() })
	if i < 0 {
		lock, _ := f.Lock()
		param := types.NamespacedName{Namespace: namespace, Name: f.LeaseName()}
		m.w.say(m.name, "fence %s of %s by %s is stored", f.Name(), lock, param)
		i, k.written = len(m.fences), true
		m.fences = append(m.fences, storedFence{Fence: f, lock: lock, stored: m.w.now, param: param})
	}
	k.inForce = pick(m.w.rng, m.servers).enforces(m.fences[i], m.w.now)
	return k, nil
}

// removeFences removes all fences but some. Servers enforce them until they learn of that.
func (m *member) removeFences(keep func(guard.Fence) bool) {
	for i := range m.fences {
		if f := &m.fences[i]; f.gone == 0 && !keep(f.Fence) {
			m.w.say(m.name, "fence %s of %s is removed", f.Name(), f.lock)
			f.gone = m.w.now
			m.w.after(slowestPolicies, m.forgetFences)
		}
	}
}

// forgetFences drops what no server enforces any more.
func (m *member) forgetFences() {
	m.fences = slices.DeleteFunc(m.fences, func(f storedFence) bool {
		return f.gone != 0 && m.w.now >= f.gone+slowestPolicies
	})
}

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
	*fakeWorker
	ct    *contact
	found map[string]seenFence
	asked []string // the names of those that the last turn has kept
	next  time.Duration
	ended bool

	// wanted is what the policies ask for by so many edits and writes of records, as the cache showed until then.
	edits  int
	writes int
	stale  time.Duration
	wanted []guard.Fence
}

// seenFence is what the last turn has found of a fence.
type seenFence struct {
	err     error
	inForce bool
	since   time.Duration // boot reading
}

func newSimWorker(ct *contact, p *publish.Publisher) *simWorker {
	s := &simWorker{fakeWorker: &fakeWorker{publisher: p}, ct: ct, found: map[string]seenFence{}, edits: -1}
	if len(ct.r.w.locks) > 0 {
		ct.r.spawn(s.run)
	}
	return s
}

// Unfenced says why a fence is not in force in a namespace.
func (s *simWorker) Unfenced(f guard.Fence, _ string) error {
	is, known := s.found[f.Name()]
	switch {
	case !known:
		return guard.ErrUnchecked
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

// Required says what is not healthy that policies require.
func (s *simWorker) Required(string, worker.Requires) worker.Required { return s.ct.m.required }

// FencedSince says since when it is.
func (s *simWorker) FencedSince(f guard.Fence, namespace string) (time.Duration, error) {
	return s.found[f.Name()].since, s.Unfenced(f, namespace)
}

// run is the worker's loop.
func (s *simWorker) run() {
	r := s.ct.r
	for r.sleep(fencesLook) && !s.ended {
		if !s.ct.connected || !r.controller.Serves(simFleet) {
			continue
		}
		s.want()
		if names := namesOfFences(s.wanted); r.w.now >= s.next || !slices.Equal(names, s.asked) {
			s.asked = names
			s.check(s.wanted)
		}
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
	c := r.controller
	policies, err := c.policies.valid(ctx, simFleet, c.source.Members(simFleet))
	if err != nil {
		panic(err)
	}
	s.wanted, _, err = decide.FencesIn(r.hubID(), policies, m,
		func(p *decide.Policy) ([]string, error) { return r.controller.policies.lostIn(ctx, p, policies, m) },
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
func (s *simWorker) check(wanted []guard.Fence) {
	r, m := s.ct.r, s.ct.m
	found, underWay := map[string]seenFence{}, false
	var kept []string // policies
	for _, f := range wanted {
		is, err := s.keep(f)
		switch {
		case errors.Is(err, guard.ErrForbidden):
			kept = append(kept, f.PolicyName())
			is = seenFence{err: err}
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
	if invoke(r.proc, &m.machine, fencesTimeout, func() error {
		if r.w.now < m.unfenceable {
			return guard.ErrForbidden
		}
		m.removeFences(func(f guard.Fence) bool {
			return slices.Contains(names, f.Name()) || slices.Contains(kept, f.PolicyName())
		})
		return nil
	}) == nil {
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
