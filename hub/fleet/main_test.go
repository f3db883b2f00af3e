package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	e2e "github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
)

// retryPause bounds every wait for something that happens by itself.
const retryPause = 30 * time.Second

// shared starts the servers that the tests on real API servers share, when the first one asks for them.
// These tests run one after the other, each in a namespace of its own on the hub, and leave the
// proxies healed.
var shared = sync.OnceValues(func() (*e2e.Fleet, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return e2e.Start(ctx, e2e.Options{Members: []string{"east", "west"}, Audit: true})
})

// started is what shared has started, for TestMain.
var started atomic.Pointer[e2e.Fleet]

func servers(t *testing.T) *e2e.Fleet {
	t.Helper()
	f := musttest.Get(shared())(t)
	started.Store(f)
	return f
}

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	code := m.Run()
	if f := started.Load(); f != nil {
		if err := f.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// hub is one replica of a hub that serves one fleet.
type hub struct {
	*fleet.Provider
	client   client.Client
	mayWrite atomic.Bool
	refused  atomic.Int32 // how many patches of the hub's objects fail next
	engaged  engagements
	stop     func()
}

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// engagements is what a controller of the manager is told.
type engagements struct {
	mu    sync.Mutex
	names []multicluster.ClusterName
	ended []multicluster.ClusterName
}

func (e *engagements) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (e *engagements) Engage(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names = append(e.names, name)
	context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ended = append(e.ended, name)
	})
	return nil
}

func (e *engagements) count(k fleet.Key) (begun, ended int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range e.names {
		if name == k.ClusterName() {
			begun++
		}
	}
	for _, name := range e.ended {
		if name == k.ClusterName() {
			ended++
		}
	}
	return begun, ended
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(clusterv1.AddToScheme(s))
	utilruntime.Must(coordinationv1.AddToScheme(s)) // controllers that watch members look kinds up here too
	return s
}

// startHub runs a hub for the fleet of that name, and stops it when the test is over.
func startHub(t *testing.T, namespace string, mayWrite bool) *hub {
	t.Helper()
	h, mgr := newHub(t, namespace, mayWrite, manager.Options{})
	h.start(t, mgr)
	return h
}

func newHub(t *testing.T, namespace string, mayWrite bool, o manager.Options) (*hub, mcmanager.Manager) {
	t.Helper()
	return newHubAs(t, servers(t).Hub().AdminConfig(), namespace, mayWrite, o)
}

// newHubAs returns a hub that reads Secrets with these credentials.
func newHubAs(
	t *testing.T, secrets *rest.Config, namespace string, mayWrite bool, o manager.Options,
) (*hub, mcmanager.Manager) {
	t.Helper()
	h := &hub{}
	h.mayWrite.Store(mayWrite)
	h.Provider = fleet.New(fleet.Options{
		Namespaces:     []string{namespace},
		API:            kubernetes.NewForConfigOrDie(secrets),
		Metadata:       metadata.NewForConfigOrDie(secrets),
		HubID:          "hub-of-" + t.Name(),
		MayWrite:       h.mayWrite.Load,
		LocalAddresses: true,
		UserAgent:      "leasecast-hub/" + t.Name(),
	})
	h.SetProbing(namespace, []fleet.Probing{
		{Clusters: labels.Everything(), Interval: time.Second, Timeout: time.Second, Skew: 250 * time.Millisecond},
	})
	o.Scheme = newScheme()
	o.Metrics = metricsserver.Options{BindAddress: "0"}
	o.Cache = cache.Options{ // transforms Clusters as the hub does
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		ByObject:          map[client.Object]cache.ByObject{&clusterv1.Cluster{}: {Transform: fleet.SlimCluster}},
	}
	admin := servers(t).Hub().AdminConfig()
	admin.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && h.refused.Add(-1) >= 0 {
				return nil, errors.New("not now")
			}
			return next.RoundTrip(r)
		})
	})
	mgr := musttest.Get(mcmanager.New(admin, h.Provider, o))(t)
	musttest.Do(t, h.SetupWithManager(mgr))
	musttest.Do(t, mgr.Add(&h.engaged))
	h.client = hubClient(t)
	makeNamespace(t, namespace)
	return h, mgr
}

func (h *hub) start(t *testing.T, mgr mcmanager.Manager) {
	t.Helper()
	h.stop = musttest.Start(t, mgr.Start)
}

