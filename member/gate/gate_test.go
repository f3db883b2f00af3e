package gate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/internal/fed"
	"github.com/leasecast/leasecast/member/internal/musttest"
	"github.com/leasecast/leasecast/member/membertest"
)

func TestGate_ActsOnlyForTheLeader(t *testing.T) {
	type change = func(f *membertest.Fake)
	promoted, nothing := func(f *membertest.Fake) { f.Promote(ns) }, func(*membertest.Fake) {}
	var none reconcile.Result
	type row struct {
		before, during change // during: while the reconciler works
		fails          error  // what it returns
		acts           bool
		result         reconcile.Result // of Reconcile
		err            error
	}
	musttest.Each(t, map[string]row{
		"the namespace is unknown":      {nothing, nil, nil, false, none, nil},
		"another cluster leads":         {func(f *membertest.Fake) { f.Demote(ns) }, nil, nil, false, none, nil},
		"another namespace is led":      {func(f *membertest.Fake) { f.Promote("other") }, nil, nil, false, none, nil},
		"the term ran out":              {func(f *membertest.Fake) { f.Promote(ns); f.Expire() }, nil, nil, false, none, nil},
		"this cluster leads":            {promoted, nothing, nil, true, again, nil},
		"the reconciler fails":          {promoted, nothing, errBroken, true, none, errBroken},
		"the term is renewed meanwhile": {promoted, func(f *membertest.Fake) { f.Renew(ns) }, nil, true, again, nil},
		"the term ends meanwhile":       {promoted, func(f *membertest.Fake) { f.Demote(ns) }, nil, true, none, nil},
		"the term ends, it fails":       {promoted, (*membertest.Fake).Expire, errBroken, true, none, nil},
	}, func(t *testing.T, row row) {
		f, acted := membertest.New(), false
		row.before(f)
		g := newGate(f, func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			acted = true
			if epoch, ok := member.EpochFrom(ctx); epoch != 1 || !ok || req != request || ctx.Err() != nil {
				t.Errorf("called for %v in epoch %d (%v) with a context that says %v", req, epoch, ok, ctx.Err())
			}
			if row.during(f); row.fails != nil {
				return reconcile.Result{}, row.fails
			}
			return again, nil
		})
		result, err := g.Reconcile(t.Context(), request)
		if acted != row.acts || result != row.result || !errors.Is(err, row.err) || (err == nil) != (row.err == nil) {
			t.Errorf("acted = %v, result = %v, err = %v; want %+v", acted, result, err, row)
		}
	})
}

// leading returns Terms by which this cluster leads for 15 s. Their contexts do not end when the clock is moved.
func leading(t *testing.T) (fed.Terms, *clocktest.Hand) {
	t.Helper()
	clock := clocktest.NewHand(clocktest.Start)
	terms, now, l := fed.New(clock, time.Second), clock.Now().Wall, &coordinationv1.Lease{}
	musttest.Do(t, wire.Write(lease.Content{
		Term: lease.Term{
			Holder: "east", Epoch: 7, AcquireTime: now, RenewTime: now, Duration: membertest.Duration,
		},
		Namespace: ns, Name: "leasecast", Cluster: "east",
	}, "", l))
	terms.Observe(l)
	return terms, clock
}

func write(ctx context.Context) error {
	resp, err := member.CapWrites(http.DefaultTransport).RoundTrip(
		httptest.NewRequestWithContext(ctx, http.MethodPost, "http://nowhere", nil))
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

// A reconciler that checks the clock may find the end of its term before its context has ended.
func TestGate_DropsErrorsOfItsOwnTermOnly(t *testing.T) {
	const over = membertest.Duration
	var stop func()
	type row struct {
		passes time.Duration // while the reconciler works
		act    func(ctx context.Context) error
		want   error // that Reconcile returns; nil: it was dropped
	}
	musttest.Each(t, map[string]row{
		"of a check":                   {over, member.Check, nil},
		"of a write":                   {over, write, nil},
		"of a write in less than 1 ms": {over - time.Microsecond, write, nil},
		"of a manager that stops":      {0, func(ctx context.Context) error { stop(); return ctx.Err() }, context.Canceled},
		"of another term":              {0, func(context.Context) error { return member.ErrLost }, member.ErrLost},
	}, func(t *testing.T, row row) {
		terms, clock := leading(t)
		ctx, cancel := context.WithCancel(t.Context())
		stop = cancel
		result, err := newGate(terms, func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			clock.Advance(row.passes)
			err := row.act(ctx)
			if row.want == nil && !errors.Is(err, member.ErrLost) {
				t.Errorf("the act returns %v", err)
			}
			return again, fmt.Errorf("act: %w", err)
		}).Reconcile(ctx, request)
		if !errors.Is(err, row.want) || (err == nil) != (row.want == nil) || err == nil && !result.IsZero() {
			t.Errorf("Reconcile = %v, %v", result, err)
		}
	})
}

