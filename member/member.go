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

// Member watches the Leases of its cluster and answers in which namespaces this
// cluster leads. Nothing is led before Start, nor after it. All methods are safe for
// concurrent use.
type Member struct {
	terms   *terms // nil: New has not made it
	log     logr.Logger
	host    string // the address of the API server
	clock   lease.Clock
	stale   time.Duration
	watches []*watched
	link    *link
	started atomic.Bool
	teller  *teller
	outages *outages

	registrar *registrar // nil: not registered
}

var _ Leader = (*Member)(nil)

// New returns a Member for the cluster that cfg leads to. It contacts nobody yet.
// Of cfg it keeps address, credentials and transport, but neither the limits on
// the rate of requests nor the timeout, which would also cut the watch. Its connections
// are its own and pinged, see the package, unless cfg has a Transport. What cannot work is refused
// with an error that wraps ErrMisused.
func New(cfg *rest.Config, o Options) (*Member, error) {
	if cfg == nil {
		return nil, fmt.Errorf("%w: New needs the configuration of a client, and got none", ErrMisused)
	}
	chosen := o.MaxClockSkew != 0
	if err := o.complete(); err != nil {
		return nil, err
	}
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "leasecast-member")
	cfg.QPS, cfg.RateLimiter, cfg.Timeout = -1, nil, 0
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	link, err := newLink(cfg)
	if err != nil {
		return nil, fmt.Errorf("member: %w", err)
	}
	client := &http.Client{Transport: link}
	leases, err := coordinationv1client.NewForConfigAndClient(cfg, client)
	authentication, refused := authenticationv1client.NewForConfigAndClient(cfg, client)
	if err := errors.Join(err, refused); err != nil {
		return nil, fmt.Errorf("member: clients: %w", err)
	}
	m := &Member{
		terms: newTerms(o.Clock, o.MaxClockSkew),
		log:   o.Logger,
		host:  cfg.Host,
		clock: o.Clock,
		stale: o.StaleAfter,
		link:  link,
	}
	if cfg.Transport != nil {
		m.log.Info("The configuration has a Transport of its own, so nobody finds out that a connection has died without a word, unless " +
			"that Transport does: leave it empty if you can")
	}
	m.teller = newTeller(m, o.MaxClockSkew, chosen)
	m.outages = newOutages(m)
	m.terms.only, m.terms.news = o.Namespaces, m.news
	namespaces := o.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{allNamespaces}
	}
	for _, ns := range namespaces {
		m.watches = append(m.watches, newWatched(m, leases, ns))
	}
	if o.Registration != nil {
		m.registrar = newRegistrar(m, leases, authentication, o)
	}
	m.terms.journal.Listener = Listener{
		Promoted: func(ns string, t Term) {
			m.log.Info("This cluster leads", "namespace", ns, "epoch", t.Epoch(), "cluster", t.Cluster())
		},
		Demoted: func(ns string, reason error) {
			m.log.Info("This cluster does not lead any more", "namespace", ns, "reason", reason.Error())
			m.teller.ended()
		},
	}
	utilclock.RealClock{}.AfterFunc(unstartedAfter, m.unstarted)
	return m, nil
}

// Start watches until ctx ends. Then every term ends, and when all that was started
// has stopped, calls to listeners included, it returns. A Member that is registered takes
// its registration back before that, once all work has finished, and waits 5 s for it at most. A
// controller-runtime manager runs it: mgr.Add(m).
//
// It can be called once. Another call fails at once with an error that wraps ErrMisused. A Member also fails so if another
// one of this process follows a namespace of it by the same address of the API server, and only one of the two is
// registered. From its return on the Member has stopped, see ErrStopped. If ctx has ended already, Start returns nil at
// once, and asks nobody.
func (m *Member) Start(ctx context.Context) error {
	if m.terms == nil {
		return errNotMade
	}
	if m.started.Swap(true) {
		return fmt.Errorf("%w: Start was called before, and a Member cannot be started twice: add it to one manager only, or make a new one", ErrMisused)
	}
	if err := m.join(); err != nil {
		m.log.Error(err, "This Member does not start")
		m.terms.stop()
		return err
	}
	defer m.part()
	var all sync.WaitGroup
	all.Go(func() {
		if m.registrar != nil {
			m.registrar.run(ctx, m.follow)
		} else {
			m.follow(ctx)
		}
	})
	<-ctx.Done()
	m.outages.stop()
	m.terms.stop()
	all.Wait()
	if m.registrar != nil {
		m.registrar.leave(ctx)
	}
	m.link.current().CloseIdle()
	return nil
}

// follow follows the Leases until ctx ends, and lists them first.
func (m *Member) follow(ctx context.Context) {
	var all sync.WaitGroup
	for _, w := range m.watches {
		all.Go(func() { w.run(ctx) })
	}
	all.Wait()
}

