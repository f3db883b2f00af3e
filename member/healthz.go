package member

import (
	"fmt"
	"net/http"
	"time"
)

// pingParts divides the duration of a term. Pings take one such part to find a dead connection, and Healthz fails one
// part later. So Healthz fails within the duration of a term.
const pingParts = 3

// Healthz fails, and returns the problem and what to do about it, if the Member's view is stale. It is stale if for any
// watch the last successful list is older than StaleAfter, on the clock that counts in suspend. It never fails for
// being a follower. Its signature is controller-runtime's healthz.Checker. The request is unused.
//
// At least every StaleAfter/2 the Member lists everything again, by a consistent read. So a watch without events is not
// stale. A watch behind a dead link, without permission, or from an API server that is cut off from etcd is. Before the
// first list, time counts from New, and the error says that nothing was ever listed.
//
// A connection that dies silently fails it, unless a new one can be made. It takes at most the shortest duration that a
// Lease has shown, and at most 15 s. Pings find such a connection, so this needs the Member's own connections, see the
// package.
//
// It fails at once if a led term ran out, and the API server was silent while less than a third of it was left. It
// succeeds again once a list or an event arrives. A term that ran out because the hub is silent is no failure.
//
// If there is a registration, it also fails when the last confirmation is older than StaleAfter. It fails with
// ErrStopped once the Member has stopped.
//
// The Member logs when it begins to fail, every minute while it fails, and when it succeeds again.
//
// Put it on readiness. A Member connects again by itself, so a liveness probe would restart every Pod for nothing while
// an API server is silent. Only ErrStopped needs another process, and a manager that has stopped ends its own.
func (m *Member) Healthz(*http.Request) error {
	if m.terms == nil {
		return errNotMade
	}
	err := m.health()
	m.teller.health(err)
	return err
}

func (m *Member) health() error {
	if m.terms.over() {
		return fmt.Errorf("member: %w: make a new one, or end this process", ErrStopped)
	}
	now := m.clock.Now().Boot
	if m.registrar != nil && m.started.Load() {
		if err := m.registrar.stale(now, m.stale); err != nil {
			return err
		}
	}
	for _, w := range m.watches {
		if err := w.health(now); err != nil {
			return err
		}
	}
	return nil
}

// checkTheWay is the advice where no better one is known.
const checkTheWay = "check the address of the API server and the way to it"

// health is Healthz for one watch.
func (w *watched) health(now time.Duration) error {
	m := w.member
	if err := w.alarm.silent(now); err != nil {
		return fmt.Errorf("member: the watch of leases in %s is %w; %s", w, err, w.cure())
	}
	age := now - time.Duration(w.listed.Load())
	asked := time.Duration(w.asked.Load())
	switch {
	case asked > 0 && w.everListed() && now-asked >= m.link.current().duration/pingParts:
		return fmt.Errorf("member: the watch of leases in %s is dead: its connection is gone, and the API server has not answered for %v; %s",
			w, (now - asked).Round(time.Millisecond), w.cure())
	case age <= m.stale:
		return nil
	case !m.started.Load():
		return fmt.Errorf("member: the leases in %s were never listed, because the Member is not started: %s", w, howToStart)
	case !w.everListed():
		return fmt.Errorf("member: the leases in %s were never listed, for %v by now; %s", w, age.Round(time.Millisecond), w.cure())
	}
	return fmt.Errorf("member: the watch of leases in %s is stale: last listed %v ago, want at most %v; %s",
		w, age.Round(time.Millisecond), m.stale, w.cure())
}
