package gate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/membertest"
)

// writes are all that a client can be asked to write.
func writes(c client.Client) map[string]func(ctx context.Context) error {
	o := func() *corev1.ConfigMap {
		o := object(ns, "a")
		o.Data = map[string]string{"changed": "true"}
		return o
	}
	apply := applycorev1.ConfigMap("a", ns).WithData(o().Data)
	patch := client.MergeFrom(object(ns, "a"))
	return map[string]func(ctx context.Context) error{
		"create":       func(ctx context.Context) error { return c.Create(ctx, object(ns, "b")) },
		"update":       func(ctx context.Context) error { return c.Update(ctx, o()) },
		"patch":        func(ctx context.Context) error { return c.Patch(ctx, o(), patch) },
		"apply":        func(ctx context.Context) error { return c.Apply(ctx, apply, client.FieldOwner("x")) },
		"delete":       func(ctx context.Context) error { return c.Delete(ctx, o()) },
		"deleteAllOf":  func(ctx context.Context) error { return c.DeleteAllOf(ctx, o(), client.InNamespace(ns)) },
		"statusCreate": func(ctx context.Context) error { return c.Status().Create(ctx, o(), o()) },
		"statusUpdate": func(ctx context.Context) error { return c.Status().Update(ctx, o()) },
		"statusPatch":  func(ctx context.Context) error { return c.Status().Patch(ctx, o(), patch) },
		"statusApply":  func(ctx context.Context) error { return c.Status().Apply(ctx, apply) },
		"scaleUpdate":  func(ctx context.Context) error { return c.SubResource("scale").Update(ctx, o()) },
	}
}

// inTerm is a member in a term, and the context of that.
func inTerm(t *testing.T) (*membertest.Fake, context.Context) {
	t.Helper()
	f := membertest.New()
	f.Promote(ns)
	term, done, err := f.Context(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return f, term
}

func TestCapClientRefusesEveryWriteAfterTheTerm(t *testing.T) {
	for name := range writes(nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, term := inTerm(t)
				inner := fake.NewClientBuilder().WithObjects(object(ns, "a")).Build()
				f.Expire()
				err := writes(gate.CapClient(inner))[name](context.WithoutCancel(term)) // it has not looked
				if !errors.Is(err, member.ErrNotBegun) || !errors.Is(err, member.ErrLost) {
					t.Errorf("err = %v, want ErrNotBegun and ErrLost", err)
				}
				var all corev1.ConfigMapList
				if err := inner.List(t.Context(), &all); err != nil || len(all.Items) != 1 || all.Items[0].Data != nil {
					t.Errorf("afterwards: %v, err %v, want the one object unchanged", all.Items, err)
				}
			})
		})
	}
}

// hanging answers no create before its context ends.
type hanging struct{ client.Client }

func (hanging) Create(ctx context.Context, _ client.Object, _ ...client.CreateOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestCapClientCutsAWriteOffWhenItsTermIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, term := inTerm(t)
		f.Advance(membertest.Duration - 3*time.Second)
		began := time.Now()
		time.AfterFunc(3*time.Second-1, f.Expire) // the clock of the fake stands still by itself
		err := gate.CapClient(hanging{}).Create(context.WithoutCancel(term), object(ns, "a"))
		if took := time.Since(began); took != 3*time.Second || !errors.Is(err, member.ErrLost) ||
			errors.Is(err, member.ErrNotBegun) {
			t.Errorf("after %v: %v; want ErrLost alone after 3s, which is what remained", took, err)
		}
	})
}

func TestCapClientLetsEverythingElsePass(t *testing.T) {
	for name := range writes(nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, term := inTerm(t)
				for when, ctx := range map[string]context.Context{"in a term": term, "without a term": t.Context()} {
					build := func() client.Client { return fake.NewClientBuilder().WithObjects(object(ns, "a")).Build() }
					// Not everything can be done to a ConfigMap.
					want, got := writes(build())[name](ctx), writes(gate.CapClient(build()))[name](ctx)
					if apierrors.ReasonForError(got) != apierrors.ReasonForError(want) || (got == nil) != (want == nil) {
						t.Errorf("%s: err = %v, want %v as without it", when, got, want)
					}
				}
			})
		})
	}
	c := gate.CapClient(fake.NewClientBuilder().WithObjects(object(ns, "a")).Build())
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "a"}, &corev1.ConfigMap{}); err != nil {
		t.Errorf("a read: %v", err)
	}
}

// The test that could not fail: a reconciler that ignores its context writes after its term, and controller-runtime's
// fake takes it.
func TestCapClientFindsAReconcilerThatWritesAfterItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := membertest.New()
		f.Promote(ns)
		wrote := func(c client.Client) (err error) {
			_, _ = gate.NewGate(f, reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				f.Promote(ns) // the next term begins while it works
				err = c.Create(context.WithoutCancel(ctx), object(ns, "late"))
				return reconcile.Result{}, err
			})).Reconcile(t.Context(), request)
			return err
		}
		if err := wrote(fake.NewClientBuilder().Build()); err != nil {
			t.Errorf("the bare fake says %v", err)
		}
		err := wrote(gate.CapClient(fake.NewClientBuilder().Build()))
		if !errors.Is(err, member.ErrLost) || !strings.Contains(err.Error(), "create *v1.ConfigMap shop/late: not begun") {
			t.Errorf("err = %v", err)
		}
	})
}
