package member

import (
	"fmt"
	"sync"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// scarcity divides the duration of a led term: with less than duration/scarcity left, a renewal is overdue. The hub
// renews at least every half of the duration.
const scarcity = 3

// alarm notifies a watch of overdue renewals of led terms. It records whether a list or an event has arrived since.
type alarm struct {
	rings chan struct{} // holds a value while an overdue renewal awaits handling

	// All three are readings of the clock, as in Reading.Boot.
	mu      sync.Mutex
	heard   time.Duration // when a list or an event last arrived
	missing time.Duration // when a renewal was last found overdue
	over    time.Duration // the earliest end of the terms with an overdue renewal
}

// alarm registers and returns the alarm of the namespace, or of all namespaces.
func (t *terms) alarm(namespace string) *alarm {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &alarm{rings: make(chan struct{}, 1)}
	t.alarms[namespace] = a
	return a
}

// alert rings for a term with less time left than it should have, once for each overdue renewal. The caller holds
// terms.mu.
func (t *terms) alert(n *nsState, tm *term, now lease.Reading, left time.Duration) {
	if tm.alerted || left >= n.duration(tm.epoch)/scarcity {
		return
	}
	tm.alerted = true
	for _, namespace := range []string{n.name, allNamespaces} {
		if a := t.alarms[namespace]; a != nil {
			a.ring(now.Boot, now.Boot+left)
		}
	}
}

// duration returns how long a term of this epoch lasts after a renewal.
func (n *nsState) duration(epoch int64) (d time.Duration) {
	for _, c := range n.leases {
		if c.Epoch == epoch && c.LeadsHere() {
			d = max(d, c.Duration)
		}
	}
	return d
}

// scarce looks for led terms with an overdue renewal, in one namespace or in all. It returns the remaining time and the
// duration of the term with the least left, and false if no renewal is overdue.
func (t *terms) scarce(namespace string) (left, duration time.Duration, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	for n, tm := range t.led {
		p := tm.permit.Load()
		if p == nil || namespace != allNamespaces && namespace != n.name {
			continue
		}
		of, remain := n.duration(tm.epoch), p.Remaining(now)
		if remain > 0 && remain < of/scarcity && (!found || remain < left) {
			left, duration, found = remain, of, true
		}
	}
	return left, duration, found
}

// ring records an overdue renewal of a term that ends at over, and wakes the watch.
func (a *alarm) ring(now, over time.Duration) {
	a.mu.Lock()
	if a.heard >= a.missing || over < a.over {
		a.over = over
	}
	a.missing = now
	a.mu.Unlock()
	select {
	case a.rings <- struct{}{}:
	default: // the watch has yet to handle the previous one
	}
}

// hear records that a list or an event has arrived.
func (a *alarm) hear(now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = now
}

// unheard reports whether no list and no event has arrived since a renewal was last found overdue.
func (a *alarm) unheard() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.missing > a.heard
}

// hears reports whether a list or an event has arrived since a renewal in the namespace was last found overdue. The
// caller holds terms.mu.
func (t *terms) hears(namespace string) bool {
	for _, scope := range []string{namespace, allNamespaces} {
		if a := t.alarms[scope]; a != nil && a.unheard() {
			return false
		}
	}
	return true
}

// silent returns an error if a term has run out while the API server was silent.
func (a *alarm) silent(now time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.missing <= a.heard || now < a.over {
		return nil
	}
	return fmt.Errorf("silent: a term ran out %v ago because nothing was heard, for %v by now",
		(now - a.over).Round(time.Millisecond), (now - a.heard).Round(time.Millisecond))
}