// Term returns the term in which this cluster leads the namespace now, and false if
// it does not. It takes no lock and does not allocate; reading both clocks is most
// of its cost. The answer is as old as the watch, but never older than the deadline.
func (m *Member) Term(namespace string) (Term, bool) {
	if m.terms == nil {
		return Term{}, false
	}
	return m.terms.Term(namespace)
}

// Context returns a context for work in the namespace's current term. It is
// cancelled when ctx is, or at once when the term ends; then context.Cause says so
// with an error that wraps ErrLost. It carries the epoch, see EpochFrom.
//
// The context lives as long as the term does, through renewals. So it has no
// deadline of its own: context.WithTimeout makes none of its own either below a
// parent that has an earlier one, and would then never end while the term is
// renewed.
//
// Call the CancelFunc when the work has finished, not before: it is also the word
// that nothing more will be done in this term.
//
// If this cluster does not lead the namespace, the error is a *[NotLeaderError], which wraps ErrNotLeader and says who
// does and why not this one. If the namespace is not watched, it wraps ErrNotWatched instead, and if its name is
// empty ErrMisused.
//
// The context carries the Member's logger, unless ctx has one.
func (m *Member) Context(ctx context.Context, namespace string) (context.Context, context.CancelFunc, error) {
	if m.terms == nil {
		return nil, nil, errNotMade
	}
	work, done, err := m.terms.Context(ctx, namespace)
	if err != nil {
		m.teller.wants(namespace)
		return nil, nil, err
	}
	if _, err := logr.FromContext(work); err != nil {
		work = logr.NewContext(work, m.log)
	}
	return work, done, nil
}

// State returns what is known of a namespace now. It is for people and their logs: it takes a lock, which Term does not.
func (m *Member) State(namespace string) State {
	if m.terms == nil {
		return State{Namespace: namespace, Why: errNotMade.Error()}
	}
	return m.terms.State(namespace)
}

// Namespaces returns the namespaces that have a Lease of a hub now, in order. It is empty before Start, and once the
// Member has stopped.
func (m *Member) Namespaces() []string {
	if m.terms == nil {
		return nil
	}
	return m.terms.Namespaces()
}

// Lead runs f whenever this cluster leads the namespace: it waits for a term, runs
// f with the context of that term (see Context), and when the term ends waits for f
// to return and then for the next term. It is what leaderelection.RunOrDie is
// between processes, except that nothing has to exit: f is simply run anew.
//
// For a namespace that is not watched it returns an error that wraps ErrNotWatched, at
// once, and for an empty name one that wraps ErrMisused. Otherwise it returns
//   - the error of f, when f returns while the term goes on;
//   - context.Cause(ctx), when ctx ends;
//   - an error that wraps ErrStopped, when the Member has stopped.
//
// In any case f is no longer running. What f returns after its context has ended is
// dropped: it had to stop.
func (m *Member) Lead(ctx context.Context, namespace string, f func(ctx context.Context) error) error {
	if m.terms == nil {
		return errNotMade
	}
	m.teller.wants(namespace)
	return m.terms.Lead(ctx, namespace, f)
}

// Listen has the listener told of the state of every namespace that has, or had, a
// Lease: of the current state first, so that none is missed that came before, then
// of every change, until remove is called. Namespaces are not known before the
// first list of Leases, and then become known one by one.
//
// Calls for one namespace come one after the other and in order; after Promoted
// comes Demoted for the same term before anything else. Calls for different
// namespaces may come at the same time, each from a goroutine of its own, so a slow
// listener holds up nobody but itself: neither checks, nor other namespaces, nor
// other listeners. While it is busy with a namespace, terms that begin and end
// meanwhile are not told; the last state always is.
//
// After remove returns no call begins, though one may still be under way; remove
// may be called from within one. Listeners must return: when a Member stops it
// waits for them. A term whose end Demoted is still being told of is not released, see
// Registration.
func (m *Member) Listen(l Listener) (remove func()) {
	if m.terms == nil {
		return func() {}
	}
	return m.terms.Listen(l)
}

// NeedLeaderElection tells a controller-runtime manager to run the Member in every
// replica, whether or not it has won the local election.
func (m *Member) NeedLeaderElection() bool { return false }

// WaitForSync returns when the Leases that existed at the start have been taken in:
// from then on "does not lead" is an answer and not a lack of news. It fails with
// the cause of ctx if that ends first, and with ErrStopped once the Member has stopped.
func (m *Member) WaitForSync(ctx context.Context) error {
	if m.terms == nil {
		return errNotMade
	}
	for _, w := range m.watches {
		select {
		case <-w.synced:
		case <-m.terms.ended:
		case <-ctx.Done():
			return fmt.Errorf("member: %s: %w", m.unknown(w), context.Cause(ctx))
		}
		if m.terms.over() {
			return fmt.Errorf("member: %w", ErrStopped)
		}
	}
	return nil
}
