package fleet

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/account"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/guard"
)

const (
	// accountTimeout bounds the installation of an account and the request of a token.
	accountTimeout = 10 * time.Second
	// accountPause is the least time between two requests of a token, between two repairs of the account, and between
	// a refusal of the account and the next return to the kubeconfig.
	accountPause = 2 * time.Second
	// accountRetry is the pause after a request for a new token that failed. The present one still has a quarter of its
	// life.
	accountRetry = 10 * time.Second
	// standbyPause is how soon a standby looks again for an account that is not there yet.
	standbyPause = 3 * time.Second
	// provePause is the pause between two tries of new credentials, whose rights do not count at once.
	provePause = 50 * time.Millisecond
)

// ownAccount is what a connection knows of the hub's own account in the member (see package account).
type ownAccount struct {
	// kubeconfig is the text of the kubeconfig that all of this is about, and admin what it says.
	kubeconfig string
	admin      transport.Access
	// asked: the member has told whether the kubeconfig is an administrator's.
	asked, administrator bool
	// installed: this replica has installed the account, and repaired it, since it was elected, since the last renewal
	// and since rights were last missing. refused: the member has refused what was there, so it is installed before
	// anything else.
	installed, refused bool
	credentials        account.Credentials
	// next is the boot reading before which nothing is tried again, and hears the one before which no complaint of the
	// member is taken.
	next, hears time.Duration
	// failure is what was logged last, if that still fails.
	failure string
}

// account is the one that this hub has in each member.
func (p *Provider) account() account.Account { return account.Of(p.options.HubID) }

// access is that of the account, if there are credentials.
func (a *ownAccount) access() (transport.Access, bool) {
	return a.admin.WithToken(a.credentials.Token), a.credentials.Token != ""
}

// issued reports whether an access is that of the account.
func (a *ownAccount) issued(to transport.Access) bool {
	own, has := a.access()
	return has && to.Equal(own)
}

// leadsThere reports whether a target is the one that the kubeconfig asks for: the kubeconfig itself, or the hub's own
// account behind it.
func (c *connection) leadsThere(t *transport.Target) bool {
	return t != nil && (t.Access.Equal(c.parsed) || c.account.kubeconfig == c.text && c.account.issued(t.Access))
}

// dropRefused forgets credentials that the member refuses, so that the kubeconfig is used until there are new ones. It
// keeps those that only lack rights: an API server that has just started knows no roles, and then they are not edited.
func (c *connection) dropRefused(s state, now lease.Reading) {
	a := &c.account
	if !s.accountRefused && !s.accountLacks || now.Boot < a.complaintsAt() {
		return
	}
	a.hears = now.Boot + accountPause
	logger := log.FromContext(c.lifetime).WithValues("cluster", klog.KRef(c.key.Fleet, c.key.Name))
	writes := c.p.mayWrite(c.key.Fleet)
	if s.accountRefused {
		if _, has := a.access(); has && writes {
			logger.Info("The member refuses the hub's own account: it is to be installed anew")
		}
		a.credentials, a.refused = account.Credentials{}, true
	} else if a.installed && writes {
		logger.Info("The hub's own account lacks rights in the member: it is to be repaired")
	}
	a.installed = false
	c.change(func(s *state) { s.accountRefused, s.accountLacks = false, false })
}

// complaintsAt is when the next complaint of the member is taken. Many may come in a second, and each wakes run.
func (a *ownAccount) complaintsAt() time.Duration { return max(a.next, a.hears) }

// useAccount has the connection work by the hub's own account in the member, if the kubeconfig is an administrator's. It
// returns false while the caches have to wait for that.
//
// A replica that may write fails closed: it connects no caches by an administrator's kubeconfig. A standby reads by it
// until the account is there.
func (c *connection) useAccount(ctx context.Context, pinned bool) (bool, error) {
	if c.err == nil && c.account.kubeconfig != c.text {
		c.account = ownAccount{kubeconfig: c.text, admin: c.parsed}
	}
	c.installs = pinned
	writes := c.p.mayWrite(c.key.Fleet)
	err := c.keepAccount(ctx, writes && pinned)
	_, has := c.account.access()
	switch {
	case has, !writes, c.account.asked && !c.account.administrator:
		return true, nil
	case err == nil, !pinned:
		return false, nil // it is installed once the pin is there
	case errors.Is(err, account.ErrRefused):
		c.end()
	}
	return false, c.describeAccount(err)
}

