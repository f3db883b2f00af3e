package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/skew"
	"github.com/leasecast/leasecast/hub/tenure"
	"github.com/leasecast/leasecast/hub/worker"
)

var (
	shop, shops      = decidetest.Shop, types.NamespacedName{Namespace: "fleet", Name: "shops"}
	eastKey, westKey = decidetest.EastKey, decidetest.WestKey
	testStart        = decidetest.Start
	testKey          = seal.Key("a key of thirty-two characters..")

	agrees, twoAhead   = decidetest.Agrees, decidetest.TwoAhead
	measured, shopView = decidetest.Member, decidetest.Snapshot
	eastLeads, claims  = decidetest.EastLeads, decidetest.Policies
	policyOf, fencing  = decidetest.PolicyFor, decidetest.Fencing
)

// planOf is the plan of a decision.
func planOf(d election.Decision) decide.Plan { return decide.Plan{Decision: d} }

// requestAbout is a request for a decision.
func requestAbout(key types.NamespacedName) mcreconcile.Request {
	return mcreconcile.Request{Request: reconcile.Request{NamespacedName: key}}
}

// completed adds all that members show to a snapshot of a namespace, under the bounds of a seal.
func completed(t *testing.T, c *Controller, v *decide.Snapshot, bounds ...seal.Bounds) *decide.Snapshot {
	t.Helper()
	f := decide.Fleet{Now: c.now(), Seal: seal.Seal{Policies: map[string]seal.Bounds{}}}
	f.Tenure.Inherited = v.State.Tenure.Inherited
	if c.Tenure != nil {
		f.Tenure.Started, f.Tenure.Inherited = c.Tenure.Started()
	}
	for _, b := range bounds {
		f.Seal.Policies["shops"] = b
	}
	for i := range v.Members {
		v.Members[i].Leases = nil
	}
	c.members.observe(t.Context(), v, f.Now)
	v.HubID, v.State = c.HubID, election.State{}
	v.Complete(f)
	return v
}

// told is a condition in short.
func told(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
	}
	return "nothing"
}

// faultyAPI fails requests before they are sent.
type faultyAPI struct {
	client.Client
	fault func(ctx context.Context, verb string) error
}

func (f faultyAPI) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := f.fault(ctx, "get"); err != nil {
		return err
	}
	return f.Client.Get(ctx, key, o, opts...)
}

func (f faultyAPI) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if err := f.fault(ctx, "list"); err != nil {
		return err
	}
	return f.Client.List(ctx, l, opts...)
}

func (f faultyAPI) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if err := f.fault(ctx, "patch"); err != nil {
		return err
	}
	return f.Client.Patch(ctx, o, p, opts...)
}

// failing refuses requests of a verb.
func failing(api client.Client, verb string) faultyAPI {
	return faultyAPI{api, func(_ context.Context, is string) error {
		if is == verb {
			return errRefused
		}
		return nil
	}}
}

// bounded refuses requests without a deadline.
func bounded(api client.Client) faultyAPI {
	return faultyAPI{api, func(ctx context.Context, _ string) error {
		if _, ends := ctx.Deadline(); !ends {
			return errRefused
		}
		return ctx.Err()
	}}
}

// refusing refuses every update.
type refusing struct {
	client.Client
	with error
}

func (r refusing) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if r.with != nil {
		return r.with
	}
	return r.Client.Update(ctx, o, opts...)
}

// writes has writes fail, and counts them: those of records, and those of a status.
type writes struct {
	client.Client
	answer     error
	records, n int
}

func (w *writes) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if _, ok := o.(*v1alpha1.NamespaceLeader); ok {
		w.records++
	}
	return refusing{w.Client, w.answer}.Update(ctx, o, opts...)
}

func (w *writes) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	w.records++
	if w.answer != nil {
		return w.answer
	}
	return w.Client.Create(ctx, o, opts...)
}

func (w *writes) Status() client.SubResourceWriter { return &statusWrites{w.Client.Status(), w} }

type statusWrites struct {
	client.SubResourceWriter
	w *writes
}

func (s *statusWrites) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	s.w.n++
	if s.w.answer != nil {
		return s.w.answer
	}
	return s.SubResourceWriter.Update(ctx, o, opts...)
}

