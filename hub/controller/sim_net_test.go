package controller

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// link is the way from one process to one server.
type link struct {
	noRequests, noAnswers bool // cut, one way each
}

// machine is what all simulated API servers have in common.
type machine struct {
	w      *world
	id     int
	name   string
	frozen time.Duration // stopped until then: requests wait
	down   bool          // refuses connections
}

var errRefused = errors.New("connection refused")

// lag draws how long a message travels.
func (w *world) lag() time.Duration {
	if w.faulty {
		switch {
		case w.chance(w.veryLate):
			return w.between(w.timings.Timeout/2, 3*w.timings.Duration)
		case w.chance(w.late):
			return w.between(10*time.Millisecond, 2*w.timings.Timeout)
		}
	}
	return w.between(100*time.Microsecond, 5*time.Millisecond)
}

func (p *proc) link(m *machine) *link {
	for len(p.links) <= m.id {
		p.links = append(p.links, link{})
	}
	return &p.links[m.id]
}

// send sends a request to a server. apply carries it out there; answer hears of the
// outcome, at most once, or of a timeout.
func send[T any](p *proc, m *machine, timeout time.Duration, apply func() (T, error), answer func(T, error)) {
	w, done := p.w, false
	finish := func(out T, err error) {
		if !done {
			done = true
			answer(out, err)
		}
	}
	p.after(timeout, func() {
		if !done {
			var none T
			finish(none, context.DeadlineExceeded)
		}
	})
	if p.link(m).noRequests || w.faulty && w.chance(w.loss) {
		return
	}
	lag := w.lag()
	if m == &w.hub.machine && w.faulty && w.chance(w.lateHub) {
		lag = w.between(w.h, 2*w.h+w.timings.Duration) // it may arrive in the next tenure
	}
	w.after(lag, func() { arrive(p, m, apply, finish) })
	if w.faulty && w.chance(w.twice) { // its effect is delivered once more, late
		w.after(w.lag()+w.between(0, 2*w.timings.Timeout), func() { arrive(p, m, apply, func(T, error) {}) })
	}
}

// arrive is a request that reaches its server.
func arrive[T any](p *proc, m *machine, apply func() (T, error), finish func(T, error)) {
	w := p.w
	var out T
	if m.frozen > w.now {
		w.after(m.frozen-w.now, func() { arrive(p, m, apply, finish) })
		return
	}
	var err error
	switch {
	case m.down:
		err = errRefused
	case w.faulty && w.chance(w.busy):
		err = apierrors.NewTooManyRequests("busy", 1)
	default:
		out, err = apply()
		if w.faulty && w.chance(w.broken) { // carried out, but the answer does not say so
			var none T
			out, err = none, apierrors.NewInternalError(errors.New("etcd did not answer in time"))
		}
	}
	if p.link(m).noAnswers || w.faulty && w.chance(w.loss) {
		return
	}
	w.after(w.lag(), func() { p.do(func() { finish(out, err) }) })
}

// call is a request of the running task, which waits for the answer.
func call[T any](p *proc, m *machine, timeout time.Duration, apply func() (T, error)) (out T, err error) {
	t := p.w.cur
	if !p.alive || t == nil || t.killed {
		return out, errEnded
	}
	send(p, m, timeout, apply, func(o T, e error) {
		out, err = o, e
		t.step()
	})
	if !t.wait() {
		err = errEnded
	}
	return out, err
}
