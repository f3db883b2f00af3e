package controller

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/tenure"
)

// Rule 2: a decision that rests on what a record no longer says is not persisted.
func TestARecordIsWrittenByCompareAndSwap(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: "fleet", Name: "shop"}
	for name, test := range map[string]struct {
		meanwhile func(context.Context, client.Client, *v1alpha1.NamespaceLeader) error
		want      func(error) bool
	}{
		"that nobody has written since": {nil, func(err error) bool { return err == nil }},
		"that somebody has written since": {func(ctx context.Context, c client.Client, o *v1alpha1.NamespaceLeader) error {
			o.Spec.Leader, o.Spec.Epoch = "west", 21
			return c.Update(ctx, o)
		}, apierrors.IsConflict},
		"that somebody has deleted since": {func(ctx context.Context, c client.Client, o *v1alpha1.NamespaceLeader) error {
			return c.Delete(ctx, o)
		}, apierrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			o := &v1alpha1.NamespaceLeader{}
			o.Namespace, o.Name = key.Namespace, key.Name
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(o).WithStatusSubresource(o).Build()
			if err := api.Get(t.Context(), key, o); err != nil {
				t.Fatal(err)
			}
			clock := fixedClock{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			c := New(Options{Clock: clock, Tenure: tenure.New(clock, 6*time.Second)})
			c.client = api
			v := &view{key: key, object: o.DeepCopy(), found: o.Spec.DeepCopy()}
			if test.meanwhile != nil {
				if err := test.meanwhile(t.Context(), api, o); err != nil {
					t.Fatal(err)
				}
			}
			v.object.Spec.Leader, v.object.Spec.Epoch = "east", 20
			if err := c.write(t.Context(), v, v.object); !test.want(err) {
				t.Errorf("error: %v", err)
			}
			stored := &v1alpha1.NamespaceLeader{}
			if err := client.IgnoreNotFound(api.Get(t.Context(), key, stored)); err != nil {
				t.Fatal(err)
			}
			if test.meanwhile != nil && stored.Spec.Leader == "east" {
				t.Error("it was overwritten")
			}
		})
	}
}

// A write without an answer may have been carried out. What it says is then the word of this hub, and no edit to be put
// right: that would take back a grant by which Leases are written.
func TestARecordThatMayHaveBeenWrittenIsNoEdit(t *testing.T) {
	timeout := apierrors.NewTimeoutError("etcdserver: request timed out", 0)
	for name, test := range map[string]struct {
		answer error
		stores bool // what is sent
		edited bool // what is found next counts as somebody else's
		want   int64
	}{
		"an answer":                                {nil, true, false, 21},
		"no answer, and it was written":            {timeout, true, false, 21},
		"no answer, and it was not":                {timeout, false, false, 20},
		"a conflict with somebody who is no hub":   {apierrors.NewConflict(recordResource, "shop", errRefused), true, true, 20},
		"it was deleted by somebody who is no hub": {apierrors.NewNotFound(recordResource, "shop"), false, true, 20},
	} {
		t.Run(name, func(t *testing.T) {
			clock := fixedClock{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			c := New(Options{Clock: clock, Tenure: tenure.New(clock, 6*time.Second)})
			api := hubOf(t, c)
			o := &v1alpha1.NamespaceLeader{}
			if err := api.Get(t.Context(), shop, o); err != nil {
				t.Fatal(err)
			}
			c.namespace(shop).known = ofSpec(*o.Spec.DeepCopy())
			c.client = answering{api, test.answer, test.stores}
			v := &view{key: shop, object: o.DeepCopy(), found: o.Spec.DeepCopy()}
			v.object.Spec.Epoch = 21
			if err := c.write(t.Context(), v, v.object); (err == nil) != (test.answer == nil) {
				t.Fatalf("error: %v", err)
			}
			found := &view{key: shop, object: o, found: &o.Spec}
			if apierrors.IsNotFound(test.answer) {
				found.object, found.found = nil, nil
			} else if err := api.Get(t.Context(), shop, o); err != nil {
				t.Fatal(err)
			} else {
				found.found = o.Spec.DeepCopy()
			}
			c.detectEdit(t.Context(), found, clock.Now())
			if found.edited != test.edited || found.state.Record.Epoch != test.want {
				t.Errorf("an edit: %v, epoch %d; want %v, %d", found.edited, found.state.Record.Epoch, test.edited, test.want)
			}
		})
	}
}

// A write without an answer may be carried out only after the next look at the record.
func TestARecordThatIsWrittenLateIsNoEdit(t *testing.T) {
	timeout := apierrors.NewTimeoutError("etcdserver: request timed out", 0)
	clock := fixedClock{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	c := New(Options{Clock: clock, Tenure: tenure.New(clock, 6*time.Second), Elected: func(context.Context) bool { return true }})
	api := hubOf(t, c)
	look := func() *view {
		o := &v1alpha1.NamespaceLeader{}
		if err := api.Get(t.Context(), shop, o); err != nil {
			t.Fatal(err)
		}
		v := &view{key: shop, object: o, found: o.Spec.DeepCopy()}
		c.detectEdit(t.Context(), v, clock.Now())
		return v
	}
	v := look()
	late := v.object.DeepCopy()
	late.Spec.Epoch = 21
	c.client = answering{api, timeout, false}
	if err := c.write(t.Context(), v, late.DeepCopy()); err == nil {
		t.Fatal("a write without an answer succeeds")
	}
	if v := look(); v.edited || v.state.Record.Epoch != 20 {
		t.Fatalf("before it is carried out: edited %v, epoch %d", v.edited, v.state.Record.Epoch)
	}
	if err := api.Update(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if v := look(); v.edited || v.state.Record.Epoch != 21 {
		t.Errorf("once it is carried out: edited %v, epoch %d", v.edited, v.state.Record.Epoch)
	}
	// From then on what it said before is somebody else's word.
	late.Spec.Epoch = 20
	if err := api.Update(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if v := look(); !v.edited || v.state.Record.Epoch != 21 {
		t.Errorf("an edit after that: edited %v, epoch %d", v.edited, v.state.Record.Epoch)
	}
	for range 2 * mostPending {
		c.mayComeTrue(shop, &late.Spec)
	}
	if n := len(c.namespace(shop).unanswered); n != mostPending {
		t.Errorf("%d writes without an answer are remembered, want %d", n, mostPending)
	}
}

// answering answers an update as it is told, whether or not it carries it out.
type answering struct {
	client.Client
	answer error
	stores bool
}

func (a answering) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if a.stores {
		if err := a.Client.Update(ctx, o, opts...); err != nil {
			return err
		}
	}
	return a.answer
}
