// Package leadership holds the tests of the whole: a hub, real members, and what a
// platform engineer sees of them.
package leadership

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/hub"
)

// shared is the fleet that the tests of this package use one after the other. Each
// test has a hub, Clusters and namespaces of its own.
var shared *fleet.Fleet

var worlds atomic.Int32

func TestMain(m *testing.M) {
	level := zap.NewDevelopmentConfig()
	if !testingVerbose() {
		level.Level = zap.NewAtomicLevelAt(zap.ErrorLevel)
	}
	zl, err := level.Build()
	if err != nil {
		panic(err)
	}
	ctrl.SetLogger(zapr.NewLogger(zl))
	os.Exit(fleet.Main(m, []string{"east", "west", "south"}, func(_ context.Context, f *fleet.Fleet, _ string) error {
		shared = f
		return nil
	}))
}

func testingVerbose() bool {
	for _, a := range os.Args {
		if a == "-test.v=true" || strings.HasPrefix(a, "-test.v=") {
			return true
		}
	}
	return false
}

// world is what one test sees: a fleet namespace with three Clusters, a hub that
// serves it, and the members.
type world struct {
	t       *testing.T
	fleet   string
	hub     client.Client
	members map[string]client.Client
	stop    func()
	timings v1alpha1.Timings // of its policies
}

// newWorld registers the members with their priorities. The hub is not started.
func newWorld(t *testing.T, priorities map[string]string) *world {
	t.Helper()
	w := &world{t: t, fleet: fmt.Sprintf("fleet-%d", worlds.Add(1)), members: map[string]client.Client{}, stop: func() {}, timings: fast}
	var err error
	w.hub, err = client.New(shared.Hub().AdminConfig(), client.Options{Scheme: hub.Scheme()})
	w.must(err)
	w.must(w.hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.fleet}}))
	w.must(w.hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.system()}}))
	for _, m := range shared.Members() {
		w.members[m.Name()], err = client.New(m.AdminConfig(), client.Options{})
		w.must(err)
	}
	for name, priority := range priorities {
		_, err := shared.RegisterMember(t.Context(), shared.Member(name), w.fleet, priority)
		w.must(err)
	}
	t.Cleanup(func() {
		for _, m := range shared.Members() {
			m.Proxy().Heal()
		}
		w.clear()
	})
	return w
}

// clear removes all copies, so that the next world begins with none that are somebody
// else's. The hub has stopped.
func (w *world) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range w.members {
		var list coordinationv1.LeaseList
		w.must(c.List(ctx, &list, client.HasLabels{v1alpha1.ManagedLabel}))
		for i := range list.Items {
			w.must(client.IgnoreNotFound(c.Delete(ctx, &list.Items[i])))
		}
	}
}

func (w *world) system() string { return w.fleet + "-system" }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// released makes the hub find an election that was given up in order long ago, so that
// it need not wait for what a predecessor can have promised.
func (w *world) released() {
	w.t.Helper()
	past := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	after := metav1.NewMicroTime(past.Add(time.Microsecond)) // as a tenure marks it
	w.must(w.hub.Create(w.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.system(), Name: hub.ElectionName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(""), LeaseDurationSeconds: ptr.To[int32](1),
			AcquireTime: &after, RenewTime: &past, LeaseTransitions: ptr.To[int32](0),
		},
	}))
}

// stopLimit is how long a hub may take to stop: its own grace for runnables is longer.
const stopLimit = 15 * time.Second

// goroutines are the stacks of all.
func goroutines() string {
	var b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // a Builder takes everything
	return b.String()
}

// startHub runs a hub in this process until the test ends or stopHub is called.
func (w *world) startHub() {
	w.t.Helper()
	w.startHubAs(shared.Hub().AdminConfig())
}

func (w *world) startHubAs(cfg *rest.Config) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := hub.NewManager(ctx, cfg, hub.Options{
		Namespace: w.system(), FleetNamespaces: []string{w.fleet}, MetricsAddress: "0", ProbeAddress: "0",
	})
	if err != nil {
		cancel()
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.stop = func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				w.t.Errorf("hub: %v", err)
			}
		case <-time.After(stopLimit):
			w.t.Errorf("the hub does not stop within %v; it is doing this:\n%s", stopLimit, goroutines())
		}
		w.stop = func() {}
	}
	w.t.Cleanup(func() { w.stop() })
}

