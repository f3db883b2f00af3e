// Package integration tests the whole through what a platform engineer sees: a hub in this process and real members.
package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
)

// fleets is how many fleets the tests of this package share, and so how many of them run at once.
const fleets = 2

var all = []string{"east", "west", "south"}

// TestMain starts the fleets. Each test has a fleet to itself, with a hub, Clusters and namespaces of its own. Tests
// are parallel, except for two kinds that run first. After a test restarts its hub, the next hub has less than a term
// for its first renewal. A test that manages every namespace would manage what others left behind.
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

// newWorld registers the members with their priorities. The hub is not started. Terms are steady: a test that awaits
// the end of one sets other timings first.
func newWorld(t *testing.T, priorities map[string]string) *world {
	f, name := borrow(t), fmt.Sprintf("fleet-%d", worlds.Add(1))
	w := &world{harness.NewWorld(t, f, name, name+"-system", steady)}
	for name, priority := range priorities {
		harness.Get(f.RegisterMember(t.Context(), f.Member(name), w.Fleet, priority))(w.T)
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
	w = newWorld(t, three)
	w.Timings = timings
	a = w.namespace("a", all...)
	w.Policy("p", a)
	w.startHub()
	return w, a, w.Leads("east", a, firstElection, all...)
}

// eastLeadsTwo is a world in which east leads the namespaces a and b of all members. The epoch is that of a. The
// timings are those of a, and b is steady.
func eastLeadsTwo(t *testing.T, timings v1alpha1.Timings) (w *world, a, b string, epoch int64) {
	w = newWorld(t, three)
	w.Timings = timings
	a, b = w.namespace("a", all...), w.namespace("b", all...)
	w.Policy("p", a)
	w.steadyPolicy("beside", b)
	w.startHub()
	epoch = w.Leads("east", a, firstElection, all...)
	w.Leads("east", b, firstElection, all...)
	return w, a, b, epoch
}

// eastAndWestLead is a world in which east leads namespace a of all members, and west leads namespace b, which east
// does not have. The epoch is that of a. The timings are those of a, and b is steady.
func eastAndWestLead(t *testing.T, timings v1alpha1.Timings) (w *world, a, b string, epoch int64) {
	w = newWorld(t, three)
	w.Timings = timings
	a, b = w.namespace("a", all...), w.namespace("b", "west", "south")
	w.Policy("p", a)
	w.steadyPolicy("beside", b)
	w.startHub()
	epoch = w.Leads("east", a, firstElection, all...)
	w.Leads("west", b, firstElection, "west", "south")
	return w, a, b, epoch
}

// steadyPolicy is Policy for namespaces in which nothing may happen, whatever happens in others.
func (w *world) steadyPolicy(name string, namespaces ...string) {
	p := w.NewPolicy(name, namespaces...)
	p.Spec.Timings = steady
	w.Must(w.Hub.Create(w.T.Context(), p))
}

// setPriority edits the priority label of a Cluster.
func (w *world) setPriority(cluster, priority string) {
	w.editCluster(cluster, func(c *clusterv1.Cluster) {
		metav1.SetMetaDataLabel(&c.ObjectMeta, v1alpha1.PriorityLabel, priority)
	})
}

// removePriority removes the label.
func (w *world) removePriority(cluster string) {
	w.editCluster(cluster, func(c *clusterv1.Cluster) { delete(c.Labels, v1alpha1.PriorityLabel) })
}
