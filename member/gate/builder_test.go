package gate_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/membertest"
)

// What could only lose requests is refused when the program starts, with what to do.
func TestABuilderRefusesWhatWouldLoseRequests(t *testing.T) {
	own := &handler.EnqueueRequestForObject{}
	for name, tc := range map[string]struct {
		complete func() error
		want     string
	}{
		"a cluster-scoped kind": {
			complete: func() error {
				return gate.ControllerManagedBy(manager(), membertest.New()).For(&corev1.Node{}).Complete(nothing)
			},
			want: "Node is cluster-scoped, so no cluster leads the namespace of its objects: " +
				"make the controller by gate.TypedControllerManagedBy",
		},
		"another kind that is watched for its own objects": {func() error {
			return gate.ControllerManagedBy(manager(), membertest.New()).
				For(&corev1.ConfigMap{}).
				Watches(&corev1.Node{}, own).
				Complete(nothing)
		}, "Node is cluster-scoped"},
		"a controller that nothing brings back to": {func() error {
			return gate.ControllerManagedBy(manager(), membertest.New()).Named("empty").Complete(nothing)
		}, "name the kind by For or Watches"},
		"no Member": {func() error {
			return gate.ControllerManagedBy(manager(), nil).For(&corev1.ConfigMap{}).Complete(nothing)
		}, "needs a manager, a Member"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.complete(); !errors.Is(err, member.ErrMisused) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v, want ErrMisused with %q", err, tc.want)
			}
		})
	}
	t.Run("a reconciler that is not gated", func(t *testing.T) {
		b := gate.ControllerManagedBy(manager(), membertest.New()).
			For(&corev1.ConfigMap{}).
			WithOptions(controller.Options{Reconciler: nothing})
		if b.Complete(nothing) == nil {
			t.Error("it is taken")
		}
	})
}

// Of several namespaces that are promoted at once none waits until another has been worked off, and what happens then
// comes before both. So it is when the controller has just started, and has enqueued everything itself.
func TestNamespacesThatArePromotedAtOnceTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		namespaces := []string{"a", "b", "c", "d", "e"}
		const each = 1000
		f, objects := membertest.New(), []client.Object{}
		for _, in := range namespaces {
			for i := range each {
				name := "object-" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + time.Duration(i).String()
				objects = append(objects, object(in, name))
			}
		}
		q := priorityqueue.New[reconcile.Request]("turns")
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait(); q.ShutDown() }()
		c := fake.NewClientBuilder().WithObjects(objects...).Build()
		if err := gate.NewResync(f, c, &corev1.ConfigMap{}).Start(ctx, q); err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)},
				reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
		for _, in := range namespaces {
			f.Promote(in)
			synctest.Wait()
		}
		now := request
		q.Add(now)
		synctest.Wait()
		if first, _ := q.Get(); first != now {
			t.Errorf("%v comes before what happens now", first)
		}
		q.Done(now)
		counts, firsts := map[string]int{}, []string{}
		for range len(namespaces) * each {
			req, _ := q.Get()
			q.Done(req)
			if counts[req.Namespace]++; counts[req.Namespace] == 1 {
				firsts = append(firsts, req.Namespace)
			}
			if len(firsts) < len(namespaces) && counts[req.Namespace] > 1 {
				t.Fatalf("%s has a second turn before %d others had one", req.Namespace, len(namespaces)-len(firsts))
			}
		}
		if !slices.Equal(slices.Sorted(slices.Values(firsts)), namespaces) || counts["a"] != each {
			t.Errorf("worked off %v", counts)
		}
	})
}

// A promotion enqueues what a start of the controller would: owners, too, whatever the predicates of For leave out.
func TestAPromotionBringsBackOwners(t *testing.T) {
	never := predicate.NewPredicateFuncs(func(client.Object) bool { return false })
	controlled := func(in, name, owner string) client.Object {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1",
				Kind: "ConfigMap", Name: owner, UID: "1", Controller: ptr.To(true)}}},
		}
	}
	for name, tc := range map[string]struct {
		owned []predicate.Predicate
		want  []string
	}{
		"of all owned objects":                      {nil, []string{"shop/a", "shop/deleted"}},
		"of those that pass the predicates of Owns": {[]predicate.Predicate{never}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := membertest.New()
				q := priorityqueue.New[reconcile.Request]("owners")
				ctx, cancel := context.WithCancel(t.Context())
				defer func() { cancel(); synctest.Wait(); q.ShutDown() }()
				c := fake.NewClientBuilder().WithObjects(object(ns, "a"), controlled(ns, "x", "a"), controlled(ns, "y", "deleted"),
					controlled("other", "z", "b"), &corev1.Secret{ObjectMeta: object(ns, "ownerless").ObjectMeta}).Build()
				b := gate.ControllerManagedBy(manager(), f).For(&corev1.ConfigMap{}, never).Owns(&corev1.Secret{}, tc.owned...)
				s, err := gate.ResyncOf(b, c)
				if err == nil {
					err = s.Start(ctx, q)
				}
				if err != nil {
					t.Fatal(err)
				}
				f.Promote(ns)
				synctest.Wait()
				var got []string
				for q.Len() > 0 {
					req, _ := q.Get()
					got = append(got, req.String())
					q.Done(req)
				}
				if slices.Sort(got); !slices.Equal(got, tc.want) {
					t.Errorf("enqueued %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// A promotion enqueues what the handlers of all watches do, in its namespace and in no other.
func TestAPromotionAsksEveryHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := membertest.New()
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait(); q.ShutDown() }()
		c := fake.NewClientBuilder().WithObjects(object(ns, "a"), object("other", "b"),
			&corev1.Node{ObjectMeta: object("", "n").ObjectMeta}).Build()
		of := func(kind string, namespaces ...string) handler.TypedEventHandler[client.Object, string] {
			return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) (all []string) {
				for _, in := range namespaces {
					all = append(all, in+"/"+kind+"/"+o.GetName())
				}
				return all
			})
		}
		s := gate.NewTypedResync(f, c, func(req string) string { in, _, _ := strings.Cut(req, "/"); return in },
			map[client.Object]handler.TypedEventHandler[client.Object, string]{
				&corev1.ConfigMap{}: of("map", ns), &corev1.Node{}: of("node", ns, "other"),
			})
		if err := s.Start(ctx, q); err != nil {
			t.Fatal(err)
		}
		f.Promote(ns)
		synctest.Wait()
		var got []string
		for q.Len() > 0 {
			req, _ := q.Get()
			got = append(got, req)
			q.Done(req)
		}
		slices.Sort(got)
		if want := []string{"shop/map/a", "shop/map/b", "shop/node/n"}; !slices.Equal(got, want) {
			t.Errorf("enqueued %q, want %q", got, want)
		}
	})
}
