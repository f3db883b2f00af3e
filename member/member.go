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
	terms   *Terms // nil: New has not made it
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
		terms: NewTerms(o.Clock, o.MaxClockSkew),
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
// it does not; see Terms.Term.
func (m *Member) Term(namespace string) (Term, bool) {
	if m.terms == nil {
		return Term{}, false
	}
	return m.terms.Term(namespace)
}

// Context returns a context for work in the namespace's current term, or an error
// that wraps ErrNotLeader or ErrNotWatched; see Terms.Context. The context carries the Member's logger, unless ctx has one.
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

// State says who leads the namespace, in which epoch, and why not this cluster; see Terms.State.
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

// Lead runs f whenever this cluster leads the namespace; see Terms.Lead.
func (m *Member) Lead(ctx context.Context, namespace string, f func(ctx context.Context) error) error {
	if m.terms == nil {
		return errNotMade
	}
	m.teller.wants(namespace)
	return m.terms.Lead(ctx, namespace, f)
}

// Listen has the listener told of the current state and of every change; see
// Terms.Listen.
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
