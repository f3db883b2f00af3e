package member

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// limit bounds all terms, in addition to their own deadlines.
type limit struct {
	none bool // no registration is needed, so there is no limit
	lease.Permit
}

func (l *limit) Holds(now lease.Reading) bool { return l.none || l.Permit.Holds(now) }

func (l *limit) Remaining(now lease.Reading) time.Duration {
	if l.none {
		return math.MaxInt64
	}
	return l.Permit.Remaining(now)
}

// maxReleases is how many namespaces one registration may have released at a time: so many names fit into it, however
// long. Others wait.
const maxReleases = 1000

// releases tracks which terms are over and have no work left. Guarded by terms.mu. It is nil for terms that need no
// registration.
type releases struct {
	open    bool                  // there is a registration, so Leases may be believed
	vacant  map[*nsState]struct{} // where no cluster leads, by the last Lease that was believed
	changed chan struct{}         // holds a value when something may have changed
}

// register makes all terms depend on a registration from now on: no Lease is believed before the first confirmation. It
// returns a channel that holds a value whenever there may be something new to release.
func (t *terms) register() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit.Store(&limit{})
	t.releases = &releases{vacant: map[*nsState]struct{}{}, changed: make(chan struct{}, 1)}
	return t.releases.changed
}

// waited reports whether the hub waits for releases, which it does for a registered reader.
func (t *terms) waited() bool { return !t.limit.Load().none }

// closed reports whether no Lease may be believed yet.
func (r *releases) closed() bool { return r != nil && !r.open }

// note applies the last Lease of a namespace.
func (r *releases) note(n *nsState) {
	if r == nil {
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
	if r == nil {
		return
	}
	select {
	case r.changed <- struct{}{}:
	default: // a value is pending already
	}
}

// confirmed applies a confirmation of the registration. After the previous one has run out it is too late, and nothing
// changes: the hub may assume that this reader has stopped.
func (t *terms) confirmed(p lease.Permit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.releases.open && !t.limit.Load().Holds(t.clock.Now()) {
		return
	}
	t.releases.open = true
	t.limit.Store(&limit{Permit: p})
}

// registered reports whether the last confirmation is still valid.
func (t *terms) registered() bool { return t.limit.Load().Holds(t.clock.Now()) }

// distrust ends all terms and forgets all Leases, because the registration is lost. No Lease is believed until another
// registration is confirmed, and every Lease must then be observed again.
func (t *terms) distrust(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.releases.open = false
	t.limit.Store(&limit{})
	for n, tm := range t.led {
		t.end(n, tm, why)
	}
	t.namespaces.Range(func(_, v any) bool {
		n := v.(*nsState)
		clear(n.leases)
		n.reader.Gone()
		return true
	})
	clear(t.releases.vacant)
}

// releasable returns the epochs that are released now, by namespace. These are namespaces where no cluster leads and no
// term up to that epoch has work left.
func (t *terms) releasable() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	released := map[string]int64{}
	for n := range t.releases.vacant {
		if epoch, _ := n.reader.Over(); epoch > 0 && n.finished(now) {
			released[n.name] = epoch
		}
	}
	return atMost(maxReleases, released)
}

// left returns the epochs that are released once all terms have ended for good, by namespace. It returns false while
// any namespace has work left.
func (t *terms) left() (released map[string]int64, finished bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	released, finished = map[string]int64{}, true
	t.namespaces.Range(func(_, v any) bool {
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

// finished reports whether the terms that are over in the namespace have no work left.
func (n *nsState) finished(now lease.Reading) bool {
	for tm := range n.past {
		if tm.finished(now) {
			delete(n.past, tm)
		}
	}
	return len(n.past) == 0
}

// finished reports whether a term that is over has no work left. It has no open context, no listener that has yet to
// return from Demoted, and no write in flight. Nor has it an unanswered write that may still take effect. CapWrites has
// the API server drop such a write after the time that remained of the term when it was sent. So finished waits for
// that time, on both clocks.
func (t *term) finished(now lease.Reading) bool {
	return len(t.open) == 0 && t.told == 0 && t.writes == 0 && !t.doubtful(now)
}

func (t *term) doubtful(now lease.Reading) bool {
	t.doubts = slices.DeleteFunc(t.doubts, func(p *lease.Permit) bool { return !p.Holds(now) })
	return len(t.doubts) > 0
}

// settle records that a part of a term has finished. The caller holds terms.mu.
func (t *terms) settle(tm *term) {
	if tm.cause != nil && tm.finished(t.clock.Now()) {
		delete(tm.ns.past, tm)
		t.releases.wake()
	}
}

// uncapped reports whether there was work in a term that is to be released, and CapWrites has never seen a write.
func (t *terms) uncapped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.releases != nil && t.worked && !t.wrote
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
	t.terms.wrote = true
	return left, func(known bool) {
		t.terms.mu.Lock()
		defer t.terms.mu.Unlock()
		t.writes--
		if !known && !slices.Contains(t.doubts, p) {
			t.doubtful(t.clock.Now()) // forgets writes that can no longer take effect
			t.doubts = append(t.doubts, p)
		}
		t.terms.settle(t)
	}
}
