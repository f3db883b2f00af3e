package worker

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
)

// The last handler of errors paces them by the time of the last one, wherever that was. In a bubble it would sleep from
// the year 2000 to today, while everything else in the bubble goes on.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

var (
	eastKey    = fleet.Key{Fleet: "fleet", Name: "east"}
	testKey    = seal.Key("a key of thirty-two characters..")
	testStart  = lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	shopLease  = types.NamespacedName{Namespace: "shop", Name: "leasecast"}
	errRefused = errors.New("refused")
)

// What a member answers.
var (
	internal    = failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	forbidden   = failure(http.StatusForbidden, metav1.StatusReasonForbidden)
	notFound    = failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	unavailable = failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
)

// The installations of the hub.
const us, them = "us", "them"

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// env is a worker in cluster east. It is the hub and the fleet of its worker, too. East enforces what it stores.
type env struct {
	*Worker
	t     *testing.T
	east  *memberAPI
	start time.Time

	mu       sync.Mutex
	sent     []request
	answer   func(*http.Request) *metav1.Status // comes before all other answers, unless it returns nil
	observed []health.Observation
	members  map[fleet.Key]fleet.Member
	by       string // the installation that serves the fleet
	standby  bool
	unsealed bool // the seal of the fleet cannot be obtained
	wanted   []guard.Fence
	required []schema.GroupVersionResource
	invalid  []string      // invalid policies
	unread   error         // the policies cannot be read
	reading  chan struct{} // if it is not nil, reading the policies takes until it is closed
	records  error         // why they cannot be relinquished
	changed  []string      // the namespaces for which a decision was enqueued; "": all
	statuses int           // how often the policies' statuses were enqueued
	events   []string
}

// request is one that the member got: its method and URL, and the name of a Lease that a dry run creates.
type request struct {
	at    time.Duration
	what  string
	probe string
}

// newEnv must be called in a bubble of synctest. It wants these fences in namespace shop, where east leads for an hour.
func newEnv(t *testing.T, wanted ...guard.Fence) *env {
	t.Helper()
	east := fleet.Member{Key: eastKey, UID: "uid", Pinned: true}
	r := &env{
		t: t, east: newMemberAPI(), start: time.Now(), by: us, wanted: wanted,
		members: map[fleet.Key]fleet.Member{eastKey: east},
	}
	client := r.east.client(t)
	r.Worker = New(Options{
		Member: east, Cluster: r.east, Client: client, Tenants: r.east.tenants,
		Fleet: r, Hub: r, HubID: us, Clock: clocktest.NewBubble(testStart), Promises: publish.NewPromises(),
		Log:     logr.Discard(),
		Observe: func(o health.Observation) { r.locked(func() { r.observed = append(r.observed, o) }) },
	})
	r.east.intercept = r.intercept
	r.east.namespaces = map[string]map[string]string{"shop": nil}
	if len(wanted) > 0 {
		r.has(eastLease(20))
	}
	return r
}

