package gate_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/membertest"
)

type writing = func(ctx context.Context, c client.Client) error

// writes are all writes that a client has, on the object that it has.
var writes = map[string]writing{
	"create": func(ctx context.Context, c client.Client) error { return c.Create(ctx, object(ns, "b")) },
	"update": func(ctx context.Context, c client.Client) error { return c.Update(ctx, edited()) },
	"patch":  func(ctx context.Context, c client.Client) error { return c.Patch(ctx, edited(), patch) },
	"apply":  func(ctx context.Context, c client.Client) error { return c.Apply(ctx, applied(), owner) },
	"delete": func(ctx context.Context, c client.Client) error { return c.Delete(ctx, edited()) },
	"delete all": func(ctx context.Context, c client.Client) error {
		return c.DeleteAllOf(ctx, edited(), in)
	},
	"create status": func(ctx context.Context, c client.Client) error { return c.Status().Create(ctx, edited(), nil) },
	"update status": func(ctx context.Context, c client.Client) error { return c.Status().Update(ctx, edited()) },
	"patch status":  func(ctx context.Context, c client.Client) error { return c.Status().Patch(ctx, edited(), patch) },
	"apply status":  func(ctx context.Context, c client.Client) error { return c.Status().Apply(ctx, applied()) },
	"update x":      func(ctx context.Context, c client.Client) error { return c.SubResource("x").Update(ctx, edited()) },
}

var (
	patch = client.MergeFrom(object(ns, "a"))
	in    = client.InNamespace(ns)
	owner = client.FieldOwner("x")
)

func applied() *applycorev1.ConfigMapApplyConfiguration {
	return applycorev1.ConfigMap("a", ns).WithData(edited().Data)
}

func edited() *corev1.ConfigMap {
	o := object(ns, "a")
	o.Data = map[string]string{"changed": "true"}
	return o
}

// inTerm returns a fake that leads, and a context of its term.
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

// named matches an error that names the object of these writes.
var named = regexp.MustCompile(`^\*v1\.ConfigMap(ApplyConfiguration| shop/[ab]): `)

func TestClients_RefuseEveryWrite(t *testing.T) {
	each(t, writes, func(t *testing.T, write writing) {
		f, term := inTerm(t)
		f.Expire()
		inner := clientWith(object(ns, "a"))
		err := write(context.WithoutCancel(term), gate.CapClient(inner)) // the context has ended, unnoticed
		if !errors.Is(err, member.ErrNotBegun) || !errors.Is(err, member.ErrLost) || !named.MatchString(err.Error()) {
			t.Errorf("CapClient after the term: err = %v, want ErrNotBegun and ErrLost, and the object", err)
		}
		err = write(t.Context(), gate.ReadOnly(inner))
		if !errors.Is(err, gate.ErrReadOnly) || !named.MatchString(err.Error()) {
			t.Errorf("ReadOnly: err = %v, want ErrReadOnly, and the object", err)
		}
		for _, c := range []client.Client{gate.CapClient(inner), gate.ReadOnly(inner)} {
			var all corev1.ConfigMapList
			if err := c.List(t.Context(), &all); err != nil || len(all.Items) != 1 || all.Items[0].Data != nil {
				t.Errorf("afterwards: %v, err %v, want the one object unchanged", all.Items, err)
			}
		}
	})
}

func TestCapClient_PassesAllOtherWrites(t *testing.T) {
	each(t, writes, func(t *testing.T, write writing) {
		_, term := inTerm(t)
		for when, ctx := range map[string]context.Context{"in a term": term, "without a term": t.Context()} {
			// A ConfigMap has no subresource x, for instance.
			want := write(ctx, clientWith(object(ns, "a")))
			got := write(ctx, gate.CapClient(clientWith(object(ns, "a"))))
			if apierrors.ReasonForError(got) != apierrors.ReasonForError(want) || (got == nil) != (want == nil) {
				t.Errorf("%s: err = %v, want %v as without it", when, got, want)
			}
		}
	})
}

// hanging answers no create before its context ends.
type hanging struct{ client.Client }

func (hanging) Create(ctx context.Context, _ client.Object, _ ...client.CreateOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestCapClient_CutsAWriteOffAtTheEndOfItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, term := inTerm(t)
		f.Advance(membertest.Duration - 3*time.Second)
		began := time.Now()
		time.AfterFunc(3*time.Second-1, f.Expire) // the clock of the fake stands still by itself
		err := gate.CapClient(hanging{}).Create(context.WithoutCancel(term), object(ns, "a"))
		if took := time.Since(began); took != 3*time.Second || !errors.Is(err, member.ErrLost) ||
			errors.Is(err, member.ErrNotBegun) || !named.MatchString(err.Error()) {
			t.Errorf("after %v: %v; want ErrLost alone, and the object, after 3s, which is what remained", took, err)
		}
	})
}