func hubClient(t *testing.T) client.Client {
	t.Helper()
	c := musttest.Get(client.New(servers(t).Hub().AdminConfig(), client.Options{Scheme: newScheme()}))(t)
	return c
}

// makeNamespace makes a fleet. What a test registers there is gone when it is over.
func makeNamespace(t *testing.T, name string) {
	t.Helper()
	c := hubClient(t)
	err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, kind := range []client.Object{&clusterv1.Cluster{}, &corev1.Secret{}, &coordinationv1.Lease{}} {
			if err := c.DeleteAllOf(context.Background(), kind, client.InNamespace(name)); err != nil {
				t.Error(err)
			}
		}
	})
}

// await waits until the condition returns nil, and returns how long that took. It may be called when the test is over.
func await(t *testing.T, what string, bound time.Duration, condition func() error) time.Duration {
	t.Helper()
	start := time.Now()
	musttest.Do(t, must.Await(context.Background(), bound, what, func(context.Context) error { return condition() }))
	return time.Since(start)
}

// never watches for a while that the condition does not hold.
func never(t *testing.T, d time.Duration, condition func() bool) {
	t.Helper()
	if err := must.Stay(t.Context(), d, "what must not happen", func(context.Context) error {
		return must.ErrorIf(condition(), "it happened")
	}); err != nil {
		t.Error(err)
	}
}

// awaitMember waits until the member is as wanted.
func (h *hub) awaitMember(
	t *testing.T, k fleet.Key, what string, bound time.Duration, want func(fleet.Member) bool,
) time.Duration {
	t.Helper()
	return await(t, what, bound, func() error {
		m, ok := h.Member(k)
		return must.ErrorIf(!ok || !want(m), "%v: listed %v, connected %v, pinned %v, problem %v, health %v",
			k, ok, m.Connected, m.Pinned, m.Problem, healthOf(m))
	})
}

func healthOf(m fleet.Member) string {
	if m.Name == "" {
		return "none"
	}
	return fmt.Sprintf("%+v", m.Health(thresholds))
}

var thresholds = health.Thresholds{UnreachableAfter: 3 * time.Second, RecoverAfter: 2 * time.Second}

func connected(m fleet.Member) bool { return m.Connected && m.Pinned }

func healthy(m fleet.Member) bool {
	return connected(m) && m.Health(thresholds).State == health.Healthy
}

func takesNoPart(m fleet.Member) bool { return m.PriorityReason == reason.NoPriority }

func hasProblem(why reason.Reason) func(fleet.Member) bool {
	return func(m fleet.Member) bool { return m.Problem.Reason == why }
}

// register makes a Cluster for a server under its own name.
func register(t *testing.T, s *e2e.Server, namespace, priority string) fleet.Key {
	t.Helper()
	_ = musttest.Get(servers(t).RegisterMember(t.Context(), s, namespace, priority))(t)
	return fleet.Key{Fleet: namespace, Name: s.Name()}
}

// registerAs makes a Cluster of any name with any kubeconfig; none if it is nil.
func registerAs(t *testing.T, k fleet.Key, kubeconfig []byte) {
	t.Helper()
	makeNamespace(t, k.Fleet)
	if kubeconfig != nil {
		setKubeconfig(t, k, kubeconfig)
	}
	c := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: k.Fleet,
			Name:      k.Name,
			Labels:    map[string]string{v1alpha1.PriorityLabel: "1"},
		},
		Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443}},
	}
	musttest.Do(t, hubClient(t).Create(t.Context(), c))
}

func setKubeconfig(t *testing.T, k fleet.Key, kubeconfig []byte) {
	t.Helper()
	musttest.Do(t, servers(t).SetKubeconfig(t.Context(), k.Fleet, k.Name, kubeconfig))
}

func proxied(t *testing.T, s *e2e.Server) []byte {
	t.Helper()
	k := musttest.Get(s.ProxiedKubeconfig())(t)
	return k
}

// edit changes the Cluster in the hub.
func edit(t *testing.T, k fleet.Key, change func(*clusterv1.Cluster)) {
	t.Helper()
	c := getCluster(t, k)
	before := c.DeepCopy()
	change(c)
	musttest.Do(t, hubClient(t).Patch(t.Context(), c, client.MergeFrom(before)))
}

func getCluster(t *testing.T, k fleet.Key) *clusterv1.Cluster {
	t.Helper()
	c := &clusterv1.Cluster{}
	musttest.Do(t, hubClient(t).Get(t.Context(), client.ObjectKey{Namespace: k.Fleet, Name: k.Name}, c))
	return c
}
