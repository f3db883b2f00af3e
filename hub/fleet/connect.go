package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/health"
)

const (
	// identifyTimeout bounds one request for the identity of a member.
	identifyTimeout = 5 * time.Second
	// syncTimeout bounds how long the informers of a member may take to fill.
	syncTimeout = 15 * time.Second
	// hubTimeout bounds a request to the hub.
	hubTimeout = 5 * time.Second
	// retryLeast and retryMost bound the pause after a failure, which doubles each time. A member that heals
	// is connected within retryMost.
	retryLeast = 250 * time.Millisecond
	retryMost  = 3 * time.Second
	// drainGrace is how long requests under way may go on over a connection that was replaced.
	drainGrace = 5 * time.Second
	// forever waits for a wake-up.
	forever time.Duration = -1
)

// connection is what run owns, apart from the shared state.
type connection struct {
	*member
	// lifetime is that of run.
	lifetime context.Context
	// parsed caches the outcome of parsing the kubeconfig text.
	text string
	// parsed and err are the outcome of parsing text.
	parsed transport.Access
	err    error
	// goneAt is when the Cluster was first found to be gone.
	goneAt *lease.Reading
	// draining are the goroutines that close replaced targets.
	draining sync.WaitGroup
	// last is the target that was used last.
	last *transport.Target
	// running is the cluster, if its caches are full.
	running *runningCluster
	// cleaned: the probe Lease and the hub's rights were removed, or that was tried.
	cleaned bool
	// installed: this replica has installed the rights of the hub since it was elected. installedAt is when that was.
	installed   bool
	installedAt lease.Reading
}

// run keeps the member connected until ctx ends or the member may be forgotten.
func (m *member) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	c := &connection{member: m, lifetime: ctx}
	defer c.close()
	defer cancel()
	failures := 0
	for {
		stepCtx, cancel := context.WithCancel(ctx)
		m.change(func(s *state) { s.interrupt = cancel })
		next, done := c.step(stepCtx)
		cancel()
		if done || ctx.Err() != nil {
			return
		}
		if next == retry {
			next = min(retryLeast<<min(failures, 8), retryMost)
			failures++
		} else {
			failures = 0
		}
		if wake.For(ctx, m.p.timers, next, m.wake) != nil {
			return
		}
	}
}

// retry makes run try again after a pause that grows.
const retry time.Duration = -2

// step brings the member one step closer to what the hub's objects ask for. It returns how long to wait at
// most before the next step, and true when the member is forgotten.
func (c *connection) step(ctx context.Context) (time.Duration, bool) {
	s := c.get()
	now := c.p.clock.Now()
	switch {
	case c.mayLeave(s, now):
		return c.leave(ctx, s)
	case s.spec.moved, nameProblem(c.key) != "":
		// The other hub is at work already, or there is nothing to do. A replica that has just been elected may
		// have to relinquish what its predecessor did not.
		if err := c.engage(ctx); err != nil {
			c.fail(ctx, err)
			return retry, false
		}
		return c.untilForgotten(s, now), false
	}
	if wait := c.enforceQuarantine(ctx, s, now); wait > 0 {
		return wait, false
	}
	if !c.useKubeconfig(ctx, s) {
		return retry, false
	}
	if s = c.get(); s.target == nil {
		return c.untilForgotten(s, now), false
	}
	if !c.p.takeUID(c.member) {
		return retryMost, false // the member that has the UID may leave
	}
	pinned := c.pin(ctx)
	if err := c.work(ctx, s.target, pinned && c.p.mayWrite(c.key.Fleet)); err != nil {
		c.fail(ctx, err)
		return retry, false
	}
	switch {
	case !pinned:
		return time.Second, false // this replica may be elected and then pin the UID
	case c.get().refused && c.p.mayWrite(c.key.Fleet):
		return max(retryLeast, c.untilInstall()), false
	}
	return c.untilForgotten(s, now), false
}

