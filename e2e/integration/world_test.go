// Package integration tests the whole through what a platform engineer sees: a hub in this process and real members.
package integration

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/hostile/front"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// fleets is how many fleets the tests of this package share, and so how many of them run at once.
const fleets = 2

var (
	all   = []string{"east", "west", "south"}
	three = map[string]string{"east": "100", "west": "50", "south": "10"}
)

// TestMain starts the fleets. Each test has a fleet to itself, with a hub, Clusters and namespaces of its own.
func TestMain(m *testing.M) {
	flag.Parse()
	harness.Logs(testing.Verbose())
	os.Exit(withFleets(m, fleets).Run())
}

// starter starts one fleet and then runs the rest.
type starter struct{ rest interface{ Run() int } }

func withFleets(m interface{ Run() int }, n int) interface{ Run() int } {
	for range n {
		m = starter{m}
	}
	return m
}

func (s starter) Run() int {
	return fleet.Main(s.rest, all, func(_ context.Context, f *fleet.Fleet, _ string) error {
		idle <- f
		return nil
	})
}

var (
	idle = make(chan *fleet.Fleet, fleets)

	mu    sync.Mutex
	loans = map[string]*loan{} // by the name of the test that is no subtest
)

// loan is a fleet that one test and its subtests use.
type loan struct {
	fleet  *fleet.Fleet
	worlds int
}

// borrow gives a test a fleet until its last world has gone. It waits until a fleet is idle.
func borrow(t *testing.T) *fleet.Fleet {
	name, _, _ := strings.Cut(t.Name(), "/")
	mu.Lock()
	l := loans[name]
	mu.Unlock()
	if l == nil {
		l = &loan{fleet: <-idle}
	}
	mu.Lock()
	defer mu.Unlock()
	loans[name] = l
	l.worlds++
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if l.worlds--; l.worlds == 0 {
			delete(loans, name)
			idle <- l.fleet
		}
	})
	return l.fleet
}

var worlds atomic.Int32

// world is what one test sees: a fleet namespace with Clusters, a hub that serves it, and the members.
type world struct{ *harness.World }

// newWorld registers the members with their priorities. The hub is not started.
func newWorld(t *testing.T, timings v1alpha1.Timings, priorities map[string]string) *world {
	return newWorldIn(t, fmt.Sprintf("fleet-%d", worlds.Add(1)), timings, priorities)
}

// newWorldIn is newWorld with this fleet namespace, which no other world uses.
func newWorldIn(t *testing.T, name string, timings v1alpha1.Timings, priorities map[string]string) *world {
	f := borrow(t)
	w := &world{harness.NewWorld(t, f, name, name+"-system", timings)}
	for name, priority := range priorities {
		musttest.Get(f.RegisterMember(t.Context(), f.Member(name), w.Fleet, priority))(w.T)
	}
	t.Cleanup(func() {
		for _, m := range f.Members() {
			m.Proxy().Heal()
		}
		w.clear()
	})
	return w
}

// on is the world for a subtest.
func (w *world) on(t *testing.T) *world { return &world{w.On(t)} }

// clear removes all Leases, so that the next world begins with none of another hub. The hub has stopped.
func (w *world) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range w.Members {
		var list coordinationv1.LeaseList
		w.Must(c.List(ctx, &list, client.HasLabels{v1alpha1.ManagedLabel}))
		for i := range list.Items {
			w.Must(client.IgnoreNotFound(c.Delete(ctx, &list.Items[i])))
		}
	}
}

// startHub runs a hub as the administrator.
func (w *world) startHub() {
	w.StartHub(w.Servers.Hub().AdminConfig())
}

// namespace creates a namespace in the members and returns its name, which begins with that of the fleet namespace.
func (w *world) namespace(suffix string, members ...string) string {
	name := w.Fleet + "-" + suffix
	w.Namespace(name, members...)
	return name
}

// eastLeads is a world in which east, the best of three clusters, leads namespace a of all members.
func eastLeads(t *testing.T, timings v1alpha1.Timings) (w *world, a string, epoch int64) {
	w = newWorld(t, timings, three)
	a = w.namespace("a", all...)
	w.Policy("p", a)
	w.startHub()
	return w, a, w.Leads("east", a, firstElection, all...)
}

