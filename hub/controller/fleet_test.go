package controller

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/tenure"
)

// hubCache is a cache of the management cluster that shows what its API server holds.
type hubCache struct {
	*informertest.FakeInformers
	api client.Client
}

func (c hubCache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.api.Get(ctx, key, o, opts...)
}

func (c hubCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.api.List(ctx, list, opts...)
}

// hubManager is as much of a manager as a fleet needs.
type hubManager struct {
	manager.Manager
	cache cache.Cache
	api   client.Client
	fleet manager.Runnable
}

func (m *hubManager) GetCache() cache.Cache        { return m.cache }
func (m *hubManager) GetAPIReader() client.Reader  { return m.api }
func (m *hubManager) GetClient() client.Client     { return m.api }
func (m *hubManager) Add(r manager.Runnable) error { m.fleet = r; return nil }

// fleetManager is the same for several clusters.
type fleetManager struct {
	mcmanager.Manager
	local *hubManager
}

func (m fleetManager) GetLocalManager() manager.Manager { return m.local }
func (m fleetManager) GetLogger() logr.Logger           { return logr.Discard() }
func (m fleetManager) Elected() <-chan struct{}         { return nil }

// muster is a controller with Clusters that nobody can reach: they have no kubeconfigs.
type muster struct {
	*Controller
	t      *testing.T
	api    client.WithWatch
	clock  lease.Clock
	events *said
	seen   *controllertest.FakeInformer // of Clusters
}

var musterStart = lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}

// metadataWatch shows the metadata of the Secrets that a watch shows. Unlike watch.Filter it ends when nobody reads any
// more.
type metadataWatch struct {
	watch.Interface
	events chan watch.Event
}

func (w metadataWatch) ResultChan() <-chan watch.Event { return w.events }

func newMetadataWatch(of watch.Interface) metadataWatch {
	w := metadataWatch{of, make(chan watch.Event, 100)}
	go func() {
		defer close(w.events)
		for e := range of.ResultChan() {
			if s, ok := e.Object.(*corev1.Secret); ok {
				e.Object = &metav1.PartialObjectMetadata{ObjectMeta: s.ObjectMeta}
			}
			w.events <- e
		}
	}()
	return w
}

// granted is the API server behind a client, where the hub may do everything with Secrets.
func granted(of client.WithWatch) (kubernetes.Interface, metadata.Interface) {
	api := kubernetesfake.NewClientset()
	api.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		allowed := authorizationv1.SubjectAccessReviewStatus{Allowed: true}
		return true, &authorizationv1.SelfSubjectAccessReview{Status: allowed}, nil
	})
	api.PrependReactor("get", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		secret, name := &corev1.Secret{}, a.(clienttesting.GetAction).GetName()
		return true, secret, of.Get(context.Background(), client.ObjectKey{Namespace: a.GetNamespace(), Name: name}, secret)
	})
	shown := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	shown.PrependReactor("list", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		secrets := &corev1.SecretList{}
		err := of.List(context.Background(), secrets, client.InNamespace(a.GetNamespace()))
		list := &metav1.List{ListMeta: secrets.ListMeta}
		for _, s := range secrets.Items {
			list.Items = append(list.Items,
				runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: s.ObjectMeta}})
		}
		return true, list, err
	})
	shown.PrependWatchReactor("secrets", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := of.Watch(context.Background(), &corev1.SecretList{}, client.InNamespace(a.GetNamespace()))
		if err != nil {
			return true, nil, err
		}
		return true, newMetadataWatch(w), nil
	})
	return api, shown
}

// newMuster is to be called in a bubble of synctest. Its clock stands still.
func newMuster(t *testing.T, objects ...client.Object) *muster {
	t.Helper()
	return newMusterBy(t, fixedClock(musterStart), objects...)
}

