package controller

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
)

const (
	// attachRetry is how often an attachment tries again what has failed.
	attachRetry = time.Second
	// guardEvery is how often the guard of a member is looked at once it stands, guardRetry
	// before that: a policy takes effect about a second after it was created. What stands as it
	// was written is tried every verifyEvery only.
	guardEvery  = 10 * time.Second
	guardRetry  = 300 * time.Millisecond
	verifyEvery = time.Minute
	// guardTimeout bounds one check.
	guardTimeout = 10 * time.Second
)

// attachment is the hub's work in one member. Its fields are guarded by the
// controller's lock.
type attachment struct {
	publisher *publish.Publisher // nil until the member is pinned and its seal is known
	guard     error              // nil: the guard stands
	readers   *registeredReaders // has a lock of its own
	wake      chan struct{}      // holds one: look whether the member is leaving
}

// errUnchecked says that a guard was not looked at yet.
var errUnchecked = errors.New("the guard has not been checked yet")

// attach starts the work in a member. The caller holds the lock.
//
// An earlier publisher of the same member may draw one more stamp until it has
// stopped, and whoever closes the source of stamps must find it until then: the new
// one waits for its end.
func (c *Controller) attach(key fleet.Key, e engagement) {
	a := &attachment{guard: errUnchecked, readers: &registeredReaders{}, wake: make(chan struct{}, 1)}
	before, ended := c.ends[key], make(chan struct{})
	c.ends[key] = ended
	ctx, cancel := context.WithCancel(c.running)
	stop := context.AfterFunc(e.ctx, cancel)
	c.wg.Go(func() {
		defer close(ended)
		defer cancel()
		defer stop()
		if before != nil {
			<-before
		}
		c.mu.Lock()
		c.attached[key] = a
		c.mu.Unlock()
		c.work(ctx, key, e, a)
		c.mu.Lock()
		delete(c.attached, key)
		if c.engaged[key].ctx == e.ctx {
			delete(c.engaged, key)
		}
		c.mu.Unlock()
	})
}

// work guards and publishes in one member until ctx ends.
func (c *Controller) work(ctx context.Context, key fleet.Key, e engagement, a *attachment) {
	logger := log.FromContext(ctx).WithName("attach").WithValues("cluster", klog.KRef(key.Fleet, key.Name))
	var m fleet.Member
	var p *publish.Publisher
	err := wait.PollUntilContextCancel(ctx, guardRetry, true, func(ctx context.Context) (bool, error) {
		var ok bool
		if m, ok = c.Fleet.Member(key); !ok || m.UID == "" || !m.Pinned && !m.DeleteForMove {
			return false, nil
		}
		s, ok := c.serve(ctx, key.Fleet)
		if ok {
			p = c.publisher(m, s.Key, logger)
		}
		return ok, nil
	})
	if err != nil {
		return
	}
	detach, err := watchLeases(ctx, e, p)
	if err != nil {
		p.Queue.ShutDown() // which Run would have done
		logger.Error(err, "The copies in the cluster cannot be watched", "reason", reason.Unreachable)
		return
	}
	defer detach()
	defer watchReaders(ctx, e, p, c.newsOf(key, a.readers), logger)()
	c.mu.Lock()
	a.publisher = p
	c.mu.Unlock()

	guarded := make(chan struct{})
	go func() {
		defer close(guarded)
		c.keepGuard(ctx, m, a, logger)
	}()
	p.Run(ctx)
	<-guarded
}

// publisher makes the publisher of a member.
func (c *Controller) publisher(m fleet.Member, key lease.Key, logger logr.Logger) *publish.Publisher {
	var client coordinationclient.LeasesGetter = c.writer(m).CoordinationV1()
	if c.Measure != nil {
		client = c.Measure(m.Key, client)
	}
	return publish.New(publish.Options{
		Client:     client,
		Fleet:      m.Fleet,
		Cluster:    m.Identity(),
		ClusterUID: m.UID,
		Hub:        c.HubID,
		Key:        key,
		Clock:      c.Clock,
		MayWrite:   func(now lease.Reading) bool { return c.mayWrite(m.Fleet, now) },
		Promises:   c.promises,
		Report:     func(write bool, sent lease.Reading, err error) { report(m.Observe, write, sent, err) },
		Changed:    func(namespace string) { c.leaseChanged(m.Key, namespace) },
		Queue:      workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		Log:        logger,
	})
}

// report tells the member's health of a request. A refusal is left out: it may concern
// one namespace only, and the probe asks about the member as a whole.
func report(observe func(health.Observation), write bool, sent lease.Reading, err error) {
	kind := health.Read
	if write {
		kind = health.Write
	}
	switch {
	case err == nil, apierrors.IsNotFound(err):
		observe(health.Observation{Kind: kind, At: sent, OK: true})
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err):
	default:
		observe(health.Observation{Kind: kind, At: sent, Reason: reason.Unreachable, Message: "a request for a copy got no answer: " + bare(err)})
	}
}

// bare is an error without the URL of its request, whose host is a placeholder that
// means nothing to anybody.
func bare(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err.Error()
	}
	return err.Error()
}

// watchLeases feeds what the member's cache shows of our Leases to the publisher.
func watchLeases(ctx context.Context, e engagement, p *publish.Publisher) (detach func(), err error) {
	informer, err := e.cluster.GetCache().GetInformer(ctx, &coordinationv1.Lease{})
	if err != nil {
		return nil, err
	}
	gone := func(o any) {
		if t, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = t.Obj
		}
		if l, ok := o.(*coordinationv1.Lease); ok {
			p.ObserveGone(types.NamespacedName{Namespace: l.Namespace, Name: l.Name})
		}
	}
	seen := func(o any) {
		if l, ok := o.(*coordinationv1.Lease); ok {
			p.Observe(l)
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, o any) { seen(o) },
		DeleteFunc: gone,
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = informer.RemoveEventHandler(registration) }, nil
}