// explains answers writes of a status.
type explains struct {
	client.Client
	answer error
}

func (e *explains) Status() client.SubResourceWriter {
	return &statusWrites{e.Client.Status(), &writes{answer: e.answer}}
}

// fakeRecorder keeps events, or the beginning of each.
type fakeRecorder struct{ events, related []string }

func (f *fakeRecorder) Eventf(about, related runtime.Object, kind, reason, _, note string, args ...any) {
	if r, ok := related.(*corev1.ObjectReference); ok {
		f.related = append(f.related, r.Kind+" "+r.Namespace+"/"+r.Name)
	}
	f.events = append(f.events, fmt.Sprintf("%T %s %s: %s", about, kind, reason, fmt.Sprintf(note, args...)))
}

// fakeMembers is what decisions see of the members.
type fakeMembers struct {
	shown    []fleet.Member
	space    *corev1.Namespace
	spaces   map[string]map[string]corev1.Namespace // by member, instead of space
	refuses  error                                  // of namespaces
	moves    fleet.Move
	unmoved  error
	unsynced bool
	other    string // the namespace of the installation that serves the fleet, if that is not this one
	verdict  health.Verdict
	offset   skew.Verdict
	ahead    func() time.Duration // of the clocks of two clusters

	thresholds health.Thresholds // asked for
	eps        time.Duration     // asked for
}

// askedFor guards what all fakeMembers were asked for: rows of tables copy them.
var askedFor sync.Mutex

func (f *fakeMembers) synced() bool { return !f.unsynced }

func (f *fakeMembers) served(string) (here bool, other string) { return f.other == "", f.other }

func (f *fakeMembers) members(fleetName string) []fleet.Member {
	return slices.DeleteFunc(slices.Clone(f.shown), func(m fleet.Member) bool { return m.Fleet != fleetName })
}

func (f *fakeMembers) health(_ fleet.Member, th health.Thresholds) health.Verdict {
	askedFor.Lock()
	defer askedFor.Unlock()
	f.thresholds = th
	return f.verdict
}

func (f *fakeMembers) clock(_ lease.Reading, _ fleet.Member, eps time.Duration) skew.Verdict {
	askedFor.Lock()
	defer askedFor.Unlock()
	f.eps = eps
	return f.offset
}

func (f *fakeMembers) offsets() map[fleet.Key]skew.Interval {
	by := f.ahead()
	return map[fleet.Key]skew.Interval{eastKey: {Lo: by, Hi: by}, westKey: {Lo: by, Hi: by}}
}

func (f *fakeMembers) move(context.Context, string) (fleet.Move, error) { return f.moves, f.unmoved }