func (r *env) locked(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

func (r *env) Member(key fleet.Key) (m fleet.Member, ok bool) {
	r.locked(func() { m, ok = r.members[key] })
	return m, ok
}

func (r *env) Members(fleetName string) (ms []fleet.Member) {
	r.locked(func() {
		for key, m := range r.members {
			if key.Fleet == fleetName {
				ms = append(ms, m)
			}
		}
	})
	return ms
}

func (r *env) Forget(key fleet.Key) { r.locked(func() { delete(r.members, key) }) }

func (r *env) Serve(context.Context, string) (key seal.Key, ok bool) {
	r.locked(func() {
		if ok = !r.standby && !r.unsealed && r.by != them; ok {
			r.by, key = us, testKey
		}
	})
	return key, ok
}

func (r *env) Served(string) (ok bool) {
	r.locked(func() { ok = r.by == us })
	return ok
}

func (r *env) MayWrite(string, lease.Reading) (ok bool) {
	r.locked(func() { ok = r.by != them && !r.standby })
	return ok
}

func (r *env) Changed(_ fleet.Key, namespace string) {
	r.locked(func() { r.changed = append(r.changed, namespace) })
}

func (r *env) FencesChanged(fleet.Key) { r.locked(func() { r.statuses++ }) }

func (r *env) Requires(context.Context, fleet.Key) (required []schema.GroupVersionResource, err error) {
	r.locked(func() {
		if err = r.unread; err == nil {
			required = slices.Clone(r.required)
		}
	})
	return required, err
}

func (r *env) Fences(context.Context, fleet.Key) (wanted []guard.Fence, invalid []string, err error) {
	if r.reading != nil {
		<-r.reading
	}
	r.locked(func() {
		if err = r.unread; err == nil {
			wanted, invalid = r.wanted, r.invalid
		}
	})
	return wanted, invalid, err
}

func (r *env) RelinquishRecords(ctx context.Context, _ string) error {
	if end, bounded := ctx.Deadline(); !bounded || time.Until(end) <= 0 {
		r.t.Errorf("the records are to be relinquished until %v", end)
	}
	return r.records
}

func (r *env) RecordReader(_ fleet.Key, _ types.NamespacedName, why reason.Reason, message string) {
	r.locked(func() { r.events = append(r.events, string(why)+": "+message) })
}

func (r *env) RecordGuard(_ fleet.Key, why reason.Reason, message string) {
	r.locked(func() { r.events = append(r.events, string(why)+": "+message) })
}

// will waits until nothing goes on, and changes what the member, the hub or the fleet answers.
func (r *env) will(change func(*env)) {
	synctest.Wait()
	r.locked(func() { change(r) })
}

// is changes a member of the fleet.
func (r *env) is(name string, change func(*fleet.Member)) {
	r.will(func(r *env) {
		key := fleet.Key{Fleet: "fleet", Name: name}
		m := r.members[key]
		m.Key = key
		change(&m)
		r.members[key] = m
	})
}

func moves(m *fleet.Member)       { m.Paused, m.DeleteForMove = true, true }
func pauses(m *fleet.Member)      { m.Paused = true }
func goes(m *fleet.Member)        { m.Gone = true }
func takesNoPart(m *fleet.Member) { m.PriorityReason = reason.NoPriority }

// unlisted has the cache fail with an error to list Leases, or namespaces.
func (r *env) unlisted(leases bool, err error) {
	r.east.shows(func(a *memberAPI) {
		a.uncached = func(list client.ObjectList) error {
			if _, is := list.(*coordinationv1.LeaseList); is == leases {
				return err
			}
			return nil
		}
	})
}

// enqueued returns the namespaces for which a decision was enqueued, and forgets them.
func (r *env) enqueued() (changed []string) {
	r.will(func(r *env) { changed, r.changed = r.changed, nil })
	return changed
}

// intercept records a request, and answers those about the guard and the fences.
func (r *env) intercept(req *http.Request) *metav1.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	probe := probeOf(req)
	r.sent = append(r.sent, request{time.Since(r.start), req.Method + " " + req.URL.String(), probe})
	if r.answer != nil {
		if s := r.answer(req); s != nil {
			return s
		}
	}
	switch probe {
	case "":
		return nil
	case guardProbe:
		s := failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		for _, p := range guard.Policies() {
			for _, v := range p.Policy.Spec.Validations {
				s.Message += v.Message
			}
		}
		return s
	default:
		return r.east.rejects(probe)
	}
}

// at returns the instants of requests that contain all these texts.
func (r *env) at(texts ...string) (at []time.Duration) {
	r.locked(func() {
		for _, s := range r.sent {
			lacks := func(text string) bool { return !strings.Contains(s.what+" "+s.probe, text) }
			if !slices.ContainsFunc(texts, lacks) && (len(at) == 0 || at[len(at)-1] != s.at) {
				at = append(at, s.at)
			}
		}
	})
	return at
}

// forget begins the record of requests again.
func (r *env) forget() {
	r.will(func(r *env) { r.start, r.sent, r.changed = time.Now(), nil, nil })
}

// eastLease is the Lease of a term of east in east, which began at the start.
func eastLease(epoch int64) lease.Content {
	id := eastKey.Identity()
	return lease.Content{
		Namespace: shopLease.Namespace, Name: shopLease.Name, Cluster: id, ClusterUID: "uid", Hub: us,
		Term: lease.Term{
			Holder: id, Epoch: epoch, AcquireTime: testStart.Wall, RenewTime: testStart.Wall, Duration: time.Hour,
		},
	}
}

