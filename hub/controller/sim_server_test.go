package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/guard/locks"
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
func (s *apiServer) enforces(f *storedFence, now time.Duration) bool {
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
func (s *apiServer) admits(m *member, f *storedFence) bool {
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
	is := m.fenceNamed(f.Name())
	if is == nil {
		lock, _ := f.Lock()
		is = &storedFence{
			Fence: f, lock: lock, stored: m.w.now, param: types.NamespacedName{Namespace: namespace, Name: f.LeaseName()},
		}
		m.fences, k.written = append(m.fences, is), true
		m.w.say(m.name, "fence %s of %s by %s is stored", f.Name(), lock, is.param)
	}
	k.inForce = pick(m.w.rng, m.servers).enforces(is, m.w.now)
	return k, nil
}

// fenceNamed returns a fence that is there.
func (m *member) fenceNamed(name string) *storedFence {
	for _, f := range m.fences {
		if f.gone == 0 && f.Name() == name {
			return f
		}
	}
	return nil
}

// removeFences removes all fences but some, and those of some policies.
func (m *member) removeFences(keep func(guard.Fence) bool) error {
	if m.w.now < m.unfenceable {
		return guard.ErrForbidden
	}
	for _, f := range m.fences {
		if f.gone == 0 && !keep(f.Fence) {
			m.removeFence(f)
		}
	}
	return nil
}

// removeFence removes a fence, which servers enforce until they learn of that.
func (m *member) removeFence(f *storedFence) {
	m.w.say(m.name, "fence %s of %s is removed", f.Name(), f.lock)
	gone := *f // a snapshot may have the fence as it was
	gone.gone = m.w.now
	for i := range m.fences {
		if m.fences[i] == f {
			m.fences[i] = &gone
		}
	}
	m.w.after(slowestPolicies, func() { m.forgetFences() })
}

// forgetFences drops what no server enforces any more.
func (m *member) forgetFences() {
	var left []*storedFence
	for _, f := range m.fences {
		if f.gone == 0 || m.w.now < f.gone+slowestPolicies {
			left = append(left, f)
		}
	}
	m.fences = left
}
