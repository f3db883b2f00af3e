package gate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/internal/musttest"
	"github.com/leasecast/leasecast/member/membertest"
)

func TestResync_EnqueuesTheNamespaceInEachTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, q := membertest.New(), newQueue[reconcile.Request]()
		f.Promote(ns)
		f.Demote("other")
		stop := startResync(t.Context(), t, forMaps(f), clientWith(object(ns, "a"), object(ns, "b"), object("other", "c")), q)
		all := []string{"shop/a", "shop/b"}
		expect(t, q, "led when it starts", all...)
		for _, step := range []struct {
			when    string
			happens func()
			want    []string
		}{
			{"renewed", func() { f.Renew(ns) }, nil},
			{"demoted", func() { f.Demote(ns) }, nil},
			{"promoted again", func() { f.Promote(ns) }, all},
			{"in the next term", func() { f.Promote(ns) }, all},
			{"after a gap", func() { f.Expire(); f.Renew(ns) }, all},
		} {
			step.happens()
			expect(t, q, step.when, step.want...)
		}
		stop()
		f.Promote(ns)
		expect(t, q, "its controller has ended")
	})
}

// A promotion enqueues what a start of the controller would, in its namespace and in no other. New events come before.
func TestResync_EnqueuesWhatAStartWould(t *testing.T) {
	not := func(name string) predicate.Predicate {
		return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() != name })
	}
	never := predicate.NewPredicateFuncs(func(client.Object) bool { return false })
	initial := predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return e.IsInInitialList }}
	controlled := func(in, name, owner string) client.Object {
		by := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: "1", Controller: ptr.To(true)}
		meta := metav1.ObjectMeta{Namespace: in, Name: name, OwnerReferences: []metav1.OwnerReference{by}}
		return &corev1.Secret{ObjectMeta: meta}
	}
	mapped := func(kind string, namespaces ...string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) (all []reconcile.Request) {
			for _, in := range namespaces {
				key := client.ObjectKey{Namespace: in, Name: kind + "-" + o.GetName()}
				all = append(all, reconcile.Request{NamespacedName: key})
			}
			return all
		})
	}
	all := []string{"shop/a", "shop/b", "shop/c"}
	type row struct {
		build func(m member.Leader) *gate.Builder
		want  []string
	}
	of := func(predicates ...predicate.Predicate) func(m member.Leader) *gate.Builder {
		return func(m member.Leader) *gate.Builder { return forMaps(m, predicates...) }
	}
	owning := func(predicates ...predicate.Predicate) func(m member.Leader) *gate.Builder {
		return func(m member.Leader) *gate.Builder { return forMaps(m, never).Owns(&corev1.Secret{}, predicates...) }
	}
	filtered := func(m member.Leader) *gate.Builder { return forMaps(m).WithEventFilter(not("a")) }
	musttest.Each(t, map[string]row{
		"no predicate":                   {of(), all},
		"a predicate":                    {of(not("a")), all[1:]},
		"two":                            {of(not("a"), not("b")), all[2:]},
		"one of the list at a start":     {of(initial), all},
		"one of changes of an object":    {of(predicate.GenerationChangedPredicate{}), all},
		"a filter of all events":         {filtered, all[1:]},
		"owners that For leaves out":     {owning(), []string{"shop/a", "shop/deleted"}},
		"no owners that Owns leaves out": {owning(never), nil},
		"what all handlers do": {func(m member.Leader) *gate.Builder {
			return gate.ControllerManagedBy(manager(), m).Named("maps").
				Watches(&corev1.ConfigMap{}, mapped("map", ns), not("b")).
				Watches(&corev1.Node{}, mapped("node", ns, "other"))
		}, []string{"shop/map-a", "shop/map-c", "shop/map-d", "shop/node-n"}},
	}, func(t *testing.T, row row) {
		f, q := membertest.New(), priorityqueue.New[reconcile.Request]("start")
		c := clientWith(object(ns, "a"), object(ns, "b"), object(ns, "c"), object("other", "d"),
			controlled(ns, "x", "a"), controlled(ns, "y", "deleted"), controlled("other", "z", "b"),
			&corev1.Secret{ObjectMeta: object(ns, "ownerless").ObjectMeta}, &corev1.Node{ObjectMeta: object("", "n").ObjectMeta})
		startResync(t.Context(), t, row.build(f), c, q)
		for range 2 {
			f.Promote(ns)
			synctest.Wait()
			q.Add(request)
			synctest.Wait()
			if first, _ := q.Get(); first != request {
				t.Errorf("%v comes before a new event", first)
			}
			q.Done(request)
			expect(t, q, "promoted", row.want...)
		}
	})
}