// has stores Leases in east.
func (r *env) has(leases ...lease.Content) {
	r.t.Helper()
	for _, c := range leases {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: "uid-of-it"}}
		if err := seal.Write(testKey, c, l); err != nil {
			r.t.Fatal(err)
		}
		r.east.store("/apis/coordination.k8s.io/v1", "leases", l)
	}
}

// reads gives the worker a publisher that has read east.
func (r *env) reads() *publish.Publisher {
	r.t.Helper()
	p := r.newPublisher(testKey)
	r.t.Cleanup(p.Queue.ShutDown)
	if !p.ReadAll(r.t.Context()) {
		r.t.Fatal("the Leases were not read")
	}
	r.publisher = p
	r.writes()
	return p
}

// writes has the publisher do everything that is due.
func (r *env) writes() {
	for p := r.Publisher(); p.Queue.Len() > 0; {
		key, _ := p.Queue.Get()
		p.Work(r.t.Context(), key)
		p.Queue.Done(key)
	}
}

// runs has f run until the returned function is called.
func (r *env) runs(f func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(ctx)
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-ended
	}
}

// observes has the observer run until the returned function is called.
func (r *env) observes() (end func()) {
	return r.runs(func(ctx context.Context) {
		for ; ctx.Err() == nil; <-time.After(keepEvery) {
			r.observe(ctx)
		}
	})
}

// kept has the guard and the fences put in place, and forgets that.
func (r *env) kept() {
	r.t.Helper()
	end := r.runs(r.keep)
	pass(3 * time.Second)
	end()
	for _, f := range r.wanted {
		if err := r.Unfenced(f, "shop"); err != nil {
			r.t.Fatalf("%s is not in force: %v", f.Name(), err)
		}
	}
	if err := r.Unguarded(); err != nil {
		r.t.Fatal(err)
	}
	r.forget()
}

// knows reports whether the fleet knows a member.
func (r *env) knows(name string) bool {
	_, ok := r.Member(fleet.Key{Fleet: "fleet", Name: name})
	return ok
}

// stores reports whether east stores a fence: its wall, because its gate is only where there are Leases.
func (r *env) stores(of guard.Fence) bool {
	wall := of.Names()[1]
	return len(r.east.holds("policies/"+wall)) == 1 && len(r.east.holds("bindings/"+wall)) == 1
}

// fences are what a policy fences in namespace shop.
func fences(policy string, f v1alpha1.Fencing) []guard.Fence {
	o := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: policy}}
	o.Spec.Namespaces.Names, o.Spec.Fencing = []string{"shop"}, &f
	return guard.Fences(us, o, nil)
}

// jobs fences the Jobs with a label.
func jobs(policy, label string) guard.Fence {
	once := &metav1.LabelSelector{MatchLabels: map[string]string{"run": label}}
	return fences(policy, v1alpha1.Fencing{Schedules: once})[0]
}

var (
	allJobs = fences("shops", v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}})[0]
	// warning only warns about Jobs.
	warning = fences("shops", v1alpha1.Fencing{
		Enforcement: v1alpha1.EnforcementWarn, Schedules: &metav1.LabelSelector{}})[0]
	// accountWrites fences what an account writes.
	accountWrites = fences("shops", v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{
		ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "checkout"}},
		Resources:       []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
	}}})
	// stock is a lock of another namespace.
	stock = v1alpha1.LockFence{
		Namespace: "till", Name: "stock", LeaseDurationSeconds: 15, RenewDeadlineSeconds: 10, RetryPeriodSeconds: 2,
	}
	stockLock = fences("shops", v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{stock}})[0]
)

// every lists instants until an end.
func every(pause, end time.Duration) (at []time.Duration) {
	for d := time.Duration(0); d <= end; d += pause {
		at = append(at, d)
	}
	return at
}

// same reports whether two errors are the same: nil, or the second is wrapped in the first.
func same(err, want error) bool { return errors.Is(err, want) && (err == nil) == (want == nil) }

// rows runs each row of a table in a bubble of its own.
func rows[T any](t *testing.T, table map[string]T, run func(t *testing.T, row T)) {
	t.Helper()
	for name, row := range table {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { run(t, row) }) })
	}
}
