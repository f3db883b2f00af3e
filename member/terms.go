package member

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	utilclock "k8s.io/utils/clock"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/member/internal/hook"
)

// recheck is how often the clocks are checked while anything is led. Timers stand still in suspend and ignore steps of
// the wall clock. recheck bounds how long a context can outlive its term after either.
const recheck = 100 * time.Millisecond

// Leader reports who may act. [Member] is the real one, membertest.Fake the one for tests. All methods are safe for
// concurrent use.
type Leader interface {
	// Term returns the term in which this cluster leads the namespace now, and false if it does not. It neither blocks nor
	// allocates.
	Term(namespace string) (Term, bool)
	// Context returns a context for work in the current term, see Member.Context.
	Context(ctx context.Context, namespace string) (context.Context, context.CancelFunc, error)
	// Listen notifies the listener of the current state, and of every change from then on, see Member.Listen.
	Listen(l Listener) (remove func())
}

var _ Leader = (*terms)(nil)

// terms applies the reader's rule to the Leases of one cluster and tracks the terms that follow from them. It does no
// I/O: a [Member] feeds it from a watch, as programs need, and package membertest by hand.
//
// It never forgets a namespace, so that its epochs cannot go back. This takes about 1 KiB for each namespace that ever
// had a Lease.
type terms struct {
	clock lease.Clock
	skew  time.Duration

	// A Member sets these three before anything is observed. The caller of both functions holds mu.
	only    []string                                            // the watched namespaces; empty: all
	status  func(namespace string) (trouble string, known bool) // as Member.status
	overdue func(namespace string, now, term time.Duration)     // a renewal of a term that lasts so long is overdue

	// namespaces holds a *nsState under each name. Term reads it without a lock.
	namespaces sync.Map

	// mu guards all fields below, and what comments elsewhere name. It is held for microseconds, never across I/O or a
	// call to a listener.
	mu       sync.Mutex
	notifier notifier
	releases releases
	led      map[*nsState]*term
	waiting  map[string]chan struct{} // closed when a term begins in the namespace, where Lead waits for one
	timer    utilclock.Timer          // runs while led is not empty
	due      time.Duration            // when it fires, on the clock that Reading.Boot shows
	ended    chan struct{}            // closed when all terms have ended for good, see over
}

// nsState is what is known about one namespace. All but term is guarded by terms.mu.
type nsState struct {
	name    string
	term    atomic.Pointer[term] // nil when this cluster does not lead
	reader  lease.Reader
	leases  map[string]lease.Content // by the name of the Lease
	last    int64                    // the epoch of the last term that began here
	terms   int64                    // how many began here
	seen    lease.Content            // the last Lease that was believed
	arrived arrival                  // of that Lease
	problem problem                  // of the Lease that was seen last
	past    map[*term]struct{}       // terms that are over while work of them goes on, or may
}

func init() {
	hook.NewTerms = func(clock lease.Clock, skew time.Duration) any { return newTerms(clock, skew) }
}

// newTerms returns terms without any Lease, so nothing is led. The clock judges the terms. skew is ε, how far in the
// future a renewTime may lie.
func newTerms(clock lease.Clock, skew time.Duration) *terms {
	t := &terms{
		clock: clock, skew: skew, led: map[*nsState]*term{}, waiting: map[string]chan struct{}{}, ended: make(chan struct{}),
		status:  func(string) (trouble string, known bool) { return "", true },
		overdue: func(string, time.Duration, time.Duration) {},
	}
	t.notifier.terms, t.notifier.idle.L = t, &t.mu
	t.releases = releases{terms: t, open: true, vacant: map[*nsState]struct{}{}, changed: make(chan struct{}, 1)}
	unlimited := lease.Registration{Confirmed: clock.Now().Wall, Duration: forever}.Permit(clock.Now())
	t.releases.limit.Store(&unlimited)
	return t
}

// Listen implements Member.Listen.
func (t *terms) Listen(l Listener) (remove func()) { return t.notifier.listen(l) }

// Term implements Member.Term.
func (t *terms) Term(namespace string) (Term, bool) {
	n := t.lookup(namespace)
	if n == nil {
		return Term{}, false
	}
	tm := n.term.Load()
	if tm == nil || !tm.holds() {
		return Term{}, false
	}
	return Term{tm}, true
}

func (t *terms) lookup(name string) *nsState {
	v, ok := t.namespaces.Load(name)
	if !ok {
		return nil
	}
	return v.(*nsState)
}

// Observe applies a Lease that was received just now. Observing the same Lease again changes nothing. A Lease without
// the label of the hub counts as deleted: a watch for that label reports a deletion when the label is removed.
//
// If one namespace has several Leases, because the policy's leaseName was changed, the highest epoch decides.
func (t *terms) Observe(l *coordinationv1.Lease) {
	if !wire.Labelled(l) {
		t.Delete(l.Namespace, l.Name)
		return
	}
	now := t.clock.Now()
	c, _ := wire.Read(l)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.releases.open {
		return
	}
	n := t.know(c.Namespace)
	n.leases[c.Name] = c
	t.apply(n, n.take(c, now), now, "")
}

// Delete records that a Lease does not exist. A missing Lease permits nothing.
func (t *terms) Delete(namespace, name string) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.lookup(namespace); n != nil {
		t.forget(n, name, now)
	}
}

