package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/fleet/wake"
)

const (
	// identifyTimeout bounds one request for the identity of a member, and one that shows whether it can be watched.
	identifyTimeout = 5 * time.Second
	// syncTimeout bounds how long the informers of a member may take to fill.
	syncTimeout = 15 * time.Second
	// hubTimeout bounds a request to the hub.
	hubTimeout = 5 * time.Second
	// retryLeast and retryMost bound the pause after a failure, which doubles each time. A member that heals
	// is connected within retryMost.
	retryLeast = 250 * time.Millisecond
	retryMost  = 3 * time.Second
	// forever waits for a wake-up.
	forever time.Duration = -1
	// retry has the connection try again after a pause that grows.
	retry time.Duration = -2
)

// connection owns the target and the cluster of a member. What it has beside the state of the member is used by its run
// only.
type connection struct {
	installer
	members *registry
	// lifetime ends when run returns.
	lifetime context.Context
	// text is the kubeconfig that was parsed last, parsed and err the outcome.
	text   string
	parsed transport.Access
	err    error
	// last is the target that was used last.
	last *transport.Target
	// running is the cluster, if its caches are full.
	running *runningCluster
	// cleaned: the probe Lease and the hub's rights were removed, or that was tried.
	cleaned bool
}

// run keeps the member connected until ctx ends or the member may be forgotten.
func (c *connection) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer c.close()
	defer cancel()
	c.lifetime = ctx
	failures := 0
	for {
		stepCtx, cancel := context.WithCancel(ctx)
		c.change(func(s *state) { s.interrupt = cancel })
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
		if wake.For(ctx, c.timers, next, c.wake) != nil {
			return
		}
	}
}

// step brings the member one step closer to what the hub's objects ask for. It returns how long to wait at
// most before the next step, and true when the member is forgotten.
func (c *connection) step(ctx context.Context) (time.Duration, bool) {
	s, now := c.get(), c.clock.Now()
	switch {
	case c.mayLeave(s, now):
		return c.leave(ctx, s)
	case s.spec.moved, nameProblem(c.key) != "":
		// The other hub is at work already, or there is nothing to do. A replica that has just been elected may
		// have to relinquish what its predecessor did not.
		if err := c.engage(); err != nil {
			c.fail(ctx, err)
			return retry, false
		}
		return s.untilForgotten(now), false
	case !c.useKubeconfig(ctx, s):
		return retry, false
	}
	if s = c.get(); s.target == nil {
		return s.untilForgotten(now), false
	}
	if !c.members.takeUID(c.member) {
		return retryMost, false // the member that has the UID may leave
	}
	pinned := c.pin(ctx)
	installs := pinned && c.mayWrite(c.key.Fleet)
	if err := c.work(ctx, s.target, installs); err != nil {
		c.fail(ctx, err)
		return retry, false
	}
	switch {
	case !pinned:
		return time.Second, false // this replica may be elected and then pin the UID
	case c.get().refused && installs:
		return max(retryLeast, c.untilInstall()), false
	case installs && c.isUnproved(c.get()):
		return time.Second, false // a pin without a proof protects nothing once the hub is started again
	}
	return s.untilForgotten(now), false
}

// work has the member watched, and gives it to the manager. A replica that may install the rights of the hub does so
// first where the member refuses its user. Where the rights count already, it repairs them last: terms must not end
// while a new process installs what is there.
func (c *connection) work(ctx context.Context, t *transport.Target, installs bool) error {
	if !installs {
		c.installed = nil
	}
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
		err = c.engage()
	}
	if err == nil && installs && c.installed == nil && t.User != "" {
		err = c.install(ctx, t)
	}
	return err
}

// mayLeave reports whether nobody needs the connection any more.
func (c *connection) mayLeave(s state, now lease.Reading) bool {
	switch {
	case s.spec.takesPart():
		c.cleaned = false
		return false
	case s.leaving, !s.spec.keeps():
		return true
	}
	return s.spec.gone && (s.known() == "" || now.Boot-s.spec.goneAt >= ForgottenAfter)
}

func (s *state) untilForgotten(now lease.Reading) time.Duration {
	if !s.spec.gone {
		return forever
	}
	return max(0, ForgottenAfter-(now.Boot-s.spec.goneAt))
}

// fail says why there is no cluster although there is a target.
func (c *connection) fail(ctx context.Context, err error) {
	if ctx.Err() == nil && !errors.Is(err, errNoRights) {
		c.change(func(s *state) { s.contact = asProblem(err) })
	}
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
	s := c.get()
	c.drop(s.target, s.contact)
}