// keepGuard installs the guard of a member, keeps it in place, and notes whether it
// stands; or takes it out, for as long as the member takes no part.
func (c *Controller) keepGuard(ctx context.Context, m fleet.Member, a *attachment, logger logr.Logger) {
	verifyAt := time.Duration(0) // boot reading
	for pause := time.Duration(0); c.guardDue(ctx, m.Key, a, pause); {
		if c.leaving(m.Key) {
			c.leave(ctx, m, a)
			pause, verifyAt = guardRetry, 0
			continue
		}
		if !c.served(m.Fleet) {
			if _, ok := c.serve(ctx, m.Fleet); !ok {
				pause, verifyAt = guardRetry, 0
				continue
			}
		}
		now := c.Clock.Now().Boot
		verified, err := c.checkGuard(ctx, m, now >= verifyAt)
		switch {
		case err != nil:
			verifyAt = 0
		case verified:
			verifyAt = now + verifyEvery
		}
		switch {
		case err == nil:
			pause = guardEvery
		case errors.Is(err, guard.ErrForbidden), errors.Is(err, guard.ErrUnsupported):
			pause = attachRetry
		default:
			pause = guardRetry
		}
		if c.heedGuard(a, err) {
			logger.Info("The guard of the cluster's copies was checked", "stands", err == nil, "err", err)
			c.fleetChanged(m.Fleet)
		}
	}
}

// guardDue waits for a pause to pass, for the member to leave, or for the fleet to be claimed. It
// returns false when ctx has ended.
func (c *Controller) guardDue(ctx context.Context, key fleet.Key, a *attachment, pause time.Duration) bool {
	timer, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	for {
		select {
		case <-a.wake:
			if c.leaving(key) || !c.served(key.Fleet) {
				return ctx.Err() == nil
			}
		case <-timer.Done():
			return ctx.Err() == nil
		}
	}
}

// heedGuard takes in what a check has found, and reports whether that is news. Silence says nothing
// of the guard: what was known of it stays.
func (c *Controller) heedGuard(a *attachment, err error) (news bool) {
	if err != nil && !errors.Is(err, guard.ErrForbidden) && !errors.Is(err, guard.ErrUnsupported) && !errors.Is(err, guard.ErrNotEnforced) {
		return false
	}
	return c.noteGuard(a, err)
}

// noteGuard notes whether the guard stands, and reports whether that is news.
func (c *Controller) noteGuard(a *attachment, err error) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := a.guard
	a.guard = err
	return (before == nil) != (err == nil) || errors.Is(before, errUnchecked)
}

// wake has the work in the members of a fleet look whether they are leaving, and whose the fleet is.
func (c *Controller) wake(fleetName string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, a := range c.attached {
		if key.Fleet != fleetName {
			continue
		}
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// checkGuard puts the guard in place and, if it was not as it has to be or if that is due, tries
// whether it refuses what it must.
func (c *Controller) checkGuard(ctx context.Context, m fleet.Member, due bool) (verified bool, err error) {
	if !c.Tenure.Holds() {
		return false, errUnchecked
	}
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	changed, err := guard.Ensure(ctx, c.writer(m))
	if err != nil || !changed && !due {
		return false, err
	}
	return true, guard.Verify(ctx, c.writer(m))
}

// leave takes the guard out of a member that takes no part any more and lets go of it,
// once no copy of this hub is left there: copies must not stand unprotected. For the
// same reason the guard stays where another hub has copies. It may be called again:
// should the member come back before it is forgotten, it goes on.
func (c *Controller) leave(ctx context.Context, m fleet.Member, a *attachment) {
	c.mu.Lock()
	p := a.publisher
	c.mu.Unlock()
	now, ok := c.Fleet.Member(m.Key)
	if !ok || !p.Initial().Read || !c.Tenure.Holds() || c.standsBack(m.Fleet) {
		return
	}
	if c.departing(now) {
		ctx, cancel := context.WithTimeout(ctx, decideTimeout)
		defer cancel()
		c.depart(ctx, now, p)
		return
	}
	if ours, others := p.Remaining(); others && !ours {
		c.Fleet.Forget(m.Key)
		return
	} else if ours {
		return
	}
	c.noteGuard(a, errUnchecked)
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	if guard.Remove(ctx, c.writer(m)) == nil {
		c.Fleet.Forget(m.Key)
	}
}

// leaving reports whether a member takes no part any more.
func (c *Controller) leaving(key fleet.Key) bool {
	m, ok := c.Fleet.Member(key)
	return !ok || m.Gone || m.PriorityReason == reason.NoPriority || c.departing(m)
}

// attachmentOf returns what is known of the work in a member.
func (c *Controller) attachmentOf(key fleet.Key) (p *publish.Publisher, unguarded error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, ok := c.attached[key]; ok {
		return a.publisher, a.guard
	}
	return nil, errUnchecked
}

// publishers returns the publishers of a fleet.
func (c *Controller) publishers(fleetName string) []*publish.Publisher {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ps []*publish.Publisher
	for key, a := range c.attached {
		if key.Fleet == fleetName && a.publisher != nil {
			ps = append(ps, a.publisher)
		}
	}
	return ps
}
