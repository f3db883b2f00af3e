package controller

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
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

// testFleet is a Controller with a real fleet. Its Clusters cannot be reached without kubeconfigs.
type testFleet struct {
	*Controller
	t      *testing.T
	api    client.WithWatch
	events *fakeRecorder
	seen   *controllertest.FakeInformer // of Clusters
}

// granted is an API server where the hub may do everything with Secrets, of which there are none.
func granted() (kubernetes.Interface, metadata.Interface) {
	api := kubernetesfake.NewClientset()
	api.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		allowed := authorizationv1.SubjectAccessReviewStatus{Allowed: true}
		return true, &authorizationv1.SelfSubjectAccessReview{Status: allowed}, nil
	})
	scheme := metadatafake.NewTestScheme()
	_ = metav1.AddMetaToScheme(scheme)
	return api, metadatafake.NewSimpleMetadataClient(scheme)
}

// newTestFleet is to be called in a bubble of synctest. Its clock stands still.
func newTestFleet(t *testing.T, objects ...client.Object) *testFleet {
	t.Helper()
	scheme, clock := testScheme(t), fixedClock(testStart)
	m := &testFleet{t: t, events: &fakeRecorder{}}
	m.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.LeadershipPolicy{}, &v1alpha1.NamespaceLeader{}, follows).Build()
	informers := &informertest.FakeInformers{Scheme: scheme}
	var err error
	if m.seen, err = informers.FakeInformerFor(t.Context(), &clusterv1.Cluster{}); err != nil {
		t.Fatal(err)
	}
	own := seal.Mark("uid", "leasecast-system")
	api, secrets := granted()
	f := fleet.New(fleet.Options{
		HubID: own, API: api, Metadata: secrets, MayWrite: func() bool { return true }, Clock: clock, LocalAddresses: true,
	})
	local := &fakeLocalManager{cache: hubCache{informers, m.api}, api: m.api}
	musttest.Do(t, f.SetupWithManager(&fakeManager{local: local}))
	m.Controller = New(Options{
		Fleet: f, Clock: clock, HubID: own, OwnNamespace: "leasecast-system", Seals: seal.NewStore(m.api, m.api),
		Tenure: succeeding(t, testStart, 6*time.Second, -time.Hour),
	})
	m.Client, m.Live, m.Controller.events = m.api, m.api, m.events
	for _, q := range []*queue{&m.recordQueue, &m.policyQueue} {
		q.q = newTestQueue(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- local.added[0].Start(ctx) }()
	t.Cleanup(func() {
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
func (m *testFleet) standby() { m.Tenure = tenure.New(m.Clock, 6*time.Second) }

// changes stores a Cluster that was changed, and shows it.
func (m *testFleet) changes(name string, change func(*clusterv1.Cluster)) {
	m.t.Helper()
	o, old := clusterOf("fleet", name, ""), &clusterv1.Cluster{}
	changeStored(m.t, m.api, o, func(o *clusterv1.Cluster) {
		o.DeepCopyInto(old)
		change(o)
	})
	m.seen.Update(old, o)
	synctest.Wait()
}

// loses deletes a Cluster, and shows it.
func (m *testFleet) loses(name string) {
	m.t.Helper()
	o := clusterOf("fleet", name, "")
	musttest.Do(m.t, m.api.Get(m.t.Context(), client.ObjectKeyFromObject(o), o))
	musttest.Do(m.t, m.api.Delete(m.t.Context(), o))
	m.seen.Delete(o)
	synctest.Wait()
}

// member is one that there has to be.
func (m *testFleet) member(name string) fleet.Member {
	m.t.Helper()
	found, ok := m.Fleet.Member(fleet.Key{Fleet: "fleet", Name: name})
	if !ok {
		m.t.Fatalf("there is no member %s", name)
	}
	return found
}

// isServed has the fleet served here, by the other installation with a namespace, or by none.
func (m *testFleet) isServed(here bool, other string) {
	m.source = served{fleetSource{m.Fleet}, here, other}
}

// served is a fleet that an installation serves, and that stays where it is.
type served struct {
	fleetSource
	here  bool
	other string
}

func (s served) Served(string) (here bool, other string) { return s.here, s.other }

func (served) Move(context.Context, string) (fleet.Move, error) { return fleet.Stays, nil }

// pinned is a Cluster that takes part, and whose UID the hub knows.
func pinned(name string) *clusterv1.Cluster {
	c := clusterOf("fleet", name, "5")
	c.Annotations = map[string]string{v1alpha1.ClusterUIDAnnotation: "uid"}
	return c
}

func namespaceOf(name, team string) corev1.Namespace {
	return corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid", ResourceVersion: "1", Labels: map[string]string{"team": team}},
	}
}

// recordOf is the empty record of a namespace.
func recordOf(fleetName, name string) *v1alpha1.NamespaceLeader {
	return &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: name}}
}

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
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
		Namespace: fleetName, Name: name, UID: types.UID("uid-of-" + name),
		Labels: map[string]string{v1alpha1.PriorityLabel: priority},
	}}
}
