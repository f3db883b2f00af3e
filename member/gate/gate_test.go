package gate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/membertest"
)

const ns = "shop"

var (
	request   = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: "book"}}
	again     = reconcile.Result{RequeueAfter: time.Minute}
	errBroken = errors.New("errBroken")
)

func TestGateActsOnlyForTheLeader(t *testing.T) {
	cases := map[string]struct {
		before func(f *membertest.Fake)
		during func(f *membertest.Fake) // what happens while the reconciler works
		fails  bool                     // whether it fails then

		acts   bool
		result reconcile.Result
		err    error
	}{
		"nothing is known of the namespace": {before: func(*membertest.Fake) {}},
		"another cluster leads":             {before: func(f *membertest.Fake) { f.Demote(ns) }},
		"this one leads another namespace":  {before: func(f *membertest.Fake) { f.Promote("other") }},
		"the term ran out":                  {before: func(f *membertest.Fake) { f.Promote(ns); f.Expire() }},
		"this cluster leads":                {before: func(f *membertest.Fake) { f.Promote(ns) }, acts: true, result: again},
		"and fails": {
			before: func(f *membertest.Fake) { f.Promote(ns) },
			fails:  true,
			acts:   true,
			err:    errBroken,
		},
		"the term is renewed meanwhile": {
			before: func(f *membertest.Fake) { f.Promote(ns) },
			during: func(f *membertest.Fake) { f.Renew(ns) },
			acts:   true,
			result: again,
		},
		"the term ends meanwhile, so the result is dropped": {
			before: func(f *membertest.Fake) { f.Promote(ns) }, during: func(f *membertest.Fake) { f.Demote(ns) }, acts: true},
		"and so is the error": {
			before: func(f *membertest.Fake) { f.Promote(ns) },
			during: func(f *membertest.Fake) { f.Expire() },
			fails:  true,
			acts:   true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := membertest.New()
				tc.before(f)
				acted := false
				g := gate.NewGate(f, reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					acted = true
					if epoch, ok := member.EpochFrom(ctx); epoch != 1 || !ok || req != request || ctx.Err() != nil {
						t.Errorf("called for %v in epoch %d (%v) with a context that says %v", req, epoch, ok, ctx.Err())
					}
					if tc.during != nil {
						tc.during(f)
					}
					if tc.fails {
						return reconcile.Result{}, errBroken
					}
					return again, nil
				}))
				result, err := g.Reconcile(t.Context(), request)
				if acted != tc.acts || result != tc.result || !errors.Is(err, tc.err) || (err != nil) != (tc.err != nil) {
					t.Errorf("acted = %v, result = %v, err = %v; want %v, %v, %v", acted, result, err, tc.acts, tc.result, tc.err)
				}
			})
		})
	}
}

// Canceled is an error like any other when it is the manager that stops.
func TestGateKeepsTheErrorOfAStoppedManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := membertest.New()
		f.Promote(ns)
		ctx, stop := context.WithCancel(t.Context())
		_, err := gate.NewGate(f, reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			stop()
			return reconcile.Result{}, ctx.Err()
		})).Reconcile(ctx, request)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v, want context.Canceled", err)
		}
	})
}

func TestObserveIsForFollowersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := membertest.New()
		var called string
		g := gate.NewObservedGate(f,
			reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				called += "leader "
				return reconcile.Result{}, nil
			}),
			reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				if _, ok := member.EpochFrom(ctx); ok {
					t.Error("a follower got the context of a term")
				}
				called += "follower "
				return again, nil
			}))
		for _, happens := range []func(){func() {}, func() { f.Promote(ns) }, f.Expire} {
			happens()
			if _, err := g.Reconcile(t.Context(), request); err != nil {
				t.Error(err)
			}
		}
		if called != "follower leader follower " {
			t.Errorf("called %s", called)
		}
	})
}

func TestGateRefusesRequestsWithoutANamespace(t *testing.T) {
	g := gate.NewGate(membertest.New(), reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		t.Error("called")
		return reconcile.Result{}, nil
	}))
	_, err := g.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "node"}})
	if !errors.Is(err, reconcile.TerminalError(nil)) {
		t.Errorf("err = %v, want a terminal error", err)
	}
}

func TestGateTypedAsksForTheNamespaceItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := membertest.New()
		f.Promote("of-7")
		var acted []int
		g := gate.NewTypedGate(f, func(req int) string { return "of-" + string(rune('0'+req)) },
			reconcile.TypedFunc[int](func(_ context.Context, req int) (reconcile.Result, error) {
				acted = append(acted, req)
				return reconcile.Result{}, nil
			}))
		for req := range 9 {
			if _, err := g.Reconcile(t.Context(), req); err != nil {
				t.Error(err)
			}
		}
		if len(acted) != 1 || acted[0] != 7 {
			t.Errorf("acted on %v, want 7 alone", acted)
		}
	})
}
