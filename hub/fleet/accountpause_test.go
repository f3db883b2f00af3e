package fleet

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/account"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

// grants answers as a member that grants the hub a token.
func grants(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/token") {
		kubeSystem(w, "u")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	reply(w, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"new"}}`)
}

// Where the hub cannot install its account, nothing is to be done sooner.
func TestAnAccountThatCannotBeInstalledShortensNoPause(t *testing.T) {
	refuses := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	another := func(w http.ResponseWriter, _ *http.Request) { kubeSystem(w, "another") }
	for name, test := range map[string]struct {
		newest http.HandlerFunc // of the server that the newest kubeconfig leads to
		change func(*connection)
		want   time.Duration
	}{
		"the newest kubeconfig is refused":               {refuses, func(*connection) {}, retryMost},
		"the newest kubeconfig leads to another cluster": {another, func(*connection) {}, retryMost},
		"the Cluster moves to another hub":               {grants, func(c *connection) { c.state.spec.moved = true }, forever},
		"the member has sent too much": {grants, func(c *connection) {
			c.state.quarantine = &quarantine{until: c.p.clock.Now().Boot + time.Hour}
		}, time.Hour - accountPause},
		"another Cluster has the same UID": {grants, func(c *connection) {
			hasUID(t, c.p, Key{Fleet: "prod", Name: "first"}, "u")
		}, retryMost},
	} {
		t.Run(name, func(t *testing.T) {
			m, clock := newTestMember(t)
			m.p.options.LocalAddresses = true
			inUse := accessTo(t, apiServer(t, grants), "", "admin")
			m.state.spec = spec{
				labels: map[string]string{v1alpha1.PriorityLabel: "1"}, pin: "u",
				kubeconfig: string(kubeconfigTo(t, apiServer(t, test.newest), "", "token")),
			}
			now := clock.Now().Boot
			c := worksByAccount(t, m, inUse, account.Credentials{Token: "old", Renew: now, Expire: now + time.Hour})
			test.change(c)
			var got time.Duration
			for range 2 { // a token is renewed, and then the account is to be repaired
				if got, _ = c.step(t.Context()); got == retry {
					got = retryMost
				}
				got = c.untilAccount(got)
				clock.Advance(accountPause)
			}
			if got != test.want {
				t.Errorf("the next step follows after %v, want %v", got, test.want)
			}
		})
	}
}

// worksByAccount is the connection to a member where the hub works by an account that an administrator has installed.
func worksByAccount(t *testing.T, m *member, admin transport.Access, credentials account.Credentials) *connection {
	t.Helper()
	c := &connection{member: m, lifetime: t.Context(), account: ownAccount{
		kubeconfig: "the last good one", admin: admin, asked: true, administrator: true, installed: true, credentials: credentials,
	}}
	t.Cleanup(c.close)
	own := targetTo(t, admin.WithToken(credentials.Token), nil)
	own.UID = "u"
	c.use(t.Context(), own)
	return c
}

// It is installed once the pin is there, and that wakes run.
func TestOnlyAPinnedMemberIsSoonLookedAtToRepairItsAccount(t *testing.T) {
	const renew = 45 * time.Minute
	for pinned, want := range map[bool]time.Duration{true: time.Second, false: renew} {
		m, clock := newTestMember(t)
		now := clock.Now().Boot
		c := &connection{member: m, account: ownAccount{
			asked: true, administrator: true, credentials: account.Credentials{Token: "t", Renew: now + renew}, next: now + time.Second,
		}}
		if _, err := c.useAccount(t.Context(), pinned); err != nil {
			t.Fatal(err)
		}
		if got := c.untilAccount(forever); got != want {
			t.Errorf("pinned %v: the next step follows after %v, want %v", pinned, got, want)
		}
	}
}

// hasUID has another Cluster own a UID.
func hasUID(t *testing.T, p *Provider, k Key, uid string) {
	t.Helper()
	m, err := newMember(p, k)
	if err != nil {
		t.Fatal(err)
	}
	m.state.spec.pin, m.state.spec.pinProved, m.state.uid, m.state.ownsUID = uid, true, uid, true
	p.members[k] = m
}
