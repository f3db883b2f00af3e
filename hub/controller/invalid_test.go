package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
)

func TestInvalidPolicyChangesNothing(t *testing.T) {
	bad := func(o *v1alpha1.LeadershipPolicy) { o.Spec.Timings.LeaseDurationMilliseconds = 3_000 }
	edit := func(t *testing.T, api client.Client, change func(*v1alpha1.LeadershipPolicy)) {
		t.Helper()
		o := &v1alpha1.LeadershipPolicy{}
		if err := api.Get(t.Context(), types.NamespacedName{Namespace: shop.Namespace, Name: "shops"}, o); err != nil {
			t.Fatal(err)
		}
		o.Generation++
		change(o)
		if err := api.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	of := func(t *testing.T, c *Controller) *decide.Snapshot {
		t.Helper()
		v, err := c.gather(t.Context(), shop)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	t.Run("the last valid version goes on", func(t *testing.T) {
		c, _, api := onScene(t)
		before := of(t, c).Policy.Election
		edit(t, api, bad)
		v := of(t, c)
		if diff := cmp.Diff(before, v.Policy.Election); diff != "" || v.Policy.Invalid == nil || v.Stop != "" {
			t.Errorf("%s\ninvalid %v, stops %q", diff, v.Policy.Invalid, v.Stop)
		}
	})
	t.Run("a valid version after it counts", func(t *testing.T) {
		c, _, api := onScene(t)
		of(t, c)
		edit(t, api, bad)
		of(t, c)
		edit(t, api, func(o *v1alpha1.LeadershipPolicy) { o.Spec.Timings.LeaseDurationMilliseconds = 30_000 })
		if v := of(t, c); v.Policy.Invalid != nil || v.Policy.Election.Timings.Duration != 30*time.Second {
			t.Errorf("%+v", v.Policy)
		}
	})
	t.Run("a hub that never saw a valid version keeps the recorded leader, and chooses nobody else", func(t *testing.T) {
		c, s, api := onScene(t)
		s.shown = append(s.shown, fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: "west"}, Connected: true})
		edit(t, api, bad)
		v := of(t, c)
		if v.Policy == nil || v.Stop != "" {
			t.Fatalf("%+v, stops %q", v.Policy, v.Stop)
		}
		if cs, _ := candidatesOf(v); len(cs) != 1 || cs[0].Name != "east" {
			t.Errorf("candidates are %+v", cs)
		}
		if err := v.Policy.Election.Timings.Validate(); err != nil {
			t.Error(err)
		}
	})
}
