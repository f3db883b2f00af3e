package controller

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
)

// newTestLeases returns a member's API server of Leases, with namespace shop. It answers at once, outside of a world.
func newTestLeases() *leaseServer {
	secret := &corev1.Secret{Data: map[string][]byte{"policies": boundsOf("10m", "1m", "0s", "shops")}}
	server := (&world{hub: &hubServer{secret: secret, sealed: sealed(secret)}}).newLeaseServer(0, "east")
	server.direct, server.spaces["shop"] = true, space{}
	return &server
}

// publisherOf returns a publisher of the hub "this" that has read a member of fleet "fleet".
func publisherOf(
	t *testing.T, api *leaseServer, cluster string, clock lease.Clock, p *publish.Promises,
) *publish.Publisher {
	t.Helper()
	is := publish.New(publish.Options{
		Client: leaseClient{p: &proc{w: api.w}, server: api}, Fleet: "fleet", Cluster: cluster, ClusterUID: "uid",
		Hub: "this", Key: testKey, Clock: clock,
		MayWrite: func(lease.Reading) bool { return true }, Promises: p, Report: func(bool, lease.Reading, error) {},
		Changed: func(string) {}, TellOfReader: func(types.NamespacedName, reason.Reason, string) {},
		Queue: workqueue.NewTypedDelayingQueue[types.NamespacedName](),
	})
	t.Cleanup(is.Queue.ShutDown)
	if !is.ReadAll(t.Context()) {
		t.Fatal("the Leases were not read")
	}
	return is
}

// publisherThatRead is a publisher that has read the one Lease in a member.
func publisherThatRead(t *testing.T, now time.Time, key seal.Key, is lease.Content) *publish.Publisher {
	t.Helper()
	api, obj := newTestLeases(), &coordinationv1.Lease{}
	musttest.Do(t, seal.Write(key, is, obj))
	api.put(types.NamespacedName{Namespace: is.Namespace, Name: is.Name}, obj, "u")
	return publisherOf(t, api, is.Cluster, fixedClock{Wall: now, Boot: time.Hour}, publish.NewPromises())
}

// testMember is member east of a Controller, whose Leases of namespace shop it writes.
type testMember struct {
	t      *testing.T
	clock  *clocktest.Hand
	c      *Controller
	entry  *ledger.Entry
	api    *leaseServer
	policy *decide.Policy
}

var shopLease = types.NamespacedName{Namespace: "shop", Name: "leasecast"}

func newTestMember(t *testing.T) *testMember {
	t.Helper()
	clock, p := clocktest.NewHand(clocktest.Start), decide.ParsePolicy(policyOf("fleet", "shops", "shop"))
	p.Election.Acknowledged = true
	return &testMember{
		t: t, clock: clock, c: New(Options{HubID: "this", Clock: clock}), entry: decidetest.Entry(shop),
		api: newTestLeases(), policy: p,
	}
}

// publisher is one that has read the member.
func (m *testMember) publisher() *publish.Publisher {
	p := publisherOf(m.t, m.api, eastKey.Identity(), m.clock, m.c.promises)
	m.work(p)
	return p
}

// work does all that is due.
func (m *testMember) work(p *publish.Publisher) {
	for p.Queue.Len() > 0 {
		key, _ := p.Queue.Get()
		p.Work(m.t.Context(), key)
		p.Queue.Done(key)
	}
}

// assigns has the Lease written as a record says. grants: this tenure has persisted the record as a grant.
func (m *testMember) assigns(p *publish.Publisher, r election.Record, grants bool) {
	v := shopView(r, measured("east", agrees))
	v.Entry, v.Policy, v.Members[0].Publisher = m.entry, m.policy, p
	if grants && r.Reason != reason.Adopted {
		m.entry.Granted = r.Epoch
	}
	v.Members[0].Leases = p.LeasesIn(v.Key.Name)
	m.c.assign(v, planOf(election.Decision{Record: r}))
	m.work(p)
}

// leading is the record of a term of east.
func (m *testMember) leading(why reason.Reason) election.Record {
	now := m.clock.Now().Wall
	return election.Record{Leader: "east", Epoch: 20, State: election.Leading, Reason: why, Since: now, AcquireTime: now,
		Duration: 15 * time.Second, LeaseName: shopLease.Name}
}

// renewTime is that of the Lease, or zero without one.
func (m *testMember) renewTime() time.Time {
	if l := m.api.leases[shopLease]; l != nil {
		c, _ := wire.Read(l)
		return c.RenewTime
	}
	return time.Time{}
}

// renews reports whether the Lease is renewed when that is due.
func (m *testMember) renews(p *publish.Publisher) bool {
	before := m.renewTime()
	m.clock.Advance(6 * time.Second)
	p.Queue.Add(shopLease)
	m.work(p)
	return m.renewTime().After(before)
}

// leads returns a member that leads, by a publisher that is at work.
func leads(t *testing.T) (*testMember, *publish.Publisher) {
	t.Helper()
	m := newTestMember(t)
	m.c.events = silent{}
	p := m.publisher()
	m.assigns(p, m.leading(reason.Elected), true)
	m.c.members.of[eastKey] = atWork(p)
	if m.renewTime().IsZero() {
		t.Fatal("no Lease was written")
	}
	return m, p
}
