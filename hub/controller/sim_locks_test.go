package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard/locks"
)

// stockLock is the lock of a stock controller that runs in every member and knows nothing of Leases.
type stockLock struct {
	types.NamespacedName
	stockElector
	shortened bool // its durations are shorter than they were at the beginning
}

// stockElector is how a stock controller elects itself.
type stockElector struct {
	lease, renew, retry time.Duration
	// request is how long a request takes at most: the timeout of the elector's client, or of the API server where the
	// client has none.
	request time.Duration
	// reads: each renewal reads the lock before it writes it, as client-go did before v0.29.
	reads bool
	// releases: the elector releases the lock that it has lost, and its work goes on until then. unbounded: that takes
	// as long as the requests take, as in client-go before v0.31. Later it ends after another renew deadline.
	releases, unbounded bool
}

// stockSpace is the namespace of the locks, which every member has.
const stockSpace = "stock"

// drawLock draws a lock, and the elector of an old or a new client-go with short durations.
func (w *world) drawLock(name string) *stockLock {
	l := &stockLock{NamespacedName: types.NamespacedName{Namespace: stockSpace, Name: name}}
	l.stockElector = w.drawElector(time.Duration(2+w.rng.IntN(3)) * time.Second)
	return l
}

// drawElector draws an elector with this renew deadline.
func (w *world) drawElector(renew time.Duration) (e stockElector) {
	e.renew, e.lease, e.retry, e.request = renew, renew+time.Second, time.Second, renew/2
	if w.chance(0.5) { // a client without a timeout
		e.request = e.renew + time.Duration(w.rng.IntN(2))*time.Second
	}
	e.reads, e.releases = w.chance(0.6), w.chance(0.5)
	e.unbounded = e.reads && e.releases
	return e
}

// release is how long the release of a lost lock takes at most.
func (e *stockElector) release() time.Duration {
	switch {
	case e.unbounded:
		return 2 * e.request
	case e.releases:
		return min(e.renew, 2*e.request)
	}
	return 0
}

// stated is what a policy says of the lock: the truth, or so many seconds more.
func (l *stockLock) stated(more int32) v1alpha1.LockFence {
	up := func(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }
	return v1alpha1.LockFence{
		Namespace: l.Namespace, Name: l.Name, LeaseDurationSeconds: up(l.lease), RenewDeadlineSeconds: up(l.renew),
		RetryPeriodSeconds: up(l.retry), RequestTimeoutSeconds: up(l.request) + more,
		ReleaseTimeoutSeconds: ptr.To(up(l.release())),
	}
}

func stopTimeOf(f v1alpha1.LockFence) time.Duration {
	return locks.Of(&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{f}})[0].StopTime()
}

// mostMore is by how many seconds policies exceed the truth at most.
const mostMore = 2

// locksWorld has stock controllers whose locks are fenced. Policies state their durations, and sometimes longer ones.
var locksWorld = special{"locks are fenced", func(w *world) {
	w.drawLocks()
	w.kinds = append(w.kinds, restatedFault, shortenedFault, behindFault)
}}

// drawLocks has a policy for each namespace, and one or two locks. The first policy fences the first one.
func (w *world) drawLocks() {
	w.fenced = map[string][]v1alpha1.LockFence{}
	for i, name := range []string{"a", "b"}[:1+w.rng.IntN(2)] {
		l := w.drawLock(name)
		w.locks = append(w.locks, l)
		p := policyNames[i%len(w.spaces)]
		w.fenced[p] = append(w.fenced[p], l.stated(int32(w.rng.IntN(mostMore+1))))
		w.stops = max(w.stops, stopTimeOf(l.stated(mostMore)))
	}
	w.homes, w.hanging, w.quiet = w.fenced, pick(w.rng, []float64{0.9, w.rng.Float64()}), w.chance(0.8)
	w.faults += w.timings.Duration + w.stops
	if w.chance(0.7) { // so that something lasts for as long as a lock does
		w.kinds = slices.DeleteFunc(w.kinds, func(fault) bool { return w.chance(0.7) })
		w.calm *= 2
		for _, p := range []*float64{&w.late, &w.veryLate, &w.loss, &w.busy, &w.broken, &w.lateHub, &w.stopAtReading} {
			*p /= 4
		}
	}
}