// keepAccount asks the member what has to be asked about the account, if anything has.
func (c *connection) keepAccount(ctx context.Context, mayInstall bool) error {
	c.tends = true
	now := c.p.clock.Now()
	if !c.accountDue(now, mayInstall) {
		return nil
	}
	repairs := now.Boot < c.account.credentials.Renew
	err := c.renewAccount(ctx, mayInstall)
	if err == nil {
		c.account.failure = ""
		return nil
	}
	pause := standbyPause
	if _, has := c.account.access(); has {
		pause = accountRetry
		c.logFailure(ctx, repairs, transport.Shorten(err.Error()))
	}
	c.account.next = c.p.clock.Now().Boot + pause
	return err
}

// logFailure logs why the account has no new token, or is not repaired, once until that changes.
func (c *connection) logFailure(ctx context.Context, repairs bool, failure string) {
	if failure == c.account.failure {
		return
	}
	c.account.failure = failure
	logger := log.FromContext(ctx).WithValues("cluster", klog.KRef(c.key.Fleet, c.key.Name), "error", failure)
	if repairs {
		logger.Info("The hub's own account in the member is not repaired")
	} else {
		logger.Info("No new token of the hub's own account in the member")
	}
}

// accountDue reports whether something has to be asked.
func (c *connection) accountDue(now lease.Reading, mayInstall bool) bool {
	a := &c.account
	_, has := a.access()
	switch {
	case a.kubeconfig == "", now.Boot < a.next && (has || !mayInstall):
		return false
	case !a.asked:
		return true
	}
	return a.administrator && (!has || mayInstall && !a.installed || now.Boot >= a.credentials.Renew)
}

// renewAccount asks whether the kubeconfig is an administrator's. If so, it requests a token and uses it, and installs
// the account if that is allowed and was not done yet.
//
// An account that an earlier process has left is used at once, and repaired afterwards: terms end while a new process
// installs what is there already. With each renewal the account is repaired too, and after it: a member that refuses the
// repair still renews tokens.
func (c *connection) renewAccount(ctx context.Context, install bool) error {
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	a := &c.account
	admin, done, err := c.administrator()
	if err != nil {
		return err
	}
	defer done()
	if !a.asked {
		if a.administrator, err = account.Administrator(ctx, admin); err != nil {
			return err
		}
		a.asked = true
	}
	if !a.administrator {
		return nil
	}
	_, has := a.access()
	if has && c.p.clock.Now().Boot < a.credentials.Renew {
		if install && !a.installed {
			return c.installAccount(ctx, admin)
		}
		return nil
	}
	if install && a.refused && !a.installed {
		if err := c.installAccount(ctx, admin); err != nil {
			return err
		}
	}
	credentials, err := c.requestToken(ctx, admin, install)
	if err != nil {
		return err
	}
	if err := c.useCredentials(ctx, credentials); err != nil {
		return err
	}
	if has {
		a.installed = false // it is installed again after accountPause
	}
	return nil
}

// requestToken gets a token of the account, and installs an account that is missing if that is allowed and was not done yet.
func (c *connection) requestToken(ctx context.Context, admin kubernetes.Interface, install bool) (account.Credentials, error) {
	credentials, err := c.p.account().Request(ctx, admin, c.p.clock)
	if !errors.Is(err, account.ErrMissing) || !install || c.account.installed {
		return credentials, err
	}
	if err := c.installAccount(ctx, admin); err != nil {
		return account.Credentials{}, err
	}
	return c.p.account().Request(ctx, admin, c.p.clock)
}

// installAccount installs or repairs the account, as an administrator.
func (c *connection) installAccount(ctx context.Context, admin kubernetes.Interface) error {
	if err := c.p.account().Install(ctx, admin); err != nil {
		return err
	}
	c.account.installed, c.account.refused = true, false
	c.account.next = c.p.clock.Now().Boot + accountPause
	return nil
}

// useCredentials uses new credentials of the account, once they have proved to lead to the cluster that is known.
func (c *connection) useCredentials(ctx context.Context, credentials account.Credentials) error {
	s := c.get()
	t := transport.NewTarget(c.account.admin.WithToken(credentials.Token), s.target)
	t.Hide(c.last)
	if err := c.prove(ctx, t, s.uid); err != nil {
		c.account.refused = asProblem(err).Reason == reason.Forbidden
		if !t.Shares(s.target) {
			t.Close()
		}
		return err
	}
	c.account.credentials = credentials
	c.account.next = c.p.clock.Now().Boot + accountPause
	c.use(ctx, t)
	return nil
}