// work has the member watched, and gives it to the manager. A replica that may install the rights of the hub does so
// first where the member refuses its user. Where the rights count already, it repairs them last: terms must not end
// while a new process installs what is there.
func (c *connection) work(ctx context.Context, t *transport.Target, installs bool) error {
	c.installed = c.installed && installs
	var err error
	switch {
	case c.get().refused && installs && c.untilInstall() <= 0 && t.User != "":
		err = c.install(ctx, t)
	case c.running == nil:
		err = c.admit(ctx, t, installs)
	}
	if err == nil {
		err = c.connect(ctx)
	}
	if err == nil {
		err = c.engage(ctx)
	}
	if err == nil && installs && !c.installed && t.User != "" {
		err = c.install(ctx, t)
	}
	return err
}

// untilInstall is how long the hub's rights must not be installed again.
func (c *connection) untilInstall() time.Duration {
	if !c.installed {
		return 0
	}
	return c.installedAt.Boot + installPause - c.p.clock.Now().Boot
}

// mayLeave reports whether nobody needs the connection any more.
func (c *connection) mayLeave(s state, now lease.Reading) bool {
	if !s.spec.gone {
		c.goneAt = nil
	} else if c.goneAt == nil {
		c.goneAt = &now
	}
	switch {
	case s.spec.takesPart():
		c.cleaned = false
		return false
	case s.leaving, !s.spec.keeps():
		return true
	case c.goneAt != nil:
		return s.known() == "" || now.Boot-c.goneAt.Boot >= ForgottenAfter
	}
	return false
}

func (c *connection) untilForgotten(s state, now lease.Reading) time.Duration {
	if !s.spec.gone || c.goneAt == nil {
		return forever
	}
	return max(0, ForgottenAfter-(now.Boot-c.goneAt.Boot))
}

// useKubeconfig starts to use the kubeconfig of the Secret, once the cluster behind it has proved to be the
// right one. It returns false to be called again soon. What is in use stays in use until something better is
// proved.
func (c *connection) useKubeconfig(ctx context.Context, s state) bool {
	if s.spec.refused != "" {
		if s.target == nil {
			c.text, c.parsed, c.err = "", transport.Access{}, nil // it takes no memory
		}
		c.reject(s, Problem{reason.InvalidKubeconfig, s.spec.refused})
		return true
	}
	if s.spec.kubeconfig == "" {
		c.reject(s, Problem{reason.NoKubeconfig, s.spec.noKubeconfig})
		return true
	}
	if c.text != s.spec.kubeconfig {
		c.text = s.spec.kubeconfig
		c.parsed, c.err = transport.ParseKubeconfig([]byte(c.text))
		c.parsed.Local = c.p.options.LocalAddresses
	}
	if c.err != nil {
		c.reject(s, Problem{reason.InvalidKubeconfig, fmt.Sprintf("Secret %s%s: %v", c.key.Name, kubeconfigSuffix, c.err)})
		return true
	}
	if s.target != nil && s.target.Access.Equal(c.parsed) {
		if identityOf(s.spec.pin, s.uid, s.target.UID) == other {
			c.distrust(s.target, s.target.UID)
			return false
		}
		c.change(func(s *state) {
			s.kubeconfig = Problem{}
			if s.contact.Reason == reason.WrongCluster {
				s.contact = Problem{}
			}
		})
		return true
	}
	t := transport.NewTarget(c.parsed, s.target)
	t.Hide(c.last)
	err := c.useIfRight(ctx, s, t)
	if err == nil {
		return true
	}
	if !t.Shares(s.target) {
		t.Close()
	}
	if ctx.Err() == nil {
		c.reject(s, asProblem(err))
	}
	return false
}

// useIfRight asks the target which cluster it leads to, and uses it if that is the right one.
func (c *connection) useIfRight(ctx context.Context, s state, t *transport.Target) error {
	contactCtx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	at := c.p.clock.Now()
	found, err := t.Identify(contactCtx)
	if s.target == nil && !errors.Is(contactCtx.Err(), context.Canceled) {
		c.observe(c.observation(contactCtx, identifyTimeout, health.Read, at, err))
	}
	if err != nil {
		return err
	}
	t.UID = found
	verdict := identityOf(s.spec.pin, s.uid, found)
	if verdict == other {
		return &transport.ContactError{Reason: reason.WrongCluster, Message: wrongCluster(s.spec.pin, found)}
	}
	if t.User, err = c.hubUser(contactCtx, t); err != nil {
		return err
	}
	if s.target != nil && verdict == same {
		if err := c.admit(ctx, t, s.pinned() && c.p.mayWrite(c.key.Fleet)); err != nil {
			return err
		}
	}
	if verdict == rebuilt {
		c.reset()
	}
	c.use(ctx, t)
	return nil
}