func TestGate_ObservesWhereItDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, called := membertest.New(), []string{}
		calls := func(name string) reconcile.TypedReconciler[int] {
			return reconcile.TypedFunc[int](func(ctx context.Context, req int) (reconcile.Result, error) {
				_, gated := member.EpochFrom(ctx)
				called = append(called, fmt.Sprint(name, req, gated))
				return again, nil
			})
		}
		g := gate.NewGate(f, func(req int) string { return fmt.Sprint("of-", req) }, calls("leader "), calls("follower "))
		f.Promote("of-7")
		for i, req := range []int{6, 7, 8, 7} {
			if i == 3 {
				f.Expire()
			}
			if result, err := g.Reconcile(t.Context(), req); err != nil || result != again {
				t.Errorf("Reconcile = %v, %v", result, err)
			}
		}
		want := []string{"follower 6 false", "leader 7 true", "follower 8 false", "follower 7 false"}
		if !slices.Equal(called, want) {
			t.Errorf("called %q, want %q", called, want)
		}
	})
}

// No retry helps. A namespace that is not watched has many objects, and its error is returned once.
func TestGate_RejectsWhatWillNeverBeLed(t *testing.T) {
	m := musttest.Get(member.New(&rest.Config{}, member.Options{Namespaces: []string{"ledger"}}))(t)
	of := func(m member.Leader) reconcile.Reconciler {
		return newGate(m, func(context.Context, reconcile.Request) (reconcile.Result, error) {
			t.Error("called")
			return reconcile.Result{}, nil
		})
	}
	watching := of(m)
	for _, row := range []struct {
		g         reconcile.Reconciler
		namespace string
		want      error
		text      string
	}{
		{of(membertest.New()), "", member.ErrMisused, "has no namespace"},
		{watching, ns, member.ErrNotWatched, "namespace shop: the Options.Namespaces of this Member are ledger"},
		{watching, ns, nil, ""},
		{watching, "mail", member.ErrNotWatched, "namespace mail: the Options.Namespaces of this Member are ledger"},
		{watching, "mail", nil, ""},
	} {
		req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: row.namespace, Name: "book"}}
		_, err := row.g.Reconcile(t.Context(), req)
		if !errors.Is(err, row.want) || err != nil &&
			(!errors.Is(err, reconcile.TerminalError(nil)) || !strings.Contains(err.Error(), row.text)) {
			t.Errorf("%q: err = %v, want a terminal %v with %q", row.namespace, err, row.want, row.text)
		}
	}
}

// What could only lose requests is rejected when the program starts, with what to do.
func TestBuilder_RejectsWhatWouldLoseRequests(t *testing.T) {
	f := membertest.New()
	own := &handler.EnqueueRequestForObject{}
	partial, unregistered := &metav1.PartialObjectMetadata{}, &unstructured.Unstructured{}
	partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	build := func(m member.Leader) *gate.Builder { return gate.ControllerManagedBy(manager(), m) }
	for name, row := range map[string]struct {
		b    *gate.Builder
		want string
	}{
		"a cluster-scoped kind": {build(f).For(&corev1.Node{}), "Node is cluster-scoped, so no cluster leads the namespace " +
			"of its objects: make the controller by gate.TypedControllerManagedBy"},
		"another kind, watched for its own objects": {forMaps(f).Watches(&corev1.Node{}, own), "Node is cluster-scoped"},
		"owners that are known by their metadata":   {build(f).For(partial).Owns(&corev1.Secret{}), "pass For an object"},
		"a promotion would enqueue nothing":         {build(f).Named("empty"), "name the kind by For or Watches"},
		"no Member":                                 {forMaps(nil), "needs a manager, a Member"},
	} {
		if err := row.b.Complete(nothing); !errors.Is(err, member.ErrMisused) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: err = %v, want ErrMisused with %q", name, err, row.want)
		}
	}
	for name, b := range map[string]*gate.Builder{
		"a reconciler that is not gated": forMaps(f).WithOptions(controller.Options{Reconciler: nothing}),
		"owners of no kind":              build(f).Named("maps").Watches(&corev1.ConfigMap{}, own).Owns(&corev1.Secret{}),
		"owners of no known kind":        build(f).Owns(&corev1.Secret{}).For(unregistered),
	} {
		if b.Complete(nothing) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
