package controller

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
)

// Else it would be written again and again.
func TestAPolicyWithManyFaultsNamesTheSameEachTime(t *testing.T) {
	o := policyOf("fleet", "shops", "shop")
	o.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for n := range 10 {
		o.Spec.ClusterSelector.MatchLabels[fmt.Sprint("no label ", n)] = ""
	}
	said := map[string]bool{}
	for range 20 {
		p := parsePolicy(o)
		if p.invalid == nil || !p.unreadable {
			t.Fatal("it is valid")
		}
		said[p.invalid.Error()] = true
	}
	if len(said) != 1 {
		t.Errorf("it says %q", slices.Collect(maps.Keys(said)))
	}
}

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
	of := func(t *testing.T, c *Controller) *view {
		t.Helper()
		v, err := c.gather(t.Context(), shop)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	t.Run("the last valid version goes on", func(t *testing.T) {
		c, _, api := onScene(t)
		before := of(t, c).policy.election
		edit(t, api, bad)
		v := of(t, c)
		if diff := cmp.Diff(before, v.policy.election); diff != "" || v.policy.invalid == nil || v.stop != "" {
			t.Errorf("%s\ninvalid %v, stops %q", diff, v.policy.invalid, v.stop)
		}
	})
	t.Run("a valid version after it counts", func(t *testing.T) {
		c, _, api := onScene(t)
		of(t, c)
		edit(t, api, bad)
		of(t, c)
		edit(t, api, func(o *v1alpha1.LeadershipPolicy) { o.Spec.Timings.LeaseDurationMilliseconds = 30_000 })
		if v := of(t, c); v.policy.invalid != nil || v.policy.election.Timings.Duration != 30*time.Second {
			t.Errorf("%+v", v.policy)
		}
	})
	t.Run("a hub that never saw a valid version keeps the recorded leader, and chooses nobody else", func(t *testing.T) {
		c, s, api := onScene(t)
		s.shown = append(s.shown, fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: "west"}, Connected: true})
		edit(t, api, bad)
		v := of(t, c)
		if v.policy == nil || v.policy.onlyFor != "east" || v.stop != "" {
			t.Fatalf("%+v, stops %q", v.policy, v.stop)
		}
		if cs, _ := v.candidates(); len(cs) != 1 || cs[0].Name != "east" {
			t.Errorf("candidates are %+v", cs)
		}
		if err := v.policy.election.Timings.Validate(); err != nil {
			t.Error(err)
		}
	})
}

// A reader believes no renewTime that is further ahead than the ε of its Lease. So a hub that renews by a record alone
// must not say less than the hub before it.
func TestALeaderOfAnInvalidPolicyIsRenewedUnderItsClockSkew(t *testing.T) {
	for _, test := range []struct{ duration, recorded, want time.Duration }{
		{9 * time.Second, 5 * time.Second, 5 * time.Second},
		{15 * time.Second, time.Second, time.Second},
		{15 * time.Second, 0, time.Second}, // of an older hub
		{3 * time.Second, 2750 * time.Millisecond, 2750 * time.Millisecond},
		{3 * time.Second, 2999 * time.Millisecond, 1500 * time.Millisecond}, // edited: no valid policy leaves so little
		{3 * time.Second, 4 * time.Second, 1500 * time.Millisecond},         // edited
	} {
		p := (&policy{}).byRecord("shop", election.Record{Leader: "east", Duration: test.duration, Skew: test.recorded})
		if got := p.election.Timings; got.Skew != test.want || got.Validate() != nil {
			t.Errorf("D %v, ε %v: %+v (%v), want ε %v", test.duration, test.recorded, got, got.Validate(), test.want)
		}
	}
}
