package controller

import (
	"context"
	"time"
)

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
	s.begins()
	for s.renews() {
		if !s.sleep(l.retry) {
			return false
		}
	}
	if l.releases {
		s.release()
	}
	s.ends()
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

// begins has the controller work.
func (s *stock) begins() {
	s.works = true
	s.w.say(s.name, "works, fenced: %v", s.fenced)
	s.w.oracle.holds(s)
}

// ends has it stop.
func (s *stock) ends() {
	s.works = false
	s.w.say(s.name, "stops")
}
