package member

import (
	"fmt"
	"net/http"
	"time"
)

// pingParts is which part of a term may pass, once a connection was found dead, until Healthz fails. Pings take another
// one of these parts to find it. So Healthz is true within the duration of a term.
const pingParts = 3

// Healthz fails, and says what is wrong and what to do, if what a Member knows is stale: if for any of its watches the last
// list that worked is older than StaleAfter, on the clock that counts in suspend. It
// never fails for being a follower. Its signature is that of a controller-runtime
// healthz.Checker; the request is unused.
//
// At least every StaleAfter/2 everything is listed anew, by a
// consistent read. So a watch in which nothing happens is not stale, while one behind
// a dead link, without permission, or from an API server that is cut off from etcd is.
// Before the first list, time counts from New, and the error says that nothing was ever listed.
//
// A connection that dies without a word fails it within the shortest duration that a Lease has shown, and within 15 s at
// most, unless a new one can be made. Pings find it, so that needs connections of its own, see the package.
//
// It fails at once if a led term ran out and nothing was heard of the API server since less than a
// third of it was left, until something is. A term that ran out because the hub is silent is no
// failure. It fails as well if the last confirmation
// of the registration, where there has to be one, is older than StaleAfter; and with ErrStopped once the Member has stopped.
//
// The log says when it begins to fail, every minute while it does, and when it succeeds again.
//
// Put it on readiness. A Member connects again by itself, so a liveness probe would restart every Pod for nothing
// while an API server is silent. ErrStopped alone needs another process, and a manager that has stopped ends its own.
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

// checkTheWay is what to do where nothing better is known.
const checkTheWay = "check the address of the API server and the way to it"

// health is Healthz of one watch.
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
