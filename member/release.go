package member

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// forever is longer than any process runs.
const forever = 100 * 365 * 24 * time.Hour

// maxReleases is how many namespaces one registration may have released at a time: so many names fit into it, however
// long. Others wait.
const maxReleases = 1000

// releases tracks the registration, and which terms are over and have no work left. All but limit is guarded by
// terms.mu.
type releases struct {
	terms   *terms
	limit   atomic.Pointer[lease.Permit] // bounds all terms, in addition to their own deadlines
	needed  bool                         // a registration is needed
	open    bool                         // Leases may be believed: there is a registration, or none is needed
	vacant  map[*nsState]struct{}        // where no cluster leads, by the last Lease that was believed
	changed chan struct{}                // holds a value when something may have changed
}

// require makes all terms depend on a registration. No Lease is believed before the first confirmation. It is called
// before anything is observed.
func (r *releases) require() {
	r.needed, r.open = true, false
	r.limit.Store(&lease.Permit{})
}

// holds reports whether the last confirmation is still valid, or none is needed.
func (r *releases) holds(now lease.Reading) bool { return r.limit.Load().Holds(now) }

// lapsed reports whether there was a confirmation that is no longer valid. The hub may then assume that this reader has
// stopped.
func (r *releases) lapsed(now lease.Reading) bool {
	r.terms.mu.Lock()
	defer r.terms.mu.Unlock()
	return r.open && !r.holds(now)
}

// observe applies the last Lease of a namespace.
func (r *releases) observe(n *nsState) {
	if !r.needed {
		return
	}
	if _, over := n.reader.Over(); !over {
		delete(r.vacant, n)
		return
	}
	r.vacant[n] = struct{}{}
	r.wake()
}

func (r *releases) wake() {
	select {
	case r.changed <- struct{}{}:
	default: // a value is pending already
	}
}

// confirmed applies a confirmation of the registration. It returns false, and changes nothing, if the previous one has
// run out: the hub may assume that this reader has stopped.
func (r *releases) confirmed(p lease.Permit) bool {
	r.terms.mu.Lock()
	defer r.terms.mu.Unlock()
	if r.open && !r.holds(r.terms.clock.Now()) {
		return false
	}
	r.open = true
	r.limit.Store(&p)
	return true
}

// lost ends all terms and forgets all Leases, because the registration is lost. No Lease is believed until another
// registration is confirmed, and every Lease must then be observed again.
func (r *releases) lost(why string) {
	t := r.terms
	t.mu.Lock()
	defer t.mu.Unlock()
	r.open = false
	r.limit.Store(&lease.Permit{})
	for n, tm := range t.led {
		t.end(n, tm, why)
	}
	t.namespaces.Range(func(_, v any) bool {
		n := v.(*nsState)
		clear(n.leases)
		n.problem = problem{}
		n.reader.Gone()
		return true
	})
	clear(r.vacant)
}

// releasable returns the epochs that are released now, by namespace. These are namespaces where no cluster leads and no
// term up to that epoch has work left.
func (r *releases) releasable() map[string]int64 {
	r.terms.mu.Lock()
	defer r.terms.mu.Unlock()
	now := r.terms.clock.Now()
	released := map[string]int64{}
	for n := range r.vacant {
		if epoch, _ := n.reader.Over(); epoch > 0 && n.finished(now) {
			released[n.name] = epoch
		}
	}
	return atMost(maxReleases, released)
}

// final returns the epochs that are released once all terms have ended for good, by namespace. It returns false while
// any namespace has work left.
func (r *releases) final() (released map[string]int64, finished bool) {
	r.terms.mu.Lock()
	defer r.terms.mu.Unlock()
	now := r.terms.clock.Now()
	released, finished = map[string]int64{}, true
	r.terms.namespaces.Range(func(_, v any) bool {
		n := v.(*nsState)
		finished = n.finished(now) && finished
		epoch, over := n.reader.Over()
		if !over {
			epoch = 0
		}
		if epoch = max(epoch, n.last); epoch > 0 {
			released[n.name] = epoch
		}
		return true
	})
	return atMost(maxReleases, released), finished
}

func atMost(limit int, released map[string]int64) map[string]int64 {
	for _, name := range slices.Sorted(maps.Keys(released))[min(limit, len(released)):] {
		delete(released, name)
	}
	return released
}

// settle records that a part of a term has finished. The caller holds terms.mu.
func (r *releases) settle(tm *term) {
	if tm.finished(r.terms.clock.Now()) && tm.cause != nil {
		delete(tm.ns.past, tm)
		r.wake()
	}
}

// finished reports whether the terms that are over in the namespace have no work left.
func (n *nsState) finished(now lease.Reading) bool {
	maps.DeleteFunc(n.past, func(tm *term, _ struct{}) bool { return tm.finished(now) })
	return len(n.past) == 0
}

// finished reports whether a term that is over has no work left. It has no open context, no listener that has yet to
// return from Demoted, and no write in flight. Nor has it an unanswered write that may still take effect. CapWrites has
// the API server drop such a write after the time that remained of the term when it was sent. So finished waits for
// that time, on both clocks.
func (t *term) finished(now lease.Reading) bool {
	t.unanswered = slices.DeleteFunc(t.unanswered, func(p *lease.Permit) bool { return !p.Holds(now) })
	return len(t.open) == 0 && t.promoted == 0 && t.writes == 0 && len(t.unanswered) == 0
}

// beginWrite records that a write is being sent, and returns what remains of the term for it. If less than a
// millisecond remains, the write must not be sent, and the term is over. Otherwise the caller calls settled when the
// outcome is known, or will stay unknown.
func (t *term) beginWrite() (left time.Duration, settled func(known bool)) {
	t.terms.mu.Lock()
	defer t.terms.mu.Unlock()
	p := t.permit.Load()
	left = t.remaining().Truncate(time.Millisecond)
	if left <= 0 {
		t.permit.CompareAndSwap(p, nil) // a caller that got 0 must not find the term still standing
		return 0, nil
	}
	t.writes++
	return left, func(known bool) {
		t.terms.mu.Lock()
		defer t.terms.mu.Unlock()
		t.writes--
		if !known && !slices.Contains(t.unanswered, p) {
			t.unanswered = append(t.unanswered, p)
		}
		t.terms.releases.settle(t)
	}
}