func (f *fakeMembers) namespace(_ context.Context, m fleet.Member, name string) (*corev1.Namespace, error) {
	ns, ok := f.spaces[m.Name][name]
	switch {
	case f.refuses != nil:
		return nil, f.refuses
	case ok:
		return &ns, nil
	case f.space != nil:
		return f.space, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
}

func (f *fakeMembers) namespaces(_ context.Context, m fleet.Member) (all []corev1.Namespace, err error) {
	for _, ns := range f.spaces[m.Name] {
		all = append(all, ns)
	}
	return all, nil
}

// fakeWorker is a worker as decisions see it.
type fakeWorker struct {
	publisher *publish.Publisher
	unguarded error
	unfenced  func(guard.Fence, string) error
	lock      worker.LockState
	accounts  map[v1alpha1.FencedServiceAccount]worker.AccountState
	readers   int
	woken     int
}

// atWork is a guarded member in which a publisher is at work.
func atWork(p *publish.Publisher) *memberState {
	return &memberState{worker: &fakeWorker{publisher: p}}
}

func (w *fakeWorker) Publisher() *publish.Publisher { return w.publisher }
func (w *fakeWorker) Unguarded() error              { return w.unguarded }
func (w *fakeWorker) Unfenced(f guard.Fence, ns string) error {
	if w.unfenced == nil {
		return nil
	}
	return w.unfenced(f, ns)
}
func (w *fakeWorker) FencedSince(f guard.Fence, ns string) (time.Duration, error) {
	return 0, w.Unfenced(f, ns)
}
func (w *fakeWorker) LockOf(guard.Fence) worker.LockState { return w.lock }

func (w *fakeWorker) AccountOf(a v1alpha1.FencedServiceAccount) worker.AccountState {
	return w.accounts[a]
}

func (w *fakeWorker) Readers(string) int { return w.readers }
func (w *fakeWorker) Wake()              { w.woken++ }

// newTestHub returns a Controller whose tenure is past all earlier ones, its member east and its API server. It has
// what withTestAPI makes, and a Lease in east that lapsed long ago.
func newTestHub(t *testing.T) (*Controller, *fakeMembers, client.Client) {
	t.Helper()
	c := New(Options{Tenure: succeeding(t, testStart, 6*time.Second, -time.Hour), Clock: fixedClock(testStart),
		HubID: "this", OwnNamespace: "leasecast-system"})
	api := withTestAPI(t, c)
	f := &fakeMembers{
		shown: []fleet.Member{{Key: eastKey, Connected: true}}, space: &corev1.Namespace{},
		verdict: health.Verdict{State: health.Healthy},
	}
	c.source = f
	old := eastLease(20)
	old.AcquireTime, old.RenewTime = old.AcquireTime.Add(-2*time.Hour), old.RenewTime.Add(-2*time.Hour)
	c.members.of[eastKey] = atWork(publisherThatRead(t, testStart.Wall, testKey, old))
	return c, f, api
}

// testScheme has all that the hub reads and writes on the management cluster.
func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// withTestAPI gives a Controller an API server that holds a record of shop, its policy with a D of 15 s, and a seal
// with a D of a minute and an ε of 5 s. There are no members.
func withTestAPI(t *testing.T, c *Controller) client.Client {
	t.Helper()
	record := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: shop.Namespace, Name: shop.Name}}
	record.Spec = v1alpha1.NamespaceLeaderSpec{
		Policy: "shops", State: v1alpha1.StateLeading, Leader: "east", Epoch: 20, LeaseDurationSeconds: 15,
		LeaseName: "leasecast",
	}
	p := policyOf("fleet", "shops", "shop")
	p.Generation, p.Spec.InitialDelaySeconds = 0, nil
	secret := sealOf(shop.Namespace)
	secret.Data = map[string][]byte{
		"key": testKey, "policies": boundsOf("60s", "5s", "0s", "shops"),
	}
	api := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(record, p, secret).
		WithStatusSubresource(record).Build()
	c.Client, c.Live, c.source, c.events = api, api, &fakeMembers{}, silent{}
	c.Seals = seal.NewStore(api, api)
	return api
}

// sealOf names the Secret of a fleet's seal.
func sealOf(fleetName string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: seal.SecretName}}
}

// boundsOf returns what a seal stores of policies with the same bounds.
func boundsOf(duration, skew, stop string, policies ...string) []byte {
	all := map[string]map[string]string{}
	for _, name := range policies {
		all[name] = map[string]string{"leaseDuration": duration, "maxClockSkew": skew, "stopTime": stop}
	}
	text, _ := json.Marshal(all)
	return text
}

// changeStored changes an object in an API server.
func changeStored[T client.Object](t *testing.T, api client.Client, o T, change func(T)) {
	t.Helper()
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	change(o)
	if err := api.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// oneElection is an election's Lease that takes every update.
type oneElection struct {
	resourcelock.Interface
	is resourcelock.LeaderElectionRecord
}

func (o oneElection) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &o.is, nil, nil
}

func (oneElection) Update(context.Context, resourcelock.LeaderElectionRecord) error { return nil }

// succeeding is a tenure of h that begins at start, after one that was renewed then, from the start of this one.
func succeeding(t *testing.T, start lease.Reading, h, renewed time.Duration) *tenure.Tenure {
	t.Helper()
	next := tenure.New(fixedClock(start), h)
	lock := next.Lock(oneElection{is: resourcelock.LeaderElectionRecord{
		HolderIdentity: "other", LeaseDurationSeconds: int(h / time.Second), LeaderTransitions: 1,
		AcquireTime: metav1.NewTime(start.Wall.Add(-2 * time.Hour)), RenewTime: metav1.NewTime(start.Wall.Add(renewed)),
	}})
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me",
		RenewTime: metav1.NewTime(start.Wall)}); err != nil {
		t.Fatal(err)
	}
	return next
}