// restatedFault has a policy state other durations of a lock, none shorter than the truth.
var restatedFault = fault{name: "a policy states another stop time of a fenced lock", do: func(w *world) {
	w.restate(pick(w.rng, w.locks), int32(w.rng.IntN(mostMore+1)))
}, edits: true}

// shortenedFault has people start the controllers of a lock with shorter durations, and state them. Where the hub does
// not come they do not come, either: there the controller goes on as it was started until the hub writes a Lease.
var shortenedFault = fault{name: "controllers are started with shorter durations, which their policy states",
	do: func(w *world) {
		l := pick(w.rng, w.locks)
		if l.shortened {
			return
		}
		if w.chance(0.7) {
			w.cutLeader(l)
		}
		w.soon(0, w.timings.Renew/2, func() { w.shorten(l) })
		if w.chance(0.4) {
			w.soon(w.timings.Renew/2, w.timings.Renew, w.killElected)
		}
	}, edits: true}

// cutLeader cuts the cluster that leads by a lock's policy off from all replicas, for longer than its term lasts.
func (w *world) cutLeader(l *stockLock) {
	for policy := range w.homes {
		if r := w.leader(w.homeOf(policy)[0]); r != nil && w.fences(policy, l) {
			for _, hub := range w.replicas {
				w.cutAs(hub.proc, &r.m.machine, link{true, w.chance(0.5)}, 2*w.timings.Duration+w.stops)
			}
		}
	}
}

// fences reports whether a policy fences a lock.
func (w *world) fences(policy string, l *stockLock) bool {
	return slices.ContainsFunc(w.fenced[policy], l.is)
}

// is reports whether a fence is that of the lock.
func (l *stockLock) is(f v1alpha1.LockFence) bool { return f.Name == l.Name }

// shorten has the controllers of a lock started with the shortest durations.
func (w *world) shorten(l *stockLock) {
	if l.shortened {
		return
	}
	l.shortened = true
	l.stockElector = stockElector{lease: 3 * time.Second, renew: 2 * time.Second, retry: time.Second, request: time.Second}
	w.say("FAULT", "%s has shorter durations", l.Name)
	w.restate(l, 0)
}

// restate has the policies that fence a lock state its durations, and so many seconds more.
func (w *world) restate(l *stockLock, more int32) {
	for _, p := range w.hub.policies {
		of := slices.Clone(w.fenced[p.Name])
		if i := slices.IndexFunc(of, l.is); i >= 0 {
			of[i] = l.stated(more)
			w.refence(p.Name, of)
		}
	}
}

// refence has a policy fence these locks, and no others.
func (w *world) refence(policy string, of []v1alpha1.LockFence) {
	w.setFenced(policy, of)
	w.editPolicyNamed(policy, func(p *v1alpha1.LeadershipPolicy) { w.fence(p) })
}

// setFenced notes what a policy fences from its next edit on.
func (w *world) setFenced(policy string, of []v1alpha1.LockFence) {
	w.fenced = maps.Clone(w.fenced) // the first of these maps is also w.homes
	w.fenced[policy] = of
}

// fence writes into a policy what it fences.
func (w *world) fence(p *v1alpha1.LeadershipPolicy) {
	if p.Spec.Fencing = nil; len(w.fenced[p.Name]) > 0 {
		p.Spec.Fencing = &v1alpha1.Fencing{LeaderElectionLocks: slices.Clone(w.fenced[p.Name])}
	}
}

// simLock is a lock as tests fence it. Its stop time is 4 s.
var simLock = v1alpha1.LockFence{
	Namespace: "stock", Name: "stock", LeaseDurationSeconds: 3, RenewDeadlineSeconds: 2, RetryPeriodSeconds: 1,
	RequestTimeoutSeconds: 1, ReleaseTimeoutSeconds: ptr.To[int32](0),
}

