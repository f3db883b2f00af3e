package gate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/membertest"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func newQueue() queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
}

// drain returns the names that are queued, sorted, once all that is due has happened.
func drain(q queue) []string {
	synctest.Wait()
	names := []string{}
	for q.Len() > 0 {
		req, _ := q.Get()
		names = append(names, req.String())
		q.Done(req)
	}
	slices.Sort(names)
	return names
}

func object(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// start runs a Resync for ConfigMaps until the test is over.
func start(t *testing.T, m member.Leader, r client.Reader) (q queue, stop func()) {
	t.Helper()
	q = newQueue()
	ctx, cancel := context.WithCancel(context.Background())
	if err := gate.NewResync(m, r, &corev1.ConfigMap{}).Start(ctx, q); err != nil {
		t.Fatal(err)
	}
	return q, func() { cancel(); synctest.Wait(); q.ShutDown() }
}

func TestResyncEnqueuesEverythingOfThePromotedNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := membertest.New()
		c := fake.NewClientBuilder().WithObjects(object(ns, "a"), object(ns, "b"), object("other", "c")).Build()
		q, stop := start(t, f, c)
		defer stop()
		expect := func(when string, want ...string) {
			t.Helper()
			if got := drain(q); !slices.Equal(got, want) {
				t.Errorf("%s: enqueued %q, want %q", when, got, want)
			}
		}
		expect("at first", []string{}...)
		f.Promote(ns)
		expect("promoted", "shop/a", "shop/b")
		f.Renew(ns)
		expect("renewed", []string{}...)
		f.Demote(ns)
		expect("demoted", []string{}...)
		f.Promote(ns)
		expect("promoted again", "shop/a", "shop/b")
		f.Promote(ns)
		expect("in a new term", "shop/a", "shop/b")
		f.Expire()
		f.Renew(ns)
		expect("after a gap", "shop/a", "shop/b")
	})
}

func TestResyncEnqueuesWhatIsLedWhenItStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := membertest.New()
		f.Promote(ns)
		f.Demote("other")
		q, stop := start(t, f, fake.NewClientBuilder().WithObjects(object(ns, "a"), object("other", "c")).Build())
		defer stop()
		if got := drain(q); !slices.Equal(got, []string{"shop/a"}) {
			t.Errorf("enqueued %q, want shop/a", got)
		}
	})
}

func TestResyncEndsWithItsController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &counting{Fake: membertest.New()}
		q, stop := start(t, f, fake.NewClientBuilder().WithObjects(object(ns, "a")).Build())
		if f.listeners.Load() != 1 {
			t.Errorf("%d listeners while it runs, want 1", f.listeners.Load())
		}
		stop()
		f.Promote(ns)
		if got := drain(q); len(got) != 0 || f.listeners.Load() != 0 {
			t.Errorf("enqueued %q after the end, and left %d listeners", got, f.listeners.Load())
		}
	})
}

// counting knows how many listeners it has.
type counting struct {
	*membertest.Fake
	listeners atomic.Int64
}

func (c *counting) Listen(l member.Listener) (remove func()) {
	c.listeners.Add(1)
	inner := c.Fake.Listen(l)
	return func() {
		c.listeners.Add(-1)
		inner()
	}
}

// failing is a reader whose lists fail until told otherwise.
type failing struct {
	client.Reader
	lists, fails atomic.Int64
}

func (f *failing) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if f.lists.Add(1) <= f.fails.Load() {
		return errors.New("no answer")
	}
	return f.Reader.List(ctx, list, opts...)
}

func TestResyncRepeatsAListThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := membertest.New()
		r := &failing{Reader: fake.NewClientBuilder().WithObjects(object(ns, "a")).Build()}
		r.fails.Store(5)
		q, stop := start(t, f, r)
		defer stop()
		f.Promote(ns)
		<-time.After(10 * time.Second)
		if got := drain(q); !slices.Equal(got, []string{"shop/a"}) || r.lists.Load() != 6 {
			t.Errorf("enqueued %q in %d lists, want shop/a in 6", got, r.lists.Load())
		}
	})
}

func TestResyncGivesUpWhenTheTermIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := membertest.New()
		r := &failing{Reader: fake.NewClientBuilder().Build()}
		r.fails.Store(1 << 40)
		_, stop := start(t, f, r)
		defer stop()
		f.Promote(ns)
		<-time.After(10 * time.Second)
		f.Demote(ns)
		synctest.Wait()
		before := r.lists.Load()
		<-time.After(time.Minute)
		if after := r.lists.Load(); after != before || before < 2 {
			t.Errorf("listed %d times while it led and %d times after", before, after-before)
		}
	})
}

// No request may be lost to a term that begins while it is being skipped. Each round
// creates objects and enqueues them once, as their informer would, while a term
// begins, with several workers; then every one of them must be acted on, with nothing
// else to wake the controller.
func TestNoRequestIsLostToAPromotion(t *testing.T) {
	begins := map[string]func(f *membertest.Fake){
		"by a promotion":      func(f *membertest.Fake) { f.Demote(ns); f.Promote(ns) },
		"by a late renewal":   func(f *membertest.Fake) { f.Expire(); f.Renew(ns) },
		"as the next epoch":   func(f *membertest.Fake) { f.Promote(ns) },
		"by a repaired Lease": func(f *membertest.Fake) { f.DeleteLease(ns); f.Renew(ns) },
	}
	for name, begin := range begins {
		t.Run(name, func(t *testing.T) {
			const rounds, objects = 200, 4
			f, cache, q := membertest.New(), &memory{}, newQueue()
			f.Promote(ns)
			var acted sync.Map // by name
			g := gate.NewGate(f, reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				if ctx.Err() == nil {
					acted.Store(req.Name, true)
				}
				return reconcile.Result{}, nil
			}))
			ctx, cancel := context.WithCancel(t.Context())
			var workers sync.WaitGroup
			for range 3 {
				workers.Go(func() { work(ctx, t, q, g) })
			}
			defer workers.Wait()
			defer q.ShutDown()
			defer cancel()
			if err := gate.NewResync(f, cache, &corev1.ConfigMap{}).Start(ctx, q); err != nil {
				t.Fatal(err)
			}
			for round := range rounds {
				cache.clear()
				var all sync.WaitGroup
				for i := range objects {
					all.Go(func() {
						o := object(ns, fmt.Sprint(round, "-", i))
						cache.add(o)
						q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
					})
				}
				all.Go(func() { begin(f) })
				all.Wait()
				for _, o := range cache.all() {
					if !within(10*time.Second, func() bool { _, ok := acted.Load(o.Name); return ok }) {
						t.Fatalf("round %d: %s was never acted on", round, o.Name)
					}
				}
			}
		})
	}
}

// within reports whether the condition comes about in time.
func within(limit time.Duration, condition func() bool) bool {
	deadline := time.After(limit)
	for !condition() {
		select {
		case <-time.After(100 * time.Microsecond):
		case <-deadline:
			return false
		}
	}
	return true
}

// work is what a controller's worker does.
func work(ctx context.Context, t *testing.T, q queue, r reconcile.Reconciler) {
	for {
		req, shutdown := q.Get()
		if shutdown {
			return
		}
		if result, err := r.Reconcile(ctx, req); err != nil || !result.IsZero() {
			t.Errorf("Reconcile(%v) = %v, %v", req, result, err)
		}
		q.Done(req)
	}
}

// memory is an informer cache.
type memory struct {
	client.Reader
	mu    sync.Mutex
	items []corev1.ConfigMap
}

func (m *memory) add(o *corev1.ConfigMap) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.items = append(m.items, *o)
}

func (m *memory) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.items = nil
}

func (m *memory) all() []corev1.ConfigMap {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.items)
}

func (m *memory) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.ConfigMapList).Items = m.all()
	return nil
}
