package harness

import (
	"context"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub"
)

const (
	// requestTimeout bounds each request of a world's own clients.
	requestTimeout = 30 * time.Second
	// stopLimit is how long a hub may take to stop: h with the default timings.
	stopLimit = 6 * time.Second
)

// World is a fleet with a hub in the test's own process, and without guestbooks. Any number of worlds can use one
// fleet, one after the other, each with a fleet namespace and a hub of its own.
type World struct {
	*Site
	T       testing.TB
	Servers *fleet.Fleet
	// Fleet is the namespace of Clusters, policies and records, System the hub's namespace.
	Fleet, System string
	// Timings are those of the world's policies.
	Timings v1alpha1.Timings
	// MetricsAddress is where hubs serve their metrics; "0" is nowhere.
	MetricsAddress string
	// Metrics is the registry of the hub's metrics. Nil: they are not collected. One hub of a process can use a registry.
	Metrics prometheus.Registerer
	// StopHub stops the hub, if one runs, and returns when it has stopped.
	StopHub func()

	started bool // a hub was started before
}

// NewWorld connects to a fleet and creates the two namespaces if need be. It registers no member and starts no hub.
func NewWorld(t testing.TB, f *fleet.Fleet, fleetNamespace, system string, timings v1alpha1.Timings) *World {
	w := &World{T: t, Servers: f, Fleet: fleetNamespace, System: system, Timings: timings,
		MetricsAddress: "0", StopHub: func() {}}
	scheme := hub.Scheme()
	w.Must(apiextensionsv1.AddToScheme(scheme))
	w.Site = musttest.Get(newSite(f, fleetNamespace, scheme, requestTimeout))(w.T)
	for _, name := range []string{fleetNamespace, system} {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		w.Must(client.IgnoreAlreadyExists(w.Hub.Create(t.Context(), object)))
	}
	return w
}

// On is the world for a subtest, which starts and stops no hub.
func (w *World) On(t testing.TB) *World {
	on := *w
	on.T = t
	return &on
}

// Must is [Must] for the world's test.
func (w *World) Must(err error) {
	musttest.Do(w.T, err)
}

// Eventually is [Eventually] for the world's test.
func (w *World) Eventually(what string, within time.Duration, condition func() error) {
	musttest.Eventually(w.T, within, what, func(context.Context) error { return condition() })
}

// release creates an election that a predecessor released long ago. So the hub need not wait for the predecessor's
// terms.
func (w *World) release() {
	past := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	after := metav1.NewMicroTime(past.Add(time.Microsecond)) // the mark of a released election
	w.Must(w.Hub.Create(w.T.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.System, Name: hub.ElectionName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(""), LeaseDurationSeconds: ptr.To[int32](1),
			AcquireTime: &after, RenewTime: &past, LeaseTransitions: ptr.To[int32](0),
		},
	}))
}

// StartHub runs a hub in this process, with this access to its API server, until the test ends or StopHub is called,
// which returns when the hub has stopped. The first hub of a world waits for no predecessor.
func (w *World) StartHub(as *rest.Config) {
	if !w.started {
		w.release()
		w.started = true
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.T.Cleanup(cancel)
	mgr := musttest.Get(hub.NewManager(ctx, as, hub.Options{
		Namespace: w.System, FleetNamespaces: []string{w.Fleet}, MetricsAddress: w.MetricsAddress, ProbeAddress: "0",
		Metrics: w.Metrics, LocalAddresses: true, Version: "devel",
	}))(w.T)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.StopHub = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				w.T.Errorf("hub: %v", err)
			}
		case <-time.After(stopLimit):
			var stacks strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1) // a Builder returns no error
			w.T.Errorf("the hub does not stop within %v; its goroutines:\n%s", stopLimit, stacks.String())
		}
	})
	w.T.Cleanup(w.StopHub)
}

// Namespace creates a namespace in the members.
func (w *World) Namespace(name string, members ...string) {
	for _, m := range members {
		w.Must(w.Members[m].Create(w.T.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
}

// NewPolicy is a policy for namespaces, with the world's timings. It is not created yet.
func (w *World) NewPolicy(name string, namespaces ...string) *v1alpha1.LeadershipPolicy {
	return &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: name},
		Spec: v1alpha1.LeadershipPolicySpec{
			Namespaces: v1alpha1.NamespaceSelection{Names: namespaces}, Timings: w.Timings,
		},
	}
}

// Policy creates a policy for namespaces, with the world's timings.
func (w *World) Policy(name string, namespaces ...string) *v1alpha1.LeadershipPolicy {
	p := w.NewPolicy(name, namespaces...)
	w.Must(w.Hub.Create(w.T.Context(), p))
	return p
}

// Record is [Site.Record] for the world's test.
func (w *World) Record(namespace string) (*v1alpha1.NamespaceLeader, error) {
	return w.Site.Record(w.T.Context(), namespace)
}

// Candidate is [Site.Candidate] for the world's test.
func (w *World) Candidate(namespace, cluster string) (v1alpha1.Candidate, error) {
	return w.Site.Candidate(w.T.Context(), namespace, cluster)
}

// Eligible is [Site.Eligible] for the world's test.
func (w *World) Eligible(namespace, cluster string) error {
	return w.Site.Eligible(w.T.Context(), namespace, cluster)
}

// LeaseIn is [Site.LeaseIn] for the world's test.
func (w *World) LeaseIn(member, namespace string) (*coordinationv1.Lease, error) {
	return w.Site.LeaseIn(w.T.Context(), member, namespace)
}

// Leading is [Site.Leading] for the world's test.
func (w *World) Leading(leader, namespace string, members ...string) (epoch int64, err error) {
	return w.Site.Leading(w.T.Context(), leader, namespace, members...)
}

// Leads waits until a cluster leads a namespace, and returns the epoch. See [World.Leading].
func (w *World) Leads(leader, namespace string, within time.Duration, members ...string) (epoch int64) {
	w.Eventually(leader+" leads "+namespace, within, func() (err error) {
		epoch, err = w.Leading(leader, namespace, members...)
		return err
	})
	return epoch
}
