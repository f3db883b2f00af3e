package publish

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// request is one that a member got.
type request struct {
	verb string
	key  types.NamespacedName
	at   time.Time
	copy lease.Content // of a create or update
}

// member stands in for the Leases of an API server: with compare-and-swap, and with links that fail in every way.
type member struct {
	coordinationclient.LeaseInterface // what is not implemented must not be called

	mu       sync.Mutex
	leases   map[types.NamespacedName]*coordinationv1.Lease
	version  int
	requests []request
	inFlight int
	// arrive, if set, is asked what becomes of a request before it is carried out, and leave before it is answered.
	// They may block until the context ends.
	arrive, leave func(context.Context, request) error
}

func newMember() *member {
	return &member{leases: map[types.NamespacedName]*coordinationv1.Lease{}, version: 100}
}

func (m *member) Leases(namespace string) coordinationclient.LeaseInterface {
	return &inNamespace{member: m, namespace: namespace}
}

type inNamespace struct {
	*member
	namespace string
}

// serve carries out one request.
func (m *member) serve(ctx context.Context, r request,
	carry func() (*coordinationv1.Lease, error)) (obj *coordinationv1.Lease, err error) {
	r.at = time.Now()
	m.mu.Lock()
	m.requests = append(m.requests, r)
	m.inFlight++
	arrive, leave := m.arrive, m.leave
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.inFlight--
		m.mu.Unlock()
	}()
	if arrive != nil {
		if err := arrive(ctx, r); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	obj, err = carry()
	if obj != nil {
		obj = obj.DeepCopy()
	}
	m.mu.Unlock()
	if leave != nil {
		if err := leave(ctx, r); err != nil {
			return nil, err
		}
	}
	return obj, err
}

func (m *member) store(key types.NamespacedName, obj *coordinationv1.Lease) *coordinationv1.Lease {
	obj = obj.DeepCopy()
	m.version++
	obj.ResourceVersion = strconv.Itoa(m.version)
	if obj.UID == "" {
		obj.UID = types.UID("object-" + strconv.Itoa(m.version))
	}
	m.leases[key] = obj
	return obj
}

func (n *inNamespace) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: n.namespace, Name: name}
}

func (n *inNamespace) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	key := n.key(name)
	return n.serve(ctx, request{verb: "get", key: key}, func() (*coordinationv1.Lease, error) {
		if obj, ok := n.leases[key]; ok {
			return obj, nil
		}
		return nil, apierrors.NewNotFound(leases, name)
	})
}

func (n *inNamespace) Create(ctx context.Context, obj *coordinationv1.Lease,
	_ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	key := n.key(obj.Name)
	c, _ := wire.Read(obj)
	return n.serve(ctx, request{verb: "create", key: key, copy: c}, func() (*coordinationv1.Lease, error) {
		if _, ok := n.leases[key]; ok {
			return nil, apierrors.NewAlreadyExists(leases, obj.Name)
		}
		return n.store(key, obj), nil
	})
}

func (n *inNamespace) Update(ctx context.Context, obj *coordinationv1.Lease,
	_ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	key := n.key(obj.Name)
	c, _ := wire.Read(obj)
	return n.serve(ctx, request{verb: "update", key: key, copy: c}, func() (*coordinationv1.Lease, error) {
		old, ok := n.leases[key]
		switch {
		case obj.UID == "" || obj.ResourceVersion == "":
			return nil, apierrors.NewBadRequest("an update without a UID re-creates, one without a version overwrites")
		case !ok:
			return nil, apierrors.NewNotFound(leases, obj.Name)
		case old.UID != obj.UID || old.ResourceVersion != obj.ResourceVersion:
			return nil, apierrors.NewConflict(leases, obj.Name, errors.New("out of date"))
		}
		if obj = n.store(key, obj); obj.DeletionTimestamp != nil && len(obj.Finalizers) == 0 {
			delete(n.leases, key)
		}
		return obj, nil
	})
}

func (n *inNamespace) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	key := n.key(name)
	_, err := n.serve(ctx, request{verb: "delete", key: key}, func() (*coordinationv1.Lease, error) {
		old, ok := n.leases[key]
		switch {
		case o.Preconditions == nil || o.Preconditions.UID == nil || o.Preconditions.ResourceVersion == nil:
			return nil, apierrors.NewBadRequest("a delete without preconditions")
		case !ok:
			return nil, apierrors.NewNotFound(leases, name)
		case old.UID != *o.Preconditions.UID || old.ResourceVersion != *o.Preconditions.ResourceVersion:
			return nil, apierrors.NewConflict(leases, name, errors.New("out of date"))
		}
		if len(old.Finalizers) > 0 {
			old = old.DeepCopy()
			old.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			n.store(key, old)
			return nil, nil
		}
		delete(n.leases, key)
		return old, nil
	})
	return err
}

func (n *inNamespace) List(ctx context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	list := &coordinationv1.LeaseList{}
	_, err := n.serve(ctx, request{verb: "list"}, func() (*coordinationv1.Lease, error) {
		selector, err := metav1.ParseToLabelSelector(o.LabelSelector)
		if err != nil {
			return nil, err
		}
		if o.ResourceVersion == "0" {
			return nil, nil // a cache answers that, as old as it may be: one from before there was anything
		}
		for _, obj := range n.leases {
			if obj.Labels["leasecast.dev/managed"] == selector.MatchLabels["leasecast.dev/managed"] {
				list.Items = append(list.Items, *obj.DeepCopy())
			}
		}
		list.ResourceVersion = strconv.Itoa(n.version)
		return nil, nil
	})
	return list, err
}

