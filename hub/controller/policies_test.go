package controller

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
)

// badSelector is one that the CRD would refuse, but that may have been stored before.
var badSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "resembles"}}}

func TestWhatAPolicyLeavesOpen(t *testing.T) {
	p := parsePolicy(policyOf("fleet", "shops", "shop"))
	if p.invalid != nil || !p.election.FailOverWhenMostUnreachable || p.election.Acknowledged || p.election.LeaseName != v1alpha1.DefaultLeaseName {
		t.Errorf("%+v, %v", p.election, p.invalid)
	}
	if want := (health.Thresholds{Timeout: 3 * time.Second, UnreachableAfter: 10 * time.Second, RecoverAfter: 5 * time.Second}); p.thresholds != want {
		t.Errorf("%+v, want %+v", p.thresholds, want)
	}
	if !p.selects(fleet.Member{}) {
		t.Error("without a clusterSelector it does not speak of all clusters")
	}
	if p.matches("till", map[string]string{"a": "b"}) {
		t.Error("without a selector of namespaces it manages one that it does not name")
	}
}

func TestWhatAPolicySays(t *testing.T) {
	o := policyOf("fleet", "shops", "shop")
	o.Spec.LeaseName, o.Spec.Handover, o.Spec.Health.WhenMostUnreachable = "active", v1alpha1.HandoverRegisteredReaders, v1alpha1.HoldWhenMostUnreachable
	o.Spec.Health.UnreachableAfterMilliseconds = 7000
	o.Spec.Health.RecoverAfterMilliseconds = ptr.To[int32](9000)
	o.Spec.InitialDelaySeconds = ptr.To[int32](3)
	o.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "here"}}
	o.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shops"}}
	p := parsePolicy(o)
	if p.invalid != nil || p.election.FailOverWhenMostUnreachable || !p.election.Acknowledged || p.election.LeaseName != "active" {
		t.Errorf("%+v, %v", p.election, p.invalid)
	}
	if p.election.InitialDelay != 3*time.Second {
		t.Errorf("the first leader waits for %v, want 3 s", p.election.InitialDelay)
	}
	o.Spec.InitialDelaySeconds = nil // as before there was such a field
	if d := parsePolicy(o).election.InitialDelay; d != v1alpha1.DefaultInitialDelay {
		t.Errorf("where nothing is said the first leader waits for %v", d)
	}
	if want := (health.Thresholds{Timeout: 3 * time.Second, UnreachableAfter: 7 * time.Second, RecoverAfter: 9 * time.Second}); p.thresholds != want {
		t.Errorf("%+v, want %+v", p.thresholds, want)
	}
	for region, want := range map[string]bool{"here": true, "there": false} {
		if got := p.selects(fleet.Member{Labels: map[string]string{"region": region}}); got != want {
			t.Errorf("it speaks of a cluster %s: %v", region, got)
		}
	}
	team := map[string]string{"team": "shops"}
	for name, test := range map[string]struct {
		namespace string
		labels    map[string]string
		want      bool
	}{
		"one that it names":                     {"shop", nil, true},
		"one that it selects":                   {"till", team, true},
		"one of the system":                     {"kube-public", team, false},
		"one that it neither names nor selects": {"till", nil, false},
	} {
		if got := p.matches(test.namespace, test.labels); got != test.want {
			t.Errorf("it manages %s: %v", name, got)
		}
	}
}

// A selector that cannot be read selects nothing, and least of all everything.
func TestAPolicyWithAnUnreadableSelectorIsInvalid(t *testing.T) {
	for name, breaks := range map[string]func(*v1alpha1.LeadershipPolicySpec){
		"of clusters":   func(s *v1alpha1.LeadershipPolicySpec) { s.ClusterSelector = badSelector },
		"of namespaces": func(s *v1alpha1.LeadershipPolicySpec) { s.Namespaces.Names, s.Namespaces.Selector = nil, badSelector },
	} {
		o := policyOf("fleet", "shops", "shop")
		breaks(&o.Spec)
		p := parsePolicy(o)
		if p.invalid == nil || p.selects(fleet.Member{}) && p.matches("shop", nil) {
			t.Errorf("%s: %v", name, p.invalid)
		}
	}
}

// API servers compare labels with what nothing can have, and refuse nothing.
func TestAPolicyWithAnUnreadableFenceIsInvalid(t *testing.T) {
	none := map[string]string{"no key!": "x"}
	for name, f := range map[string]v1alpha1.Fencing{
		"of Jobs":             {Schedules: &metav1.LabelSelector{MatchLabels: none}},
		"of objects":          {Writes: []v1alpha1.WriteFence{{ObjectLabels: none}}},
		"of objects, a value": {Writes: []v1alpha1.WriteFence{{ObjectLabels: map[string]string{"led": "no value!"}}}},
	} {
		o := policyOf("fleet", "shops", "shop")
		if o.Spec.Fencing = &f; parsePolicy(o).invalid == nil {
			t.Errorf("%s: it is valid", name)
		}
	}
	o := policyOf("fleet", "shops", "shop")
	o.Spec.Fencing = &v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{ObjectLabels: map[string]string{"led": "shop"}}}}
	if err := parsePolicy(o).invalid; err != nil {
		t.Error(err)
	}
}

func TestPoliciesAreListedOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(name string, age time.Duration) *v1alpha1.LeadershipPolicy {
			p := policyOf("fleet", name, "shop")
			p.CreationTimestamp = metav1.NewTime(musterStart.Wall.Add(-age))
			return p
		}
		going := of("a-going", 3*time.Hour)
		going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: musterStart.Wall}, []string{"example.com/x"}
		m := newMuster(t, of("b", time.Hour), of("a", time.Hour), of("z", 2*time.Hour), going, policyOf("fleet2", "elsewhere", "shop"))
		ps, err := listPolicies(t.Context(), m.api, "fleet")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range ps {
			names = append(names, p.Name)
		}
		if !slices.Equal(names, []string{"z", "a", "b"}) {
			t.Errorf("%q", names)
		}
		if _, err := listPolicies(t.Context(), failing{Client: m.api, list: errRefused}, "fleet"); err == nil {
			t.Error("that they could not be listed is not told")
		}
	})
}