// member is a client of a member, straight at its API server.
func (w *world) member(name string) client.Client { return w.members[name] }

// namespace creates a namespace in the members and returns its name.
func (w *world) namespace(suffix string, members ...string) string {
	w.t.Helper()
	name := w.fleet + "-" + suffix
	for _, m := range members {
		w.must(w.member(m).Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"fleet": w.fleet},
		}}))
	}
	return name
}

// policy creates a policy with the world's timings.
func (w *world) policy(name string, namespaces ...string) *v1alpha1.LeadershipPolicy {
	w.t.Helper()
	p := newPolicy(w.fleet, name, namespaces...)
	p.Spec.Timings = w.timings
	w.must(w.hub.Create(w.t.Context(), p))
	return p
}

// newPolicy is a policy with the fast profile.
func newPolicy(fleet, name string, namespaces ...string) *v1alpha1.LeadershipPolicy {
	return &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet, Name: name},
		Spec: v1alpha1.LeadershipPolicySpec{
			Namespaces: v1alpha1.NamespaceSelection{Names: namespaces},
			Timings:    fast,
		},
	}
}

// record reads the record of a namespace.
func (w *world) record(namespace string) (*v1alpha1.NamespaceLeader, error) {
	o := &v1alpha1.NamespaceLeader{}
	return o, w.hub.Get(w.t.Context(), types.NamespacedName{Namespace: w.fleet, Name: namespace}, o)
}

// copyIn reads the copy of a namespace in a member.
func (w *world) copyIn(member, namespace string) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	return l, w.member(member).Get(w.t.Context(), types.NamespacedName{Namespace: namespace, Name: v1alpha1.DefaultLeaseName}, l)
}

// eventually waits until a condition holds, and fails the test with what it last said.
func (w *world) eventually(what string, within time.Duration, condition func() error) {
	w.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.t.Context(), 20*time.Millisecond, within, true, func(context.Context) (bool, error) {
		last = condition()
		return last == nil, nil
	})
	if err != nil {
		w.t.Fatalf("%s: not within %v: %v", what, within, last)
	}
}

// leads waits until the record and the copies in these members name the leader, and
// returns the epoch.
func (w *world) leads(leader, namespace string, within time.Duration, members ...string) int64 {
	w.t.Helper()
	var epoch int64
	w.eventually(leader+" leads "+namespace, within, func() error {
		r, err := w.record(namespace)
		if err != nil {
			return err
		}
		s := r.Status
		if s.Leader != leader || s.Phase != v1alpha1.PhaseLeading {
			return fmt.Errorf("record: leader %q, phase %s, reason %s, %s; candidates %+v", s.Leader, s.Phase, s.Reason, s.Message, s.Candidates)
		}
		epoch = s.Epoch
		for _, m := range members {
			l, err := w.copyIn(m, namespace)
			if err != nil {
				return fmt.Errorf("copy in %s: %w", m, err)
			}
			if *l.Spec.HolderIdentity != leader+"."+w.fleet || int64(*l.Spec.LeaseTransitions) != s.Epoch {
				return fmt.Errorf("copy in %s: holder %s, epoch %d; want %s, %d", m, *l.Spec.HolderIdentity, *l.Spec.LeaseTransitions, leader, s.Epoch)
			}
		}
		return nil
	})
	return epoch
}

// setPriority edits the priority label of a Cluster; empty removes it.
func (w *world) setPriority(cluster, priority string) {
	w.t.Helper()
	c := &clusterv1.Cluster{}
	w.must(w.hub.Get(w.t.Context(), types.NamespacedName{Namespace: w.fleet, Name: cluster}, c))
	base := c.DeepCopy()
	if priority == "" {
		delete(c.Labels, v1alpha1.PriorityLabel)
	} else {
		metav1.SetMetaDataLabel(&c.ObjectMeta, v1alpha1.PriorityLabel, priority)
	}
	w.must(w.hub.Patch(w.t.Context(), c, client.MergeFrom(base)))
}