// stock is one stock controller with an elector of client-go. Its work is what the lock protects.
type stock struct {
	*proc
	m            *member
	lock         *stockLock
	stockElector // that it was started with
	works        bool
	fenced       bool // its last renewal was admitted by a fence
	server       *apiServer
}

// startStock starts a controller, and another one whenever it ends.
func (w *world) startStock(m *member, l *stockLock) {
	s := &stock{
		proc: w.newProc(m.name+"-"+l.Name, w.newClock()), m: m, lock: l, stockElector: l.stockElector,
		server: pick(w.rng, m.servers),
	}
	w.stocks = append(w.stocks, s)
	s.spawn(func() {
		for s.campaign() {
		}
	})
}

// restartStocks starts the controllers of a member again that have other durations now.
func (m *member) restartStocks() {
	for i, s := range m.w.stocks {
		if s.m == m && s.alive && s.stockElector != s.lock.stockElector {
			s.crash()
			m.w.startStock(m, s.lock)
			last := len(m.w.stocks) - 1
			m.w.stocks[i], m.w.stocks = m.w.stocks[last], m.w.stocks[:last]
		}
	}
}

// campaign is one run of the elector: acquire, renew, release. It returns false when the world is over.
func (s *stock) campaign() bool {
	w, l := s.w, s.stockElector
	for !s.try(0) {
		if !s.sleep(w.between(l.retry, 2*l.retry+l.retry/5)) {
			return false
		}
	}
	s.works = true
	s.w.say(s.name, "works, fenced: %v", s.fenced)
	s.w.oracle.holds(s)
	for s.renews() {
		if !s.sleep(l.retry) {
			return false
		}
	}
	if l.releases {
		s.release()
	}
	s.works = false
	s.w.say(s.name, "stops")
	s.stockElector = s.lock.stockElector // it is started again
	return s.sleep(w.between(0, l.lease))
}

// renews tries until the renew deadline, and reports whether the lock was renewed.
func (s *stock) renews() bool {
	deadline := s.w.now + s.renew
	for s.alive {
		if s.try(deadline) {
			return true
		}
		rest := deadline - s.w.now
		if rest <= 0 || !s.sleep(min(rest, s.retry)) || s.w.now >= deadline {
			return false
		}
	}
	return false
}

// try takes or renews the lock. A deadline bounds it, unless it is zero.
func (s *stock) try(deadline time.Duration) bool {
	if s.reads || !s.works {
		if _, err := ask(s, deadline, nothing); err != nil {
			return false
		}
	}
	fenced, err := ask(s, deadline, func() (bool, error) { return s.server.admit(s.m, s.lock) })
	if err != nil {
		return false
	}
	if s.fenced = fenced; s.works {
		s.w.oracle.holds(s)
	}
	return true
}

// release gives the lock up. That is let through everywhere.
func (s *stock) release() {
	deadline := s.w.now + s.renew
	if s.unbounded {
		deadline = 0
	}
	if _, err := ask(s, deadline, nothing); err == nil {
		_, _ = ask(s, deadline, nothing)
	}
}

// ask sends one request to an API server of the member, of which each answers any. Both hang now and then: the answer
// comes just before nobody waits for it any more.
func ask[T any](s *stock, deadline time.Duration, apply func() (T, error)) (out T, err error) {
	w, timeout := s.w, s.request
	if deadline > 0 {
		if timeout = min(timeout, deadline-w.now); timeout <= 0 {
			return out, context.DeadlineExceeded
		}
	}
	s.server = pick(w.rng, s.m.servers)
	begin := w.now
	out, err = call(s.proc, &s.m.machine, timeout, apply)
	if hangs := begin + timeout - time.Millisecond - w.now; err == nil && hangs > 0 && w.faulty && w.chance(w.hanging) {
		if !s.sleep(hangs) {
			return out, errEnded
		}
	}
	return out, err
}