// lease returns a copy of a Lease.
func (m *member) lease(key types.NamespacedName) *coordinationv1.Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leases[key].DeepCopy()
}

// delete deletes a Lease, which no watch shows.
func (m *member) delete(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leases, key)
}

// has returns the Lease in a namespace, if there is one.
func (m *member) has(key types.NamespacedName) (lease.Content, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	obj, ok := m.leases[key]
	if !ok {
		return lease.Content{}, false
	}
	c, _ := wire.Read(obj)
	return c, true
}

// put stores what a hub wrote earlier.
func (m *member) put(c lease.Content, key seal.Key) {
	obj := &coordinationv1.Lease{}
	if err := seal.Write(key, c, obj); err != nil {
		panic(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, obj)
}

// futureSince returns the requests from an instant on.
func (m *member) since(t time.Time) []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, r := range m.requests {
		if !r.at.Before(t) {
			return append([]request(nil), m.requests[i:]...)
		}
	}
	return nil
}

// becomes says what is done to every request from now on.
func (m *member) becomes(arrive, leave func(context.Context, request) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.arrive, m.leave = arrive, leave
}

// swallow is a link that has gone dead without a word.
func swallow(ctx context.Context, _ request) error {
	<-ctx.Done()
	return ctx.Err()
}

// slow is a link on which a request arrives a second after it was sent.
func slow(ctx context.Context, _ request) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(second):
		return nil
	}
}

// reset is a link that fails at once.
func reset(context.Context, request) error { return errors.New("connection refused") }

// world is a Publisher at work in a bubble.
type world struct {
	*Publisher
	t      *testing.T
	member *member
	clock  *clocktest.Bubble
	began  time.Time
	ledger *Promises

	mu      sync.Mutex
	mayNot  bool
	changed []string
	reports []error
	ended   chan struct{}
	cancel  context.CancelFunc
}

const fleetName = "fleet"

var testTimings = Timings{Renew: 5 * second, Timeout: 3 * second}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, member: newMember(), clock: clocktest.NewBubble(lease.Reading{Wall: time.Now().Round(0)}),
		began: time.Now(), ledger: NewPromises(), ended: make(chan struct{})}
	w.Publisher = New(Options{
		Client: w.member, Fleet: fleetName, Cluster: "east.fleet", ClusterUID: "uid-of-east", Hub: "hub", Key: testKey,
		Clock: w.clock, Promises: w.ledger, Log: logr.Discard(),
		Queue: workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		MayWrite: func(lease.Reading) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return !w.mayNot
		},
		Report: func(_ bool, _ lease.Reading, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.reports = append(w.reports, err)
		},
		Changed: func(namespace string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changed = append(w.changed, namespace)
		},
	})
	return w
}

// start runs the publisher until stop.
func (w *world) start() {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.cancel = cancel
	go func() {
		defer close(w.ended)
		w.Run(ctx)
	}()
	synctest.Wait()
}

// stop ends the publisher. When Run has returned, nothing may be under way.
func (w *world) stop() {
	w.t.Helper()
	w.cancel()
	<-w.ended
	w.member.mu.Lock()
	defer w.member.mu.Unlock()
	if n := w.member.inFlight; n > 0 {
		w.t.Errorf("%d requests are under way after Run has returned", n)
	}
}

// mayWrite sets whether the tenure has the right to write.
func (w *world) mayWrite(may bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mayNot = !may
}

// after lets time pass until nothing more happens at that instant.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func keyOf(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: "leasecast"}
}

// assignLead makes this member the leader of a namespace from now on.
func (w *world) assignLead(namespace string, epoch int64) {
	t := term("east", epoch)
	t.AcquireTime = w.clock.Now().Wall
	w.Assign(keyOf(namespace), assign.Assignment{Role: assign.Lead, Term: t, First: true}, testTimings)
}

func (w *world) assignFollow(namespace string) {
	w.Assign(keyOf(namespace), assign.Assignment{Role: assign.Follow, Term: term("west", 20)}, testTimings)
}

// promised is what the promises says of a namespace.
func (w *world) promised(namespace string) Promise {
	return w.ledger.Get(types.NamespacedName{Namespace: fleetName, Name: namespace})
}

// leads fails the test unless the Lease is live.
func (w *world) leads(namespace string) {
	w.t.Helper()
	c, ok := w.member.has(keyOf(namespace))
	if !ok || c.Holder != "east.fleet" || !c.Live(w.clock.Now().Wall) {
		w.t.Fatalf("%s: %v, %+v", namespace, ok, c)
	}
}

// bubble runs tests in bubbles of their own, in which time passes when all wait. It stops what they have started. A
// bubble fails its test if a goroutine outlives it.
func bubble(t *testing.T, tests map[string]func(*world)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { inBubble(t, test) })
	}
}

func inBubble(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() {
			if w.cancel == nil {
				w.Queue.ShutDown()
			} else if w.t.Context().Err() == nil {
				w.stop()
			}
		}()
		test(w)
	})
}

// dice may be rolled by many.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{r: rand.New(rand.NewPCG(seed, 0))} }

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func count(rs []request, verbs ...string) int {
	n := 0
	for _, r := range rs {
		for _, v := range verbs {
			if r.verb == v {
				n++
			}
		}
	}
	return n
}