// alone creates a namespace in one member, which leads it by a steady policy as soon as it can: no better cluster is
// waited for.
func (w *world) alone(suffix, member string) string {
	name := w.namespace(suffix, member)
	p := w.NewPolicy(name, name)
	p.Spec.Timings, p.Spec.InitialDelaySeconds = lasting, ptr.To[int32](0)
	w.Must(w.Hub.Create(w.T.Context(), p))
	return name
}

// kubeconfig is that of a member's administrator, through its proxy.
func (w *world) kubeconfig(member string) []byte {
	return musttest.Get(w.Servers.Member(member).ProxiedKubeconfig())(w.T)
}

// kubeconfigFor turns a configuration of a member into a kubeconfig through its proxy.
func (w *world) kubeconfigFor(member string, cfg *rest.Config) []byte {
	return musttest.Get(fleet.Kubeconfig(member, w.Servers.Member(member).ViaProxy(cfg)))(w.T)
}

// wrongClock makes a member's API server look as if its clock were off: it writes the Date of its answers.
type wrongClock struct{ off atomic.Int64 }

func (c *wrongClock) set(off time.Duration) { c.off.Store(int64(off)) }

// dated is an answer with that Date.
type dated struct {
	http.ResponseWriter
	by *wrongClock
}

func (w dated) WriteHeader(status int) {
	w.Header().Set("Date", time.Now().Add(time.Duration(w.by.off.Load())).UTC().Format(http.TimeFormat))
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets watches flush.
func (w dated) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// clockOf puts a front with such a clock before a member and returns a kubeconfig that leads to it.
func (w *world) clockOf(member string) (*wrongClock, []byte) {
	server, c := w.Servers.Member(member), &wrongClock{}
	f := musttest.Get(front.New(server.ViaProxy(server.AdminConfig())))(w.T)
	w.T.Cleanup(f.Close)
	f.Play(func(w http.ResponseWriter, r *http.Request, honest http.Handler) { honest.ServeHTTP(dated{w, c}, r) })
	return c, musttest.Get(f.Kubeconfig("token"))(w.T)
}

// letOff is how long a cluster whose clock was put right may take to be a candidate again: calm for
// 10 s, and time to measure.
const letOff = 40 * time.Second

// A clock that is behind is the harder one: its readers go on for longer. One that is ahead is in the drills of alerts.
func TestAClusterWhoseClockIsOffLosesTheLeadInOrder(t *testing.T) {
	t.Parallel()
	const off, more = 2 * time.Second, 2*time.Second - epsilon // more than D + ε
	w := newWorld(t, brief, map[string]string{"west": "50", "south": "10"})
	clock, kubeconfig := w.clockOf("east")
	w.addCluster("east", "100", kubeconfig)
	ns := w.namespace("a", "east", "west", "south")
	w.Policy("clocks", ns)
	w.startHub()
	epoch := w.Leads("east", ns, firstElection, "east", "west", "south")
	w.awaitPolicy("clocks", v1alpha1.ConditionClocksAgree, metav1.ConditionTrue, "Agree")

	last := w.follow("east", ns)
	clock.set(-off)
	w.awaitUnfit("east", ns, reason.ClockSkewed,
		"the API server's clock is ", "behind the hub's", "maxClockSkewMilliseconds is 250")
	w.handedOver(ns, "west", epoch, last, "east", "west", "south")
	r := musttest.Get(w.Record(ns))(w.T)
	if bound := last().Add(w.term() + more); r.Spec.AcquireTime.Time.Before(bound) {
		t.Errorf("granted at %v, when a reader with that clock may have acted until %v", r.Spec.AcquireTime, bound)
	}
	if !slices.ContainsFunc(r.Status.History, func(c v1alpha1.Change) bool {
		return c.State == v1alpha1.StateEnding && c.Reason == reason.ClockSkewed && c.Leader == "east"
	}) {
		t.Errorf("the record does not say why: %+v", r.Status.History)
	}
	w.awaitEvent("east", reason.ClockSkewed, "behind the hub's")
	w.awaitPolicy("clocks", v1alpha1.ConditionClocksAgree, metav1.ConditionFalse, string(reason.ClockSkewed), "in east;")

	led := w.keeps("west", ns)
	clock.set(0)
	w.Eventually("east may lead again", letOff, func() error {
		c := must.Get(w.Candidate(ns, "east"))
		return must.ErrorIf(!c.Eligible, "%+v", c)
	})
	w.awaitPolicy("clocks", v1alpha1.ConditionClocksAgree, metav1.ConditionTrue, "Agree")
	led.check() // and takes nothing back
}
