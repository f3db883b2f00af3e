package member

import (
	"fmt"
	"sync"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// scarcity is how much of a led term's duration is left, as a part of it, when news are missing: the hub renews
// every half of it at least.
const scarcity = 3

// alarm tells a watch that news of led terms are missing, and knows whether anything was heard since.
type alarm struct {
	rings chan struct{} // holds a word when news of another renewal are missing

	// These are as in Reading.Boot.
	mu      sync.Mutex
	heard   time.Duration // when the API server last said anything
	missing time.Duration // when news were last found to be missing
	over    time.Duration // when the first of the terms is over that they were found to be missing of
}

// alarm returns what rings for the namespace, or for all.
func (t *terms) alarm(namespace string) *alarm {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &alarm{rings: make(chan struct{}, 1)}
	t.alarms[namespace] = a
	return a
}

// alert rings for a term that has less left than it should, once for each renewal that is missing. Called under terms.mu.
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

// duration is how long a term of this epoch lasts after a renewal.
func (n *nsState) duration(epoch int64) (d time.Duration) {
	for _, c := range n.leases {
		if c.Epoch == epoch && c.LeadsHere() {
			d = max(d, c.Duration)
		}
	}
	return d
}

// scarce returns how much is left of the led term in a namespace, or in all, of which news are missing and the least
// is left, and its duration. It returns false if there is none.
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

// ring says that news are missing of a term that will be over then.
func (a *alarm) ring(now, over time.Duration) {
	a.mu.Lock()
	if a.heard >= a.missing || over < a.over {
		a.over = over
	}
	a.missing = now
	a.mu.Unlock()
	select {
	case a.rings <- struct{}{}:
	default: // one word is waiting already
	}
}

// hear says that the API server lives.
func (a *alarm) hear(now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = now
}

// unheard reports whether nothing was heard since news were found to be missing.
func (a *alarm) unheard() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.missing > a.heard
}

// hears reports whether the API server was heard since news of the namespace were found to be missing. Called under
// terms.mu.
func (t *terms) hears(namespace string) bool {
	for _, scope := range []string{namespace, allNamespaces} {
		if a := t.alarms[scope]; a != nil && a.unheard() {
			return false
		}
	}
	return true
}

// silent returns an error if a term is over since, and nothing was heard.
func (a *alarm) silent(now time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.missing <= a.heard || now < a.over {
		return nil
	}
	return fmt.Errorf("silent: a term ran out %v ago because nothing was heard, for %v by now",
		(now - a.over).Round(time.Millisecond), (now - a.heard).Round(time.Millisecond))
}
