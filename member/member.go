package member

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	utilclock "k8s.io/utils/clock"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
)

// Options says how a Member watches and judges. The zero value is a sound default.
type Options struct {
	// Namespaces are the namespaces to watch. Each has a watch of its own, so a Role
	// in each with list and watch on leases (coordination.k8s.io) is enough. If empty,
	// one watch covers the cluster and needs a ClusterRole with the same.
	Namespaces []string
	// MaxClockSkew is ε: twice the largest error of any clock that takes part. A Lease stamped further in the future is
	// not believed. The policy's maxClockSkewMilliseconds travels in the Lease, and the smaller of the two counts, so
	// this can only make a reader stricter. It is what counts alone for the Leases of hubs that are too old to say.
	// Default: 1s.
	MaxClockSkew time.Duration
	// Clock is what terms are judged by. Default: the clocks of this machine.
	Clock lease.Clock
	// Logger receives who leads and every change of it, what is wrong and what to do about it. Default: klog's, as in
	// client-go. A logger without a sink, as logr.Discard returns, counts as none.
	Logger logr.Logger
	// Registration has the Member register as a reader that says when it has stopped, for
	// handovers without a gap. Default: nil, it does not register.
	Registration *Registration
	// StaleAfter is how old the last list of Leases may be before Healthz fails, where no term
	// ran out. Lists are repeated at least every half of it, see Member.Healthz. At least 10s.
	// Default: 2m.
	StaleAfter time.Duration
}

const (
	defaultSkew       = time.Second
	defaultStaleAfter = 2 * time.Minute
	leastStaleAfter   = 10 * time.Second
)

func (o *Options) complete() error {
	if o.MaxClockSkew == 0 {
		o.MaxClockSkew = defaultSkew
	}
	if o.Logger.GetSink() == nil {
		o.Logger = klog.Background()
	}
	if o.StaleAfter == 0 {
		o.StaleAfter = defaultStaleAfter
	}
	if o.Clock == nil {
		o.Clock = &clock.System{}
	}
	switch {
	case o.MaxClockSkew < 0:
		return fmt.Errorf("member: MaxClockSkew is %v: must not be negative", o.MaxClockSkew)
	case o.StaleAfter < leastStaleAfter:
		return fmt.Errorf("member: StaleAfter is %v: want at least %v", o.StaleAfter, leastStaleAfter)
	case slices.Contains(o.Namespaces, ""):
		return errors.New("member: Namespaces contains an empty name: leave Namespaces empty to watch all")
	}
	o.Namespaces = slices.Compact(slices.Sorted(slices.Values(o.Namespaces)))
	if o.Registration == nil {
		return nil
	}
	registration := *o.Registration // the caller's stays as it is
	o.Registration = &registration
	return o.Registration.complete()
}

// Member watches the Leases of its cluster and answers in which namespaces this
// cluster leads. Nothing is led before Start, nor after it. All methods are safe for
// concurrent use.
type Member struct {
	terms   *Terms
	log     logr.Logger
	clock   lease.Clock
	stale   time.Duration
	watches []*watched
	link    *link
	started atomic.Bool
	teller  *teller
	nagging utilclock.Timer // fires if nobody calls Start

	registrar *registrar // nil: not registered
}

var _ Leader = (*Member)(nil)

// errUncapped refuses a registration that would promise too much.
var errUncapped = errors.New("member: Registration needs CapWrites, which knows what writes are still on their way when a term is to be " +
	"released: call cfg.Wrap(member.CapWrites) before the manager or any client is made, and hand its configuration to New; " +
	"a wrapper that is put on after that needs the method WrappedRoundTripper, so that it can be seen through")

// New returns a Member for the cluster that cfg leads to. It contacts nobody yet.
// Of cfg it keeps address, credentials and transport, but neither the limits on
// the rate of requests nor the timeout, which would also cut the watch. Its connections
// are its own and pinged, see the package, unless cfg has a Transport. With a Registration cfg
// has to be that of the clients that act, wrapped by CapWrites: under controller-runtime
// mgr.GetConfig().
func New(cfg *rest.Config, o Options) (*Member, error) {
	chosen := o.MaxClockSkew != 0
	if err := o.complete(); err != nil {
		return nil, err
	}
	if o.Registration != nil && !capsWrites(cfg) {
		return nil, errUncapped
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
		clock: o.Clock,
		stale: o.StaleAfter,
		link:  link,
	}
	m.teller = newTeller(m, o.MaxClockSkew, chosen)
	m.terms.only, m.terms.unheard = o.Namespaces, m.unheard
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
	m.Listen(Listener{
		Promoted: func(ns string, t Term) {
			m.log.Info("This cluster leads", "namespace", ns, "epoch", t.Epoch(), "cluster", t.Cluster())
		},
		Demoted: func(ns string, reason error) {
			if errors.Is(reason, ErrLost) { // if it never led, who does is told when its Lease is seen
				m.log.Info("This cluster does not lead any more", "namespace", ns, "reason", reason.Error())
			}
		},
	})
	m.nagging = utilclock.RealClock{}.AfterFunc(unstartedAfter, m.unstarted)
	return m, nil
}