// testReader calls before in each list, whose number it gets.
type testReader struct {
	client.Reader
	lists  atomic.Int64
	before func(ctx context.Context, list int64) error
}

func (r *testReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := r.before(ctx, r.lists.Add(1)); err != nil {
		return err
	}
	return r.Reader.List(ctx, list, opts...)
}

func TestResync_RepeatsAListUntilItSucceedsOrTheTermEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, q := membertest.New(), newQueue[reconcile.Request]()
		r := &testReader{Reader: clientWith(object(ns, "a")), before: func(_ context.Context, list int64) error {
			if list <= 5 {
				return errBroken
			}
			return nil
		}}
		startResync(t.Context(), t, forMaps(f), r, q)
		f.Promote(ns)
		<-time.After(10 * time.Second)
		if expect(t, q, "in the end", "shop/a"); r.lists.Load() != 6 {
			t.Errorf("%d lists, want 6", r.lists.Load())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f, r := membertest.New(), &testReader{before: func(_ context.Context, list int64) error {
			if list > 10 {
				return context.DeadlineExceeded
			}
			return errBroken
		}}
		ctx, lines := logged(t.Context())
		startResync(ctx, t, forMaps(f), r, newQueue[reconcile.Request]())
		f.Promote(ns)
		<-time.After(5 * time.Minute)
		if got := lines(); len(got) != 2 || !strings.Contains(got[0], "Could not list what to resync after a promotion") ||
			!strings.Contains(got[1], context.DeadlineExceeded.Error()) || r.lists.Load() < 60 {
			t.Errorf("in five minutes and %d lists it logs\n%s", r.lists.Load(), strings.Join(got, "\n"))
		}
		f.Demote(ns)
		synctest.Wait()
		before := r.lists.Load()
		if <-time.After(time.Minute); r.lists.Load() != before {
			t.Errorf("%d lists after the term", r.lists.Load()-before)
		}
	})
}

// A failover promotes many namespaces at once. A list of all objects for each of them, at once, could take all memory.
func TestResync_ListsAllNamespacesOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		f, q := membertest.New(), newQueue[reconcile.Request]()
		r := &testReader{Reader: clientWith(object(ns, "a")), before: func(context.Context, int64) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-time.After(time.Second)
			return nil
		}}
		h := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) (all []reconcile.Request) {
			for i := range 10 {
				all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object(fmt.Sprint("n", i), "x"))})
			}
			return all
		})
		b := gate.ControllerManagedBy(manager(), f).Watches(&corev1.ConfigMap{}, h)
		startResync(t.Context(), t, b, r, q)
		var want []string
		for i := range 10 {
			f.Promote(fmt.Sprint("n", i))
			want = append(want, fmt.Sprintf("n%d/x", i))
		}
		<-time.After(5*time.Second + time.Millisecond)
		f.Demote("n9") // may wait for its turn
		<-time.After(10 * time.Second)
		if n := most.Load(); n != 1 {
			t.Errorf("%d lists at a time, want 1", n)
		}
		f.Promote("n9")
		<-time.After(2 * time.Second)
		expect(t, q, "in the end", want...)
	})
}

