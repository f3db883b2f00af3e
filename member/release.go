package member

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// limit is what all terms lie within, beside their own deadlines.
type limit struct {
	none bool // nobody has to register, so there is none
	lease.Permit
}

func (l *limit) Holds(now lease.Reading) bool { return l.none || l.Permit.Holds(now) }

func (l *limit) Remaining(now lease.Reading) time.Duration {
	if l.none {
		return math.MaxInt64
	}
	return l.Permit.Remaining(now)
}

// maxReleases is how many namespaces one registration may have released at a time: so many
// names fit into it, however long. Others are waited for.
const maxReleases = 1000

// releases says which terms are over, nothing of them being under way any more. Guarded by
// terms.mu. A nil *releases is that of terms that need no registration.
type releases struct {
	open    bool                  // there is a registration, so Leases may be believed
	vacant  map[*nsState]struct{} // where nobody leads, by the last Lease that was believed
	changed chan struct{}         // holds a word when something may have changed
}

// register makes all terms depend on a registration from now on: no Lease is believed before
// the first confirmation. It returns a channel that holds a word whenever there may be
// something new to release.
func (t *terms) register() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit.Store(&limit{})
	t.releases = &releases{vacant: map[*nsState]struct{}{}, changed: make(chan struct{}, 1)}
	return t.releases.changed
}

// waited reports whether somebody waits for releases.
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
	default: // one word is waiting already
	}
}

// confirmed applies a confirmation of the registration. If the one before has run
// out, it is too late, and nothing changes: the hub may have taken this reader for stopped.
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

// distrust ends all terms and forgets all Leases, because the registration is lost. Nothing is
// believed until another one is confirmed, and every Lease is then to be observed anew.
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

// releasable returns which epochs are released now, by namespace: where nobody leads, and
// nothing is under way of any term up to there.
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

// left returns which epochs are released when nothing is led any more for good, by namespace, and
// false while something is under way in any.
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

// finished reports whether nothing of the terms that are over in the namespace is under way.
func (n *nsState) finished(now lease.Reading) bool {
	for tm := range n.past {
		if tm.finished(now) {
			delete(n.past, tm)
		}
	}
	return len(n.past) == 0
}

// finished reports whether nothing of a term that is over is under way: no work, no listener
// that has yet to hear of its end, no write on its way, and no write whose answer got lost and
// which may still take effect. It is kept by the API server from doing so after what remained of the term when it
// was sent (see CapWrites), so that is waited for, on both clocks.
func (t *term) finished(now lease.Reading) bool {
	return len(t.open) == 0 && t.told == 0 && t.writes == 0 && !t.doubtful(now)
}

func (t *term) doubtful(now lease.Reading) bool {
	t.doubts = slices.DeleteFunc(t.doubts, func(p *lease.Permit) bool { return !p.Holds(now) })
	return len(t.doubts) > 0
}

// settle notes that a part of a term has finished. Called under terms.mu.
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

// beginWrite notes that a write is being sent, and returns what remains of the term for it.
// If that is less than a millisecond the write must not be sent, and the term is over. Otherwise settled is to be called when it is
// clear that it was, or was not, carried out; or that nobody knows.
func (t *term) beginWrite() (left time.Duration, settled func(known bool)) {
	t.terms.mu.Lock()
	defer t.terms.mu.Unlock()
	p := t.permit.Load()
	left = t.remaining().Truncate(time.Millisecond)
	if left <= 0 {
		t.permit.CompareAndSwap(p, nil) // so that nobody finds it standing who was told that it is over
		return 0, nil
	}
	t.writes++
	t.terms.wrote = true
	return left, func(known bool) {
		t.terms.mu.Lock()
		defer t.terms.mu.Unlock()
		t.writes--
		if !known && !slices.Contains(t.doubts, p) {
			t.doubtful(t.clock.Now()) // forgets what is none any more
			t.doubts = append(t.doubts, p)
		}
		t.terms.settle(t)
	}
}
