package member

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

var (
	// ErrNotLeader reports that this cluster does not lead the namespace.
	ErrNotLeader = errors.New("this cluster does not lead the namespace")
	// ErrLost reports that a term is over. It is the cause of every context that ended because its term did:
	// errors.Is(context.Cause(ctx), member.ErrLost).
	ErrLost = errors.New("the term is over")
	// ErrNotBegun reports that an act was not begun, because its term was over before it: nothing of it has happened or
	// will. It comes with ErrLost. An error that wraps ErrLost alone may have ended an act midway.
	ErrNotBegun = errors.New("not begun")
)

// Term is one unbroken leadership of one namespace by this cluster. It stays the same through renewals, and once it has
// ended it never holds again. If the same cluster leads again, even in the same epoch, that is another Term.
//
// The zero Term never holds. Terms are small, comparable and safe for concurrent use. No method allocates or blocks.
type Term struct{ t *term }

// Epoch is the fencing token of the term. Hand it to external systems that can refuse a lower one than they have seen.
func (t Term) Epoch() int64 {
	if t.t == nil {
		return 0
	}
	return t.t.epoch
}

// Cluster is the identity of this cluster, which holds the term: `<cluster>.<namespace of the Cluster>`, by the names
// of the management cluster.
func (t Term) Cluster() string {
	if t.t == nil {
		return ""
	}
	return t.t.cluster
}

// Holds reports whether the term goes on: it has not been revoked, and both clocks, read now, are before its deadline.
func (t Term) Holds() bool { return t.t != nil && t.t.holds() }

// Remaining is how long the term lasts from now on without a renewal, by the clock that shows less; 0 when it is over.
// There is no deadline as a time.Time, because a comparison with time.Now() would miss time spent in suspend.
func (t Term) Remaining() time.Duration {
	if t.t == nil {
		return 0
	}
	return t.t.remaining()
}

// lost returns why the term is over. It wraps ErrLost.
func (t Term) lost() error {
	all := t.t.terms
	all.mu.Lock()
	defer all.mu.Unlock()
	if t.t.cause != nil {
		return t.t.cause
	}
	return t.t.lost(all.expired(t.t.ns, t.t, all.clock.Now()))
}

// term is the state behind a Term.
type term struct {
	epoch   int64
	cluster string
	terms   *terms
	ns      *nsState

	// permit is what the last renewal permits, nil when the term is over. Whoever finds it run out sets it to nil, and
	// nothing sets it again. So a single failed check ends this term. The next one is another term, which re-enqueues the
	// work that the check skipped.
	permit atomic.Pointer[lease.Permit]

	// Guarded by terms.mu.
	arrived    arrival                               // of the Lease that renewed it last
	cause      error                                 // why the term is over, nil while it is not
	open       map[*context.CancelCauseFunc]struct{} // of the contexts to cancel at its end
	promoted   int                                   // listeners that were promoted and not yet demoted
	writes     int                                   // in flight
	unanswered []*lease.Permit                       // of writes without an answer, see finished
}

func (t *term) holds() bool {
	for {
		p, limit := t.permit.Load(), t.terms.releases.limit.Load() // before the clock: a pause in between makes less remain
		if p == nil {
			return false
		}
		if now := t.terms.clock.Now(); p.Holds(now) && limit.Holds(now) {
			return true
		}
		if t.permit.CompareAndSwap(p, nil) {
			return false
		}
	}
}

// lost returns the error of a term that is over for this reason.
func (t *term) lost(why string) error {
	return fmt.Errorf("%w: namespace %s, epoch %d: %s", ErrLost, t.ns.name, t.epoch, why)
}

func (t *term) remaining() time.Duration {
	p, limit := t.permit.Load(), t.terms.releases.limit.Load()
	if p == nil {
		return 0
	}
	now := t.terms.clock.Now()
	return min(p.Remaining(now), limit.Remaining(now))
}

// renew replaces what is permitted, unless the term is over or has just run out. The caller holds terms.mu, so only
// holds can intervene.
func (t *term) renew(p lease.Permit) bool {
	old, limit := t.permit.Load(), t.terms.releases.limit.Load()
	now := t.terms.clock.Now()
	return old != nil && old.Holds(now) && limit.Holds(now) && t.permit.CompareAndSwap(old, &p)
}