// use swaps the target in. Watches on the old connection end now, so that they go on with the new identity.
// Renewals under way may finish.
func (c *connection) use(ctx context.Context, t *transport.Target) {
	var old *transport.Target
	c.last = t
	t.RequestSent = c.requestSent
	c.change(func(s *state) {
		old, s.target, s.uid = s.target, t, t.UID
		s.contact, s.kubeconfig = Problem{}, Problem{}
		s.refused = false
		transport.Lead(t, c.caches, c.renewals)
	})
	if old != nil && !t.Shares(old) {
		old.Retire()
		c.draining.Go(func() {
			_ = wake.For(c.lifetime, c.p.timers, drainGrace, nil) // closed too when run ends
			old.Close()
		})
	}
	wake.Wake(c.wakeProbe)
	c.answered.Fire() // to useIfRight: informers whose connection has just ended need not wait for a probe
	log.FromContext(ctx).Info("Credentials in use", "cluster", klog.KRef(c.key.Fleet, c.key.Name), "clusterUID", t.UID, "rotation", old != nil, "user", t.User)
}

// distrust stops using a target that leads to another cluster now, and whatever shares its connections.
// Nothing more is sent there, and run does not wait for requests under way.
func (m *member) distrust(t *transport.Target, found string) {
	m.change(func(s *state) {
		if s.target != t && !t.Shares(s.target) {
			return
		}
		s.target = nil
		if s.interrupt != nil {
			s.interrupt()
		}
		s.contact = Problem{reason.WrongCluster, wrongCluster(s.known(), found)}
		transport.Lead(nil, m.caches, m.renewals)
	})
	t.Close()
	wake.Wake(m.wake)
}

// reject reports why the newest kubeconfig is not in use.
func (c *connection) reject(s state, p Problem) {
	c.change(func(now *state) {
		now.contact, now.kubeconfig = Problem{}, Problem{}
		switch {
		case p.Reason == reason.WrongCluster:
			now.contact = p
		case s.target != nil:
			p.Message += "; the last good kubeconfig stays in use"
			now.kubeconfig = p
		case p.Reason == reason.NoKubeconfig || p.Reason == reason.InvalidKubeconfig:
			now.kubeconfig = p
		default:
			now.contact = p
		}
	})
}

// reset forgets a cluster that is not behind the name any more.
func (c *connection) reset() {
	c.end()
	c.installed = false
	c.change(func(s *state) {
		s.uid, s.ownsUID, s.tracks = "", false, s.tracks.Forgotten()
		c.clock.Reset()
	})
}

// end ends the cluster, and with it what the manager does there.
func (c *connection) end() {
	c.change(func(s *state) { s.cluster = nil })
	if c.running != nil {
		c.running.stop()
		c.running = nil
	}
}

// close ends everything when run ends.
func (c *connection) close() {
	c.end()
	c.draining.Wait()
	transport.Lead(nil, c.caches, c.renewals)
	var t *transport.Target
	c.change(func(s *state) { t, s.target = s.target, nil })
	if t != nil {
		t.Close()
	}
}

// fail reports why there is no cluster although there is a target.
func (c *connection) fail(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, errNoRights) {
		return
	}
	p := asProblem(err)
	c.change(func(s *state) { s.contact = p })
}

func asProblem(err error) Problem {
	var contact *transport.ContactError
	if errors.As(err, &contact) {
		return Problem{contact.Reason, contact.Message}
	}
	return Problem{reason.Unreachable, transport.Shorten(err.Error())}
}

// observation is the outcome of a request that was sent at a time, with a context that bounds it and what led to it.
func (m *member) observation(ctx context.Context, bound time.Duration, k health.Kind, at lease.Reading, err error) health.Observation {
	o := health.Observation{Kind: k, At: at, Took: m.p.clock.Now().Boot - at.Boot, OK: err == nil}
	if err == nil {
		return o
	}
	p := asProblem(err)
	o.Reason, o.Message = p.Reason, p.Message
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		o.Silent, o.Took = true, bound
	}
	return o
}
