package member

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	utilclock "k8s.io/utils/clock"

	"github.com/leasecast/leasecast/api/lease"
)

// Member watches the Leases of its cluster and reports in which namespaces this cluster leads. It leads nothing before
// Start or after it. Only New makes one. All methods are safe for concurrent use.
type Member struct {
	terms       *terms
	log         logr.Logger
	clock       lease.Clock
	stale       time.Duration
	watchers    []*watcher
	connections *connections
	started     atomic.Bool
	reporter    reporter
	registrar   *registrar // nil: not registered
}

var _ Leader = (*Member)(nil)

// New returns a Member for the cluster that cfg points to. It sends no request yet. Of cfg it keeps address,
// credentials and transport. It drops the limits on the rate of requests, and the timeout, which would also cut the
// watch. Its connections are its own and pinged, see the package, unless cfg has a Transport. Invalid options are
// rejected with an error that wraps ErrMisused.
func New(cfg *rest.Config, o Options) (*Member, error) {
	if cfg == nil {
		return nil, fmt.Errorf("%w: New needs the configuration of a client, and got none", ErrMisused)
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "leasecast-member")
	cfg.QPS, cfg.RateLimiter, cfg.Timeout = -1, nil, 0
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	connections, err := newConnections(cfg)
	if err != nil {
		return nil, fmt.Errorf("member: %w", err)
	}
	client := &http.Client{Transport: connections}
	leases, err := coordinationv1client.NewForConfigAndClient(cfg, client)
	authentication, refused := authenticationv1client.NewForConfigAndClient(cfg, client)
	if err := errors.Join(err, refused); err != nil {
		return nil, fmt.Errorf("member: clients: %w", err)
	}
	m := &Member{
		terms:       newTerms(o.Clock, o.MaxClockSkew),
		log:         o.Logger,
		clock:       o.Clock,
		stale:       o.StaleAfter,
		connections: connections,
		reporter:    reporter{log: o.Logger, clock: o.Clock, last: map[string]report{}},
	}
	m.terms.only, m.terms.status = o.Namespaces, m.status
	m.terms.overdue = func(namespace string, now, duration time.Duration) {
		if w := m.watcherOf(namespace); w != nil {
			w.overdue(now, duration)
		}
	}
	namespaces := o.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{allNamespaces}
	}
	for _, ns := range namespaces {
		m.watchers = append(m.watchers, newWatcher(m, leases, ns))
	}
	if o.Registration != nil {
		m.registrar = newRegistrar(m, leases, authentication, o)
	}
	m.terms.Listen(Listener{
		Promoted: func(ns string, _ Term) { m.logState(ns) },
		Demoted:  func(ns string, _ error) { m.logState(ns) },
	})
	utilclock.RealClock{}.AfterFunc(unstartedAfter, func() {
		if !m.started.Load() {
			m.log.Info("This Member was made " + exactly(unstartedAfter) + " ago and is not started, so nothing is led: " +
				howToStart)
		}
	})
	return m, nil
}

// unstartedAfter is how long after New a Member may wait for Start before it logs that it is not started.
const unstartedAfter = 10 * time.Second

// Start watches until ctx ends. Then every term ends, and Start returns when everything it started has stopped, calls
// to listeners included. A registered Member first removes its registration, once all work has finished, and waits at
// most 5 s for that. A controller-runtime manager runs it: mgr.Add(m).
//
// It can be called once. Another call fails at once with an error that wraps ErrMisused. Once Start has returned, the
// Member has stopped, see ErrStopped. If ctx has already ended, Start returns nil at once and sends no request.
func (m *Member) Start(ctx context.Context) error {
	if m.started.Swap(true) {
		return fmt.Errorf("%w: Start was called before, and a Member cannot be started twice: add it to one manager only, "+
			"or make a new one", ErrMisused)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if m.registrar != nil {
			m.registrar.run(ctx, m.follow)
		} else {
			m.follow(ctx)
		}
	})
	<-ctx.Done()
	m.terms.stop()
	all.Wait()
	m.terms.notifier.wait() // also for calls about a Lease that came after stop
	if m.registrar != nil {
		m.registrar.leave(ctx)
	}
	current, _ := m.connections.get()
	current.CloseIdle()
	return nil
}

// follow lists the Leases, then follows them until ctx ends.
func (m *Member) follow(ctx context.Context) {
	var all sync.WaitGroup
	for _, w := range m.watchers {
		all.Go(func() { w.run(ctx) })
	}
	all.Wait()
}

// watcherOf returns the watcher of a namespace, nil if it is not watched.
func (m *Member) watcherOf(namespace string) *watcher {
	for _, w := range m.watchers {
		if w.namespace == allNamespaces || w.namespace == namespace {
			return w
		}
	}
	return nil
}