func TestResync_LogsWhatItListed(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMapList"), meta.RESTScopeNamespace) // as discovery adds it
	mapper.Add(corev1.SchemeGroupVersion.WithKind("SecretList"), meta.RESTScopeNamespace)
	some := musttest.Get(cache.New(&rest.Config{}, cache.Options{
		Scheme: scheme.Scheme, Mapper: mapper, DefaultNamespaces: map[string]cache.Config{"mail": {}, "ledger": {}},
	}))(t)
	untyped, partial := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	untyped.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	const resynced = `"msg"="Resynced after a promotion" "controller"="configmap" "namespace"="shop" "epoch"=1 ` +
		`"type"="ConfigMap" "objects"=1`
	const outside = `"level"=0 "msg"="Nothing is resynced after a promotion, because the manager's cache leaves this ` +
		`namespace out" "controller"="configmap" "namespace"="shop"`
	c := clientWith(object(ns, "a"))
	type row struct {
		of   client.Object
		r    client.Reader
		want string
	}
	musttest.Each(t, map[string]row{
		"of a type":               {&corev1.ConfigMap{}, c, resynced},
		"of objects without type": {untyped, c, resynced},
		"of metadata":             {partial, c, resynced},
		"outside of the cache":    {&corev1.ConfigMap{}, some, outside},
	}, func(t *testing.T, row row) {
		f := membertest.New()
		ctx, lines := logged(t.Context())
		// The kind of For names the controller, whatever it watches before.
		b := gate.ControllerManagedBy(manager(), f).Watches(&corev1.Secret{}, &handler.EnqueueRequestForObject{}).For(row.of)
		startResync(ctx, t, b, row.r, newQueue[reconcile.Request]())
		f.Promote(ns)
		<-time.After(time.Minute)
		if got := lines(); len(got) != 2 || !strings.Contains(got[0], row.want) {
			t.Errorf("it logs %q, want %s", got, row.want)
		}
	})
}

// work is what a controller's worker does.
func work(
	ctx context.Context, t *testing.T, q workqueue.TypedRateLimitingInterface[reconcile.Request], r reconcile.Reconciler,
) {
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

func (m *memory) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *memory) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	m.change(func() { list.(*corev1.ConfigMapList).Items = slices.Clone(m.items) })
	return nil
}

// No request may be lost to a term that begins while it is skipped. Each round creates objects and enqueues them once,
// as their informer would, while a term begins, with several workers. Then every one of them must be acted on, with
// nothing else to wake the controller.
func TestResync_LosesNoRequestToAPromotion(t *testing.T) {
	for name, begin := range map[string]func(f *membertest.Fake){
		"by a promotion":      func(f *membertest.Fake) { f.Demote(ns); f.Promote(ns) },
		"by a late renewal":   func(f *membertest.Fake) { f.Expire(); f.Renew(ns) },
		"as the next epoch":   func(f *membertest.Fake) { f.Promote(ns) },
		"by a repaired Lease": func(f *membertest.Fake) { f.DeleteLease(ns); f.Renew(ns) },
	} {
		t.Run(name, func(t *testing.T) {
			const rounds, objects = 200, 4
			f, c, q := membertest.New(), &memory{}, newQueue[reconcile.Request]()
			f.Promote(ns)
			var acted sync.Map // by request
			g := newGate(f, func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				if ctx.Err() == nil {
					acted.Store(req, true)
				}
				return reconcile.Result{}, nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			var workers sync.WaitGroup
			for range 3 {
				workers.Go(func() { work(ctx, t, q, g) })
			}
			defer workers.Wait()
			defer q.ShutDown()
			defer cancel()
			musttest.Do(t, musttest.Get(gate.ResyncOf(forMaps(f), c))(t).Start(ctx, q))
			for round := range rounds {
				c.change(func() { c.items = nil })
				var all sync.WaitGroup
				var requests [objects]reconcile.Request
				for i := range objects {
					o := object(ns, fmt.Sprint(round, "-", i))
					requests[i] = reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
					all.Go(func() {
						c.change(func() { c.items = append(c.items, *o) })
						q.Add(requests[i])
					})
				}
				all.Go(func() { begin(f) })
				all.Wait()
				deadline := time.After(10 * time.Second)
				for _, req := range requests {
					for _, ok := acted.Load(req); !ok; _, ok = acted.Load(req) {
						select {
						case <-time.After(100 * time.Microsecond):
						case <-deadline:
							t.Fatalf("%v was never acted on", req)
						}
					}
				}
			}
		})
	}
}