// newMusterBy goes by a clock.
func newMusterBy(t *testing.T, clock lease.Clock, objects ...client.Object) *muster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	m := &muster{t: t, clock: clock, events: &said{}}
	m.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.LeadershipPolicy{}, &v1alpha1.NamespaceLeader{}).Build()
	informers := &informertest.FakeInformers{Scheme: scheme}
	var err error
	if m.seen, err = informers.FakeInformerFor(t.Context(), &clusterv1.Cluster{}); err != nil {
		t.Fatal(err)
	}
	own := seal.Mark("uid", "leasecast-system")
	api, secrets := granted(m.api)
	f := fleet.New(fleet.Options{
		HubID: own, API: api, Metadata: secrets, MayWrite: func() bool { return true }, Clock: m.clock, LocalAddresses: true,
	})
	local := &hubManager{cache: hubCache{informers, m.api}, api: m.api}
	if err := f.SetupWithManager(fleetManager{local: local}); err != nil {
		t.Fatal(err)
	}
	m.Controller = New(Options{
		Fleet: f, Clock: m.clock, HubID: own, OwnNamespace: "leasecast-system", Seals: seal.NewStore(m.api, m.api),
		Tenure: succeeding(t, musterStart, 6*time.Second, -time.Hour),
	})
	m.Client, m.Live, m.Controller.events = m.api, m.api, m.events
	for _, q := range []*queue{&m.recordQueue, &m.policyQueue} {
		q.q = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- local.fleet.Start(ctx) }()
	t.Cleanup(func() {
		m.recordQueue.q.ShutDown()
		m.policyQueue.q.ShutDown()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	for _, o := range objects {
		if cl, ok := o.(*clusterv1.Cluster); ok {
			m.seen.Add(cl)
		}
	}
	synctest.Wait()
	return m
}

// standby takes the right to write away.
func (m *muster) standby() { m.Tenure = tenure.New(m.clock, 6*time.Second) }

// changes stores a Cluster that was changed, and shows it.
func (m *muster) changes(name string, change func(*clusterv1.Cluster)) {
	m.t.Helper()
	old := &clusterv1.Cluster{}
	if err := m.api.Get(m.t.Context(), types.NamespacedName{Namespace: "fleet", Name: name}, old); err != nil {
		m.t.Fatal(err)
	}
	o := old.DeepCopy()
	change(o)
	if err := m.api.Update(m.t.Context(), o); err != nil {
		m.t.Fatal(err)
	}
	m.seen.Update(old, o)
	synctest.Wait()
}

// loses deletes a Cluster, and shows it.
func (m *muster) loses(name string) {
	m.t.Helper()
	o := &clusterv1.Cluster{}
	key := types.NamespacedName{Namespace: "fleet", Name: name}
	if err := m.api.Get(m.t.Context(), key, o); err != nil {
		m.t.Fatal(err)
	}
	if err := m.api.Delete(m.t.Context(), o); err != nil {
		m.t.Fatal(err)
	}
	m.seen.Delete(o)
	synctest.Wait()
}

// member is one that there has to be.
func (m *muster) member(name string) fleet.Member {
	m.t.Helper()
	found, ok := m.Fleet.Member(fleet.Key{Fleet: "fleet", Name: name})
	if !ok {
		m.t.Fatalf("there is no member %s", name)
	}
	return found
}

// asked empties a queue, and returns what it held, as <fleet>/<name>.
func asked(q *queue) []string {
	var keys []string
	for q.q.Len() > 0 {
		r, _ := q.q.Get()
		keys = append(keys, r.Namespace+"/"+r.Name)
		q.q.Done(r)
	}
	slices.Sort(keys)
	return keys
}

// clusterOf is a Cluster that takes part with a priority.
func clusterOf(fleetName, name, priority string) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: fleetName, Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{
			v1alpha1.PriorityLabel: priority,
		},
	}}
}

// policyOf is a valid policy for a namespace.
func policyOf(fleetName, name, namespace string) *v1alpha1.LeadershipPolicy {
	p := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: name, Generation: 7}}
	p.Spec.InitialDelaySeconds = ptr.To(int32(0))
	p.Spec.Namespaces.Names = []string{namespace}
	p.Spec.Timings = v1alpha1.Timings{
		LeaseDurationMilliseconds: 15_000, RenewIntervalMilliseconds: 5000,
		RequestTimeoutMilliseconds: 3000, MaxClockSkewMilliseconds: 1000,
	}
	return p
}

// sealed returns what the seal holds of bounds that these policies have.
func sealed(duration, skew, stop string, policies ...string) []byte {
	all := map[string]map[string]string{}
	for _, name := range policies {
		all[name] = map[string]string{"leaseDuration": duration, "maxClockSkew": skew, "stopTime": stop}
	}
	text, _ := json.Marshal(all)
	return text
}

// sealOf names the Secret of a fleet's seal.
func sealOf(fleetName string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: seal.SecretName}}
}
