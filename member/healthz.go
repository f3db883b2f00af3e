package member

import (
	"fmt"
	"net/http"
	"time"
)

// Healthz fails, and returns the problem and what to do about it, if the Member's view is stale. It is stale if any
// watch has shown nothing for longer than StaleAfter, on the clock that counts in suspend. It never fails for being a
// follower. Its signature is controller-runtime's healthz.Checker. The request is unused.
//
// After StaleAfter/2 without an event the Member lists everything again, by a consistent read. So a watch without
// events is not stale. A watch is stale behind a dead link, without permission, or if etcd is cut off.
// Before the first list, time counts from New.
//
// It fails earlier if a watch has ended, and lists have had no answer for a third of the shortest duration that a Lease
// has shown, and at most 5 s. Pings find a connection that died silently, within as long. They need the Member's own
// connections, see the package. An API server that refuses lists has answered.
//
// If there is a registration, it also fails when the last confirmation is older than StaleAfter. It fails with
// ErrStopped once the Member has stopped.
//
// Put it on readiness. A Member connects again by itself, so a liveness probe would restart every Pod for nothing while
// an API server is silent. Only ErrStopped needs another process, and a manager that has stopped ends its own.
func (m *Member) Healthz(*http.Request) error {
	if m.terms.over() {
		return fmt.Errorf("member: %w: make a new one, or end this process", ErrStopped)
	}
	now := m.clock.Now().Boot
	if r := m.registrar; r != nil && m.started.Load() {
		if age := now - time.Duration(r.confirmed.Load()); age > m.stale {
			view := fmt.Sprintf("was not confirmed for %v, want at most %v", age.Round(time.Millisecond), m.stale)
			return fmt.Errorf("member: the registration in namespace %s %s", r.namespace, because(view, textOf(&r.problem)))
		}
	}
	for _, w := range m.watchers {
		if err := w.health(now); err != nil {
			return err
		}
	}
	return nil
}

// health is Healthz for one watch.
func (w *watcher) health(now time.Duration) error {
	m := w.member
	age, asked := now-time.Duration(w.seen.Load()), time.Duration(w.asked.Load())
	_, duration := m.connections.get()
	var view string
	switch {
	case asked > 0 && w.everListed() && now-asked >= duration/3:
		view = fmt.Sprintf("is dead: the API server has not answered for %v", (now - asked).Round(time.Millisecond))
	case age > m.stale:
		view = fmt.Sprintf("is stale: nothing was seen for %v, want at most %v", age.Round(time.Millisecond), m.stale)
	default:
		return nil
	}
	trouble, _ := m.status(w.namespace)
	return fmt.Errorf("member: the watch of leases in %s %s", w, because(view, trouble))
}