// Term returns the term in which this cluster leads the namespace now, and false if it does not lead. It takes no lock
// and does not allocate. Most of its cost is reading both clocks. The answer is as old as the watch, but never older
// than the deadline.
func (m *Member) Term(namespace string) (Term, bool) {
	return m.terms.Term(namespace)
}

// Context returns a context for work in the namespace's current term. It is cancelled when ctx is, or at once when the
// term ends. context.Cause then returns an error that wraps ErrLost. It carries the epoch, see EpochFrom.
//
// The context lives as long as the term does, through renewals. So it has no deadline of its own. Below a parent with
// an earlier deadline, context.WithTimeout would set none either, and such a context would never end while the term is
// renewed.
//
// Call the CancelFunc when the work has finished, not before. It also reports that nothing more will be done in this
// term.
//
// If this cluster does not lead the namespace, the error is a *[NotLeaderError]. It wraps ErrNotLeader and names the
// leader and why this cluster does not lead. If the namespace is not watched, the error wraps ErrNotWatched instead. If
// the name is empty, it wraps ErrMisused.
//
// The context carries the Member's logger, unless ctx has one.
func (m *Member) Context(ctx context.Context, namespace string) (context.Context, context.CancelFunc, error) {
	work, done, err := m.terms.Context(ctx, namespace)
	if err != nil {
		if m.terms.State(namespace).Why == noLease {
			m.logState(namespace)
		}
		return nil, nil, err
	}
	if _, err := logr.FromContext(work); err != nil {
		work = logr.NewContext(work, m.log)
	}
	return work, done, nil
}

// State returns the state of a namespace now. It is for people and their logs: it takes a lock, which Term does not.
func (m *Member) State(namespace string) State {
	return m.terms.State(namespace)
}

// Namespaces returns the namespaces that have a Lease of a hub now, in ascending order. It is empty before Start, and
// once the Member has stopped.
func (m *Member) Namespaces() []string {
	return m.terms.Namespaces()
}

// Lead runs f whenever this cluster leads the namespace. It waits for a term and runs f with the context of that term
// (see Context). When the term ends, it waits for f to return, and then for the next term. It is what
// leaderelection.RunOrDie is between processes, except that the process need not exit: f runs again.
//
// For a namespace that is not watched it returns an error that wraps ErrNotWatched at once. For an empty name the error
// wraps ErrMisused. Otherwise it returns
//   - the error of f, when f returns while the term goes on;
//   - context.Cause(ctx), when ctx ends;
//   - an error that wraps ErrStopped, when the Member has stopped.
//
// In any case f is no longer running. What f returns after its term is over is dropped, because f had to stop.
func (m *Member) Lead(ctx context.Context, namespace string, f func(ctx context.Context) error) error {
	if namespace != "" {
		m.logState(namespace) // it may be misspelled
	}
	return m.terms.Lead(ctx, namespace, f)
}

// Listen notifies the listener of the state of every namespace that has, or had, a Lease. It is notified of the current
// state first, so that it misses no earlier change, and then of every change until remove is called. Namespaces are
// unknown before the first list of Leases, and become known one by one.
//
// Calls for one namespace are sequential and in order. After Promoted comes Demoted for the same term before any other
// call. Calls for different namespaces may be concurrent, each from its own goroutine. So a slow listener delays only
// itself: neither checks, nor other namespaces, nor other listeners. While it is busy with a namespace, it misses terms
// that begin and end in the meantime, but never the last state.
//
// After remove returns no call begins, but one may still be running. A listener may call remove from within a call.
// Listeners must return: a stopping Member waits for them. A term is not released before its Demoted call has returned,
// see Registration.
func (m *Member) Listen(l Listener) (remove func()) {
	return m.terms.Listen(l)
}

// NeedLeaderElection returns false, so that a controller-runtime manager runs the Member in every replica, whether or
// not it has won the local election.
func (m *Member) NeedLeaderElection() bool { return false }

// WaitForSync returns when the Leases that existed at the start have been applied. From then on "does not lead" is an
// answer and not missing data. It fails with the cause of ctx if that ends first, and with ErrStopped once the Member
// has stopped.
func (m *Member) WaitForSync(ctx context.Context) error {
	for _, w := range m.watchers {
		select {
		case <-w.synced:
		case <-m.terms.ended:
		case <-ctx.Done():
			trouble, _ := m.status(w.namespace)
			return fmt.Errorf("member: %s: %w", trouble, context.Cause(ctx))
		}
		if m.terms.over() {
			return fmt.Errorf("member: %w", ErrStopped)
		}
	}
	return nil
}