// Start watches until ctx ends. Then every term ends, and when all that was started
// has stopped, calls to listeners included, it returns. A Member that is registered takes
// its registration back before that, once all work has finished, and waits 5 s for it at most. It can be called once. A
// controller-runtime manager runs it: mgr.Add(m).
func (m *Member) Start(ctx context.Context) error {
	if m.started.Swap(true) {
		return errors.New("member: Start was called before, and a Member cannot be started twice: add it to one manager only, or make a new one")
	}
	m.nagging.Stop()
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
func (m *Member) Term(namespace string) (Term, bool) { return m.terms.Term(namespace) }

// Context returns a context for work in the namespace's current term, or an error
// that wraps ErrNotLeader or ErrNotWatched; see Terms.Context.
func (m *Member) Context(ctx context.Context, namespace string) (context.Context, context.CancelFunc, error) {
	work, done, err := m.terms.Context(ctx, namespace)
	if err != nil {
		m.teller.asked(namespace)
	}
	return work, done, err
}

// State says who leads the namespace, in which epoch, and why not this cluster; see Terms.State.
func (m *Member) State(namespace string) State { return m.terms.State(namespace) }

// Lead runs f whenever this cluster leads the namespace; see Terms.Lead.
func (m *Member) Lead(ctx context.Context, namespace string, f func(ctx context.Context) error) error {
	return m.terms.Lead(ctx, namespace, f)
}

// Listen has the listener told of the current state and of every change; see
// Terms.Listen.
func (m *Member) Listen(l Listener) (remove func()) { return m.terms.Listen(l) }

// NeedLeaderElection tells a controller-runtime manager to run the Member in every
// replica, whether or not it has won the local election.
func (m *Member) NeedLeaderElection() bool { return false }

// WaitForSync returns when the Leases that existed at the start have been taken in:
// from then on "does not lead" is an answer and not a lack of news. It fails with
// the cause of ctx if that ends first.
func (m *Member) WaitForSync(ctx context.Context) error {
	for _, w := range m.watches {
		select {
		case <-w.synced:
		case <-ctx.Done():
			return fmt.Errorf("member: %s: %w", m.unheard(w.namespace), context.Cause(ctx))
		}
	}
	return nil
}

// Healthz fails, and says what is wrong and what to do, if what a Member knows is stale: if for any of its watches the last
// list that worked is older than StaleAfter, on the clock that counts in suspend. It
// never fails for being a follower. Its signature is that of a controller-runtime
// healthz.Checker; the request is unused.
//
// At least every StaleAfter/2 everything is listed anew, by a
// consistent read. So a watch in which nothing happens is not stale, while one behind
// a dead link, without permission, or from an API server that is cut off from etcd is.
// Before the first list, time counts from New, and the error says that nothing was ever listed.
//
// It fails at once if a led term ran out and nothing was heard of the API server since less than a
// third of it was left, until something is. A term that ran out because the hub is silent is no
// failure. It fails as well if the last confirmation
// of the registration, where there has to be one, is older than StaleAfter.
func (m *Member) Healthz(*http.Request) error {
	now := m.clock.Now().Boot
	if m.registrar != nil {
		if err := m.registrar.stale(now, m.stale); err != nil {
			return err
		}
	}
	for _, w := range m.watches {
		if err := w.alarm.silent(now); err != nil {
			return fmt.Errorf("member: the watch of leases in %s is %w; %s", w, err, w.cure("check the way to the API server"))
		}
		age := now - time.Duration(w.listed.Load())
		switch {
		case age <= m.stale:
		case !m.started.Load():
			return fmt.Errorf("member: the leases in %s were never listed, because the Member is not started: %s", w, howToStart)
		case w.unlisted() != "":
			return fmt.Errorf("member: the leases in %s were never listed, for %v by now; %s",
				w, age.Round(time.Millisecond), w.cure("check the address of the API server and the way to it"))
		default:
			return fmt.Errorf("member: the watch of leases in %s is stale: last listed %v ago, want at most %v; %s",
				w, age.Round(time.Millisecond), m.stale, w.cure("check the way to the API server"))
		}
	}
	return nil
}