// Replace applies a list of all the Leases in a namespace, or in the cluster if the namespace is empty. Leases that are
// not in the list count as deleted.
func (t *terms) Replace(namespace string, all []coordinationv1.Lease) {
	listed := map[[2]string]bool{}
	for i := range all {
		l := &all[i]
		t.Observe(l)
		listed[[2]string{l.Namespace, l.Name}] = true
	}
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if namespace != "" {
		t.notifier.announce(t.know(namespace)) // it is known now, even if it has no Lease
	}
	t.namespaces.Range(func(_, v any) bool {
		n := v.(*nsState)
		if namespace != "" && namespace != n.name {
			return true
		}
		for name := range n.leases {
			if !listed[[2]string{n.name, name}] {
				t.forget(n, name, now)
			}
		}
		return true
	})
}

// Why a term is over.
const (
	goneLease   = "its Lease is gone"
	unconfirmed = "its registration was not confirmed in time"
)

// know returns the state of a namespace, which it creates if there is none.
func (t *terms) know(name string) *nsState {
	if n := t.lookup(name); n != nil {
		return n
	}
	n := &nsState{
		name: name, reader: lease.Reader{Skew: t.skew}, leases: map[string]lease.Content{}, past: map[*term]struct{}{},
	}
	t.namespaces.Store(name, n)
	return n
}

// forget drops one Lease. The other Leases of the namespace are observed again. They permit no more than before,
// because only a later deadline changes a lease.Reader.
func (t *terms) forget(n *nsState, name string, now lease.Reading) {
	if _, ok := n.leases[name]; !ok {
		return
	}
	delete(n.leases, name)
	n.reader.Gone()
	p := lease.Permit{}
	n.problem = problem{}
	for _, c := range n.leases {
		p = n.take(c, now)
	}
	t.apply(n, p, now, goneLease)
}

// apply updates the namespace's term to what is permitted since now. The argument why is the reason if this ends a
// term; empty: the last Lease gives it.
func (t *terms) apply(n *nsState, p lease.Permit, now lease.Reading, why string) {
	leads := p.Holds(now) && t.releases.holds(now) && !t.over()
	if tm := n.term.Load(); tm != nil {
		switch {
		case leads && tm.epoch == p.Epoch && tm.renew(p):
			tm.arrived = n.arrived
			return
		case !tm.holds():
			why = t.expired(n, tm, now)
		case leads:
			why = fmt.Sprintf("the next one has begun in epoch %d", p.Epoch)
		case why == "":
			why = t.why(n)
		}
		t.end(n, tm, why)
	}
	if leads {
		tm := &term{
			epoch: p.Epoch, cluster: n.seen.Cluster, arrived: n.arrived, terms: t, ns: n,
			open: map[*context.CancelCauseFunc]struct{}{},
		}
		tm.permit.Store(&p)
		t.led[n] = tm
		n.last = p.Epoch
		n.terms++
		n.term.Store(tm)
		t.arm(now, p)
		if waiting := t.waiting[n.name]; waiting != nil {
			close(waiting)
			delete(t.waiting, n.name)
		}
	}
	t.notifier.announce(n)
	t.releases.observe(n)
}

// expired is called when the deadline of a term has passed. It returns the reason, for people.
func (t *terms) expired(n *nsState, tm *term, now lease.Reading) string {
	if !t.releases.holds(now) {
		return unconfirmed
	}
	trouble, _ := t.status(n.name)
	return because(ranOut(tm.arrived), cmp.Or(n.problem.text, trouble))
}

// end ends a term at once: first checks fail, then its contexts are cancelled, then listeners are notified. Cancelling
// cannot call back into terms, because functions attached to a context run in their own goroutines.
func (t *terms) end(n *nsState, tm *term, why string) {
	tm.permit.Store(nil)
	n.term.Store(nil)
	delete(t.led, n)
	tm.cause = tm.lost(why)
	for cancel := range tm.open {
		(*cancel)(tm.cause)
	}
	if t.releases.needed {
		n.past[tm] = struct{}{}
	}
	t.releases.settle(tm)
	t.notifier.announce(n)
}

// Check ends every term that has run out, and reports overdue renewals: the hub renews a term before half of it has
// passed. A timer does this in a Member. A test that controls the clock must call it.
func (t *terms) Check() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	t.due = 0
	for n, tm := range t.led {
		p := tm.permit.Load()
		if p == nil || p.Remaining(now) < tm.arrived.lasts/3 {
			t.overdue(n.name, now.Boot, tm.arrived.lasts)
		}
		if p != nil && p.Holds(now) && t.releases.holds(now) {
			t.arm(now, *p)
			continue
		}
		t.end(n, tm, t.expired(n, tm, now))
	}
}

// arm schedules Check for when p or the limit runs out, but not later than recheck.
func (t *terms) arm(now lease.Reading, p lease.Permit) {
	in := min(p.Remaining(now), t.releases.limit.Load().Remaining(now), recheck)
	if at := now.Boot + in; t.due == 0 || at < t.due {
		t.due = at
		if t.timer == nil {
			t.timer = utilclock.RealClock{}.AfterFunc(in, t.Check)
			return
		}
		t.timer.Reset(in)
	}
}

// stop ends all terms for good.
func (t *terms) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.ended)
	for n, tm := range t.led {
		t.end(n, tm, "the reader has stopped")
	}
}

// over reports whether all terms have ended for good.
func (t *terms) over() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}
