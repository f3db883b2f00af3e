package gate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

const ns = "shop"

var (
	request   = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: "book"}}
	again     = reconcile.Result{RequeueAfter: time.Minute}
	errBroken = errors.New("errBroken")
)

func object(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// clientWith returns controller-runtime's fake client with these objects.
func clientWith(objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithObjects(objects...).Build()
}

// newGate returns the gated reconciler of a controller for namespaced objects.
func newGate(
	m member.Leader, act func(ctx context.Context, req reconcile.Request) (reconcile.Result, error),
) reconcile.Reconciler {
	return gate.NewGate(m, inNamespace, reconcile.Func(act), nil)
}

func inNamespace(req reconcile.Request) string { return req.Namespace }

// newQueue returns a queue without priorities.
func newQueue[request comparable]() workqueue.TypedRateLimitingInterface[request] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[request]())
}

// expect fails the test unless these requests, and no others, are queued once all that is due has happened.
func expect[request comparable](
	t *testing.T, q workqueue.TypedRateLimitingInterface[request], when string, want ...string,
) {
	t.Helper()
	synctest.Wait()
	var got []string
	for q.Len() > 0 {
		req, _ := q.Get()
		got = append(got, fmt.Sprint(req))
		q.Done(req)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%s: enqueued %q, want %q", when, got, want)
	}
}

// forMaps is a builder for ConfigMaps.
func forMaps(m member.Leader, predicates ...predicate.Predicate) *gate.Builder {
	return gate.ControllerManagedBy(manager(), m).For(&corev1.ConfigMap{}, predicates...)
}

// startResync starts the source of a builder until the test is over, or until stop is called.
func startResync[request comparable](
	ctx context.Context, t *testing.T, b *gate.TypedBuilder[request], r client.Reader,
	q workqueue.TypedRateLimitingInterface[request],
) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	musttest.Do(t, musttest.Get(gate.ResyncOf(b, r))(t).Start(ctx, q))
	stop = sync.OnceFunc(func() { cancel(); synctest.Wait(); q.ShutDown() })
	t.Cleanup(stop)
	return stop
}

// logged returns a context with a logger, and a function that returns the lines so far.
func logged(ctx context.Context) (context.Context, func() []string) {
	var mu sync.Mutex
	var all []string
	l := funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, line)
	}, funcr.Options{})
	return log.IntoContext(ctx, l), func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}
