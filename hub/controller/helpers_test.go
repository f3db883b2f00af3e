package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/ledger"
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
	eastLease          = decidetest.Lease
	policyOf, fencing  = decidetest.PolicyFor, decidetest.Fencing
)

// inBubble runs a subtest in a bubble of its own.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// planOf is the plan of a decision.
func planOf(d election.Decision) decide.Plan { return decide.Plan{Decision: d} }

var aboutShop = requestOf(shop)

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
	f.Bounds = f.Seal.Largest()
	for i := range v.Members {
		v.Members[i].Leases = nil
	}
	c.members.observe(t.Context(), v, f.Now)
	v.HubID, v.State = c.HubID, election.State{}
	v.Complete(f)
	return v
}

// inShort is a condition in short.
func inShort(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
	}
	return "nothing"
}

// testAPI is an API server of the hub.
type testAPI = client.WithWatch

// checked passes each request to an API server through a check, which may refuse it. A write of a status has the verb
// status.
func checked(api testAPI, check func(ctx context.Context, verb string, o runtime.Object) error) testAPI {
	unless := func(err error, send func() error) error {
		if err != nil {
			return err
		}
		return send()
	}
	return interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c testAPI, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return unless(check(ctx, "get", o), func() error { return c.Get(ctx, k, o, opts...) })
		},
		List: func(ctx context.Context, c testAPI, l client.ObjectList, opts ...client.ListOption) error {
			return unless(check(ctx, "list", l), func() error { return c.List(ctx, l, opts...) })
		},
		Create: func(ctx context.Context, c testAPI, o client.Object, opts ...client.CreateOption) error {
			return unless(check(ctx, "create", o), func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c testAPI, o client.Object, opts ...client.UpdateOption) error {
			return unless(check(ctx, "update", o), func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c testAPI, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return unless(check(ctx, "patch", o), func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c testAPI, o client.Object, opts ...client.DeleteOption) error {
			return unless(check(ctx, "delete", o), func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, of string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			return unless(check(ctx, of, o), func() error { return c.SubResource(of).Update(ctx, o, opts...) })
		},
	})
}

// refusing answers requests with some verbs with an error, unless that is nil then.
func refusing(api testAPI, answer *error, verbs ...string) testAPI {
	return checked(api, func(_ context.Context, verb string, _ runtime.Object) error {
		if slices.Contains(verbs, verb) {
			return *answer
		}
		return nil
	})
}

func failing(api testAPI, verbs ...string) testAPI { return refusing(api, &errRefused, verbs...) }

// bounded refuses requests without a deadline.
func bounded(api testAPI) testAPI {
	return checked(api, func(ctx context.Context, _ string, _ runtime.Object) error {
		if _, ends := ctx.Deadline(); !ends {
			return errRefused
		}
		return ctx.Err()
	})
}

// traffic counts requests: reads and writes of records, and writes of a status.
type traffic struct{ reads, records, statuses int }

func (n *traffic) to(api testAPI) testAPI {
	return checked(api, func(_ context.Context, verb string, o runtime.Object) error {
		switch _, isRecord := o.(*v1alpha1.NamespaceLeader); {
		case verb == "status":
			n.statuses++
		case isRecord && verb == "get":
			n.reads++
		case isRecord:
			n.records++
		}
		return nil
	})
}

// fakeRecorder keeps events, or the beginning of each.
type fakeRecorder struct{ events, related []string }

func (f *fakeRecorder) Eventf(about, related runtime.Object, kind, reason, _, note string, args ...any) {
	if r, ok := related.(*corev1.ObjectReference); ok {
		f.related = append(f.related, r.Kind+" "+r.Namespace+"/"+r.Name)
	}
	if c, ok := about.(*clusterv1.Cluster); ok {
		note += c.ResourceVersion // a recorder does not merge events about different versions
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

func (f *fakeMembers) Served(string) (here bool, other string) { return f.other == "", f.other }

func (f *fakeMembers) Members(fleetName string) []fleet.Member {
	return slices.DeleteFunc(slices.Clone(f.shown), func(m fleet.Member) bool { return m.Fleet != fleetName })
}

func (f *fakeMembers) lastAnswer(fleet.Member) lease.Reading { return testStart }

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

func (f *fakeMembers) Offsets() map[fleet.Key]skew.Interval {
	by := f.ahead()
	return map[fleet.Key]skew.Interval{eastKey: {Lo: by, Hi: by}, westKey: {Lo: by, Hi: by}}
}

func (f *fakeMembers) Move(context.Context, string) (fleet.Move, error) { return f.moves, f.unmoved }

func (f *fakeMembers) namespace(_ context.Context, m fleet.Member, name string) (*corev1.Namespace, error) {
	ns, ok := f.spaces[m.Name][name]
	switch {
	case ok:
		return &ns, nil
	case f.refuses != nil:
		return nil, f.refuses
	case f.space != nil:
		return f.space, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
}

func (f *fakeMembers) namespaces(_ context.Context, m fleet.Member) (all []corev1.Namespace) {
	for _, ns := range f.spaces[m.Name] {
		all = append(all, ns)
	}
	return all
}

// fixedClock is a clock that stands still.
type fixedClock lease.Reading

func (c fixedClock) Now() lease.Reading { return lease.Reading(c) }

// fakeWorker is a worker as decisions see it.
type fakeWorker struct {
	publisher *publish.Publisher
	unguarded error
	unfenced  func(guard.Fence, string) error
	lock      worker.LockState
	readers   int
	required  worker.Required
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
func (w *fakeWorker) Readers(string) int                  { return w.readers }
func (w *fakeWorker) Required(string, worker.Requires) worker.Required {
	return w.required
}
func (w *fakeWorker) Wake() { w.woken++ }

// newTestHub returns a Controller whose tenure is past all earlier ones, its member east and its API server. It has
// what withTestAPI makes, and a Lease in east that lapsed long ago.
func newTestHub(t *testing.T) (*Controller, *fakeMembers, testAPI) {
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
		musttest.Do(t, add(scheme))
	}
	return scheme
}

// withTestAPI gives a Controller an API server that holds a record of shop, its policy with a D of 15 s, and a seal
// with a D of a minute and an ε of 5 s. There are no members.
func withTestAPI(t *testing.T, c *Controller) testAPI {
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
	musttest.Do(t, api.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	change(o)
	musttest.Do(t, api.Update(t.Context(), o))
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
	musttest.Do(t, lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me",
		RenewTime: metav1.NewTime(start.Wall)}))
	return next
}

// entryOf is what a controller remembers of a namespace.
func entryOf(t *testing.T, c *Controller, key types.NamespacedName) *ledger.Entry {
	t.Helper()
	if c.Live == nil {
		c.Live, c.Clock = fake.NewClientBuilder().WithScheme(testScheme(t)).Build(), fixedClock(testStart)
	}
	e, err := c.ledger.Take(t.Context(), key)
	musttest.Do(t, err)
	return e
}

// said20 is what a record says of a term of east.
func said20() v1alpha1.NamespaceLeaderSpec {
	var s v1alpha1.NamespaceLeaderSpec
	ledger.Store(eastLeads(20), &s)
	return s
}
