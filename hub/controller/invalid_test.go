package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
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

// Nobody renews the term, so its record must not go on to say that all is well.
func TestARecordWhosePolicyIsInvalidIsNotReady(t *testing.T) {
	c, _, api := onScene(t)
	sets := func(duration int32) {
		t.Helper()
		o := &v1alpha1.LeadershipPolicy{}
		if err := api.Get(t.Context(), types.NamespacedName{Namespace: shop.Namespace, Name: "shops"}, o); err != nil {
			t.Fatal(err)
		}
		o.Spec.Timings.LeaseDurationSeconds = duration
		if err := api.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	says := func() string {
		t.Helper()
		if _, err := c.reconcileNamespace(t.Context(), aboutShop); err != nil {
			t.Fatal(err)
		}
		o := &v1alpha1.NamespaceLeader{}
		if err := api.Get(t.Context(), shop, o); err != nil {
			t.Fatal(err)
		}
		return told(o.Status.Conditions, v1alpha1.ConditionReady) + " / " + o.Status.Message
	}
	sets(3)
	c.namespace(shop).changes = []v1alpha1.Change{{Epoch: 20, State: v1alpha1.StateLeading, Leader: "east"}}
	const want = "nothing is decided while the policy is invalid: "
	if got := says(); !strings.HasPrefix(got, "False InvalidPolicy "+want) || !strings.Contains(got, " / "+want) {
		t.Errorf("it says %q", got)
	}
	o := &v1alpha1.NamespaceLeader{}
	if err := api.Get(t.Context(), shop, o); err != nil || len(o.Status.History) != 1 || o.Status.History[0].Epoch != 20 {
		t.Errorf("%v, its history is %+v", err, o.Status.History)
	}
	w := &writes{Client: c.client}
	c.client = w
	if says(); w.n > 0 {
		t.Errorf("%d writes, and nothing is new", w.n)
	}
	v := shopView(election.Record{})
	v.object, v.stop = &v1alpha1.NamespaceLeader{}, "the Clusters are not known yet"
	if err := c.explainInvalid(t.Context(), v); err != nil || w.n > 0 {
		t.Errorf("what stops for another reason: %v, %d writes", err, w.n)
	}
	v.stop, v.invalid, v.edited = want, want, true
	if err := c.explainInvalid(t.Context(), v); err != nil || w.n > 0 {
		t.Errorf("what somebody has edited: %v, %d writes", err, w.n)
	}
	sets(4) // which is invalid in other words
	c.client = &writes{Client: api, answer: errRefused}
	if _, err := c.reconcileNamespace(t.Context(), aboutShop); err == nil {
		t.Error("a status that cannot be written is no error")
	}
	c.client = api
	sets(15)
	says() // what is decided then comes before what is said of it
	later := musterStart
	later.Boot += time.Minute
	c.Clock = fixedClock(later)
	if got := says(); strings.Contains(got, "invalid") {
		t.Errorf("when it is valid again it says %q", got)
	}
}
