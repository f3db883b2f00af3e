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
			o.Status.Leader, o.Status.Epoch = "west", 21
			return c.Status().Update(ctx, o)
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
			v := &view{key: key, object: o.DeepCopy(), found: o.Status.DeepCopy()}
			if test.meanwhile != nil {
				if err := test.meanwhile(t.Context(), api, o); err != nil {
					t.Fatal(err)
				}
			}
			v.object.Status.Leader, v.object.Status.Epoch = "east", 20
			if err := c.write(t.Context(), v, v.object); !test.want(err) {
				t.Errorf("error: %v", err)
			}
			stored := &v1alpha1.NamespaceLeader{}
			if err := client.IgnoreNotFound(api.Get(t.Context(), key, stored)); err != nil {
				t.Fatal(err)
			}
			if test.meanwhile != nil && stored.Status.Leader == "east" {
				t.Error("it was overwritten")
			}
		})
	}
}
