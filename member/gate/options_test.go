package gate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/membertest"
)

func TestResyncEnqueuesOnlyWhatPassesThePredicates(t *testing.T) {
	named := func(name string) predicate.Predicate {
		return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() != name })
	}
	initial := predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return e.IsInInitialList }}
	for name, tc := range map[string]struct {
		predicates []predicate.Predicate
		want       []string
	}{
		"everything":                           {nil, []string{"shop/a", "shop/b", "shop/c"}},
		"what passes a predicate":              {[]predicate.Predicate{named("a")}, []string{"shop/b", "shop/c"}},
		"what passes all":                      {[]predicate.Predicate{named("a"), named("b")}, []string{"shop/c"}},
		"predicates are asked as at the start": {[]predicate.Predicate{initial}, []string{"shop/a", "shop/b", "shop/c"}},
		"one about changes lets everything through": {
			predicates: []predicate.Predicate{predicate.GenerationChangedPredicate{}},
			want:       []string{"shop/a", "shop/b", "shop/c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, q := membertest.New(), newQueue()
				c := fake.NewClientBuilder().
					WithObjects(object(ns, "a"), object(ns, "b"), object(ns, "c"), object("other", "d")).
					Build()
				ctx, cancel := context.WithCancel(t.Context())
				defer func() { cancel(); synctest.Wait(); q.ShutDown() }()
				if err := gate.NewResync(f, c, &corev1.ConfigMap{}, tc.predicates...).Start(ctx, q); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					f.Promote(ns)
					if got := drain(q); !slices.Equal(got, tc.want) {
						t.Errorf("enqueued %q, want %q", got, tc.want)
					}
				}
			})
		})
	}
}

// lines logs into a list.
func lines(ctx context.Context) (context.Context, func() []string) {
	var mu sync.Mutex
	var all []string
	l := funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, line)
	}, funcr.Options{})
	return log.IntoContext(ctx, l), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// A policy that covers more namespaces than the manager's cache.
func TestANamespaceOutsideOfTheCacheIsSkippedWithOneLine(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMapList"), meta.RESTScopeNamespace) // as discovery adds it
	some, err := cache.New(&rest.Config{}, cache.Options{
		Scheme: scheme.Scheme, Mapper: mapper, DefaultNamespaces: map[string]cache.Config{ns: {}, "ledger": {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		f, q := membertest.New(), newQueue()
		ctx, told := lines(t.Context())
		ctx, cancel := context.WithCancel(ctx)
		defer func() { cancel(); synctest.Wait(); q.ShutDown() }()
		if err := gate.NewResync(f, some, &corev1.ConfigMap{}).Start(ctx, q); err != nil {
			t.Fatal(err)
		}
		f.Promote("elsewhere")
		<-time.After(time.Minute)
		got := told()
		const want = `"level"=0 "msg"="Nothing is resynced after a promotion, ` +
			`because the manager's cache leaves this namespace out"`
		if len(got) != 1 || !strings.Contains(got[0], want) ||
			!strings.Contains(got[0], `"namespace"="elsewhere"`) {
			t.Errorf("it says\n%s\nwant one line at Info", strings.Join(got, "\n"))
		}
	})
}

func TestResyncNamesControllerAndType(t *testing.T) {
	untyped := &unstructured.Unstructured{}
	untyped.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	for name, of := range map[string]client.Object{
		"of a type": &corev1.ConfigMap{}, "of objects without a type": untyped, "of metadata": partial,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, q := membertest.New(), newQueue()
				ctx, told := lines(t.Context())
				ctx, cancel := context.WithCancel(ctx)
				defer func() { cancel(); synctest.Wait(); q.ShutDown() }()
				s := gate.NewResync(f, fake.NewClientBuilder().WithObjects(object(ns, "a")).Build(), of)
				if err := s.Start(ctx, q); err != nil {
					t.Fatal(err)
				}
				f.Promote(ns)
				synctest.Wait()
				want := `"controller"="configmap" "namespace"="shop" "epoch"=1 "type"="ConfigMap" "objects"=1`
				if got := told(); len(got) != 1 || !strings.Contains(got[0], want) {
					t.Errorf("it says %q, want %s", got, want)
				}
			})
		})
	}
}

func TestGateRefusesNamespacesThatNobodyWatches(t *testing.T) {
	m, err := member.New(&rest.Config{}, member.Options{Namespaces: []string{"ledger"}})
	if err != nil {
		t.Fatal(err)
	}
	g := gate.NewGate(m, reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		t.Error("called")
		return reconcile.Result{}, nil
	}))
	for _, in := range []string{"shop", "mail"} {
		for i := range 5 { // each namespace has many objects
			req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: in, Name: fmt.Sprint("book-", i)}}
			_, err = g.Reconcile(t.Context(), req)
			switch {
			case i > 0 && err != nil:
				t.Errorf("said again: %v", err)
			case i == 0 && (!errors.Is(err, reconcile.TerminalError(nil)) || !errors.Is(err, member.ErrNotWatched) ||
				!strings.Contains(err.Error(), "namespace "+in+": the Options.Namespaces of this Member are ledger")):
				t.Errorf("err = %v", err)
			}
		}
	}
}

// Namespaces that are deleted and made again under a running reconciler: its work is told to stop, and everything is
// looked at again under the next term, even in the same epoch.
func TestANamespaceThatIsMadeAnewIsReconciledAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, q := membertest.New(), newQueue()
		c := fake.NewClientBuilder().WithObjects(object(ns, "a")).Build()
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); q.ShutDown() }()
		if err := gate.NewResync(f, c, &corev1.ConfigMap{}).Start(ctx, q); err != nil {
			t.Fatal(err)
		}
		var causes []string
		g := gate.NewGate(f, reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx).Error())
			return reconcile.Result{}, nil
		}))
		go work(ctx, t, q, g)
		f.Promote(ns)
		for range 2 {
			synctest.Wait() // it works
			f.DeleteLease(ns)
			synctest.Wait()
			f.Renew(ns)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		gone := "the term is over: namespace shop, epoch 1: its Lease is gone"
		if want := []string{gone, gone, "context canceled"}; !slices.Equal(causes, want) {
			t.Errorf("work ended because of %q, want %q", causes, want)
		}
	})
}