// prove asks by a target until the member answers: rights that were given a moment ago may not count yet. Those that an
// earlier process has left count, or are missing.
func (c *connection) prove(ctx context.Context, t *transport.Target, uid string) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, provePause, true, func(ctx context.Context) (bool, error) {
		t.UID, last = t.Identify(ctx)
		if last == nil && t.UID != uid {
			return false, &transport.ContactError{Reason: reason.WrongCluster, Message: wrongCluster(uid, t.UID)}
		}
		if last != nil && !c.account.installed {
			return false, last
		}
		return last == nil, nil
	})
	if last != nil {
		return last
	}
	return err
}

// administrator returns a client of the kubeconfig, for the account only, and what closes its connections, if they are no
// other's.
func (c *connection) administrator() (client kubernetes.Interface, done func(), err error) {
	inUse := c.get().target
	t := transport.NewTarget(c.account.admin, inUse)
	done = func() {
		if !t.Shares(inUse) {
			t.Close()
		}
	}
	t.Hide(c.last)
	requests := transport.NewSwappable(c.key.Identity(), c.p.options.UserAgent)
	requests.Room, requests.Timers = c.room, c.p.timers
	transport.Lead(t, requests, requests)
	config := requests.Config(requests)
	connections, err := transport.HTTPClient(config)
	if err == nil {
		client, err = kubernetes.NewForConfigAndClient(config, connections)
	}
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	return client, done, nil
}

// describeAccount says what to do where the hub gets no account of its own.
func (c *connection) describeAccount(err error) error {
	contact := (*transport.ContactError)(nil)
	t := c.get().target
	switch {
	case errors.Is(err, account.ErrRefused):
		return &transport.ContactError{Reason: reason.Forbidden, Message: transport.Shorten(err.Error()) +
			"; allow that, or give the Cluster a kubeconfig of the account in config/member"}
	case errors.As(err, &contact), t == nil:
		return err
	}
	return t.Describe(err)
}

// untilAccount is the pause of run, or a shorter one if the account has to be looked after before its end. What the last
// step could not do does not shorten it: the next step could not do it either.
func (c *connection) untilAccount(pause time.Duration) time.Duration {
	a := &c.account
	if !a.administrator || !c.tends {
		return pause
	}
	at := max(a.next, a.credentials.Renew)
	if _, has := a.access(); !has || !a.installed && c.installs && c.p.mayWrite(c.key.Fleet) {
		at = a.next
	}
	if c.complains() {
		at = min(at, a.complaintsAt())
	}
	if due := max(0, at-c.p.clock.Now().Boot); pause == forever || due < pause {
		return max(due, retryLeast)
	}
	return pause
}

// removeAccount takes the account out of the member, if the hub has made one.
func (c *connection) removeAccount(ctx context.Context) error {
	if !c.account.administrator {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	admin, done, err := c.administrator()
	if err != nil {
		return err
	}
	defer done()
	c.account.credentials, c.account.installed = account.Credentials{}, false
	return c.p.account().Remove(ctx, admin)
}

// refuseAccount notes that the member refuses the hub's own account, if that is in use.
func (m *member) refuseAccount() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state.account && !m.state.accountRefused {
		m.state.accountRefused = true
		wake.Wake(m.wake)
	}
}

// missingRights is what an API server says of an account without the rights to Leases that config/member gives. Admission
// policies refuse in other words.
var missingRights = regexp.MustCompile(`is forbidden: User .* cannot \w+ resource \W+leases\W+ in API group \W+coordination\.k8s\.io\W`)

// missRights notes that the hub's own account lacks rights, if that is in use and the words of the member tell so.
func (m *member) missRights(words string) {
	if !missingRights.MatchString(words) && !guard.RefusesWriter(words) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state.account && !m.state.accountLacks {
		m.state.accountLacks = true
		wake.Wake(m.wake)
	}
}

// complains reports whether the member has said something against the hub's own account.
func (m *member) complains() bool {
	s := m.get()
	return s.accountRefused || s.accountLacks
}
