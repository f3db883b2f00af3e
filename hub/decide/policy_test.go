package decide

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard/locks"
	"github.com/leasecast/leasecast/hub/health"
)

// A lock that two policies fence in one cluster has one leader: that of the older policy.
func TestYoungerPolicyOpensNoLockOfAnOlderOne(t *testing.T) {
	named := func(name string, zone map[string]string, f *v1alpha1.Fencing) *Policy {
		o := policyOf("fleet", name, "shop")
		o.Spec.Fencing = f
		o.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: zone}
		return ParsePolicy(o)
	}
	fenced := &v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{stockLock}}
	warns := fenced.DeepCopy()
	warns.Enforcement = v1alpha1.EnforcementWarn
	a, b := map[string]string{"zone": "a"}, map[string]string{"zone": "b"}
	members := []fleet.Member{{Key: eastKey, Labels: a}, {Key: fleet.Key{Fleet: "fleet", Name: "west"}, Labels: b}}
	for name, test := range map[string]struct {
		older, younger *Policy
		old, young     bool
		lost           bool
	}{
		"both fence it everywhere":             {named("old", nil, fenced), named("young", nil, fenced), true, false, false},
		"they share one cluster":               {named("old", a, fenced), named("young", nil, fenced), true, false, false},
		"they share none":                      {named("old", a, fenced), named("young", b, fenced), true, true, false},
		"the older one fences nothing":         {named("old", nil, nil), named("young", nil, fenced), false, true, false},
		"a policy that only warns opens none":  {named("old", b, warns), named("young", a, fenced), false, true, false},
		"the older one has lost its namespace": {named("old", nil, fenced), named("young", nil, fenced), true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			ShareLocks([]*Policy{test.older, test.younger}, members, func(*Policy) bool {
				return test.lost
			})
			if old, young := len(test.older.Election.Locks) > 0,
				len(test.younger.Election.Locks) > 0; old != test.old || young != test.young {
				t.Errorf("the older opens it: %v, the younger: %v; want %v, %v", old, young, test.old, test.young)
			}
			stop := locks.Of(fenced)[0].StopTime()
			if got := test.younger.Election.StopTime; (got == stop) != test.young {
				t.Errorf("its stop time is %v", got)
			}
		})
	}
}

func TestWhatAPolicyLeavesOpen(t *testing.T) {
	p := ParsePolicy(policyOf("fleet", "shops", "shop"))
	if p.Invalid != nil || !p.Election.FailOverWhenMostUnreachable || p.Election.Acknowledged ||
		p.Election.LeaseName != v1alpha1.DefaultLeaseName {
		t.Errorf("%+v, %v", p.Election, p.Invalid)
	}
	if want := (health.Thresholds{Timeout: 3 * time.Second, UnreachableAfter: 10 * time.Second,
		RecoverAfter: 5 * time.Second}); p.Thresholds != want {
		t.Errorf("%+v, want %+v", p.Thresholds, want)
	}
	if !p.Selects(fleet.Member{}) {
		t.Error("without a clusterSelector it does not speak of all clusters")
	}
	if p.Matches("till", map[string]string{"a": "b"}) {
		t.Error("without a selector of namespaces it manages one that it does not name")
	}
}

func TestWhatAPolicySays(t *testing.T) {
	o := policyOf("fleet", "shops", "shop")
	o.Spec.LeaseName, o.Spec.Handover, o.Spec.Health.WhenMostUnreachable = "active", v1alpha1.HandoverRegisteredReaders,
		v1alpha1.HoldWhenMostUnreachable
	o.Spec.Health.UnreachableAfterMilliseconds = 7000
	o.Spec.Health.RecoverAfterMilliseconds = ptr.To[int32](9000)
	o.Spec.InitialDelaySeconds = ptr.To[int32](3)
	o.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "here"}}
	o.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shops"}}
	p := ParsePolicy(o)
	if p.Invalid != nil || p.Election.FailOverWhenMostUnreachable || !p.Election.Acknowledged ||
		p.Election.LeaseName != "active" {
		t.Errorf("%+v, %v", p.Election, p.Invalid)
	}
	if p.Election.InitialDelay != 3*time.Second {
		t.Errorf("the first leader waits for %v, want 3 s", p.Election.InitialDelay)
	}
	o.Spec.InitialDelaySeconds = nil // as before there was such a field
	if d := ParsePolicy(o).Election.InitialDelay; d != v1alpha1.DefaultInitialDelay {
		t.Errorf("where nothing is said the first leader waits for %v", d)
	}
	if want := (health.Thresholds{Timeout: 3 * time.Second, UnreachableAfter: 7 * time.Second,
		RecoverAfter: 9 * time.Second}); p.Thresholds != want {
		t.Errorf("%+v, want %+v", p.Thresholds, want)
	}
	for region, want := range map[string]bool{"here": true, "there": false} {
		if got := p.Selects(fleet.Member{Labels: map[string]string{"region": region}}); got != want {
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
		if got := p.Matches(test.namespace, test.labels); got != test.want {
			t.Errorf("it manages %s: %v", name, got)
		}
	}
}

// A selector that cannot be read selects nothing, and least of all everything.
func TestAPolicyWithAnUnreadableSelectorIsInvalid(t *testing.T) {
	for name, breaks := range map[string]func(*v1alpha1.LeadershipPolicySpec){
		"of clusters": func(s *v1alpha1.LeadershipPolicySpec) { s.ClusterSelector = badSelector },
		"of namespaces": func(s *v1alpha1.LeadershipPolicySpec) {
			s.Namespaces.Names, s.Namespaces.Selector = nil, badSelector
		},
	} {
		o := policyOf("fleet", "shops", "shop")
		breaks(&o.Spec)
		p := ParsePolicy(o)
		if p.Invalid == nil || p.Selects(fleet.Member{}) && p.Matches("shop", nil) {
			t.Errorf("%s: %v", name, p.Invalid)
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
		if o.Spec.Fencing = &f; ParsePolicy(o).Invalid == nil {
			t.Errorf("%s: it is valid", name)
		}
	}
	o := policyOf("fleet", "shops", "shop")
	o.Spec.Fencing = &v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{ObjectLabels: map[string]string{"led": "shop"}}}}
	if err := ParsePolicy(o).Invalid; err != nil {
		t.Error(err)
	}
}

// badSelector is one that the CRD would refuse, but that may have been stored before.
var badSelector = &metav1.LabelSelector{
	MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "resembles"}},
}

// Else it would be written again and again.
func TestAPolicyWithManyFaultsNamesTheSameEachTime(t *testing.T) {
	o := policyOf("fleet", "shops", "shop")
	o.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for n := range 10 {
		o.Spec.ClusterSelector.MatchLabels[fmt.Sprint("no label ", n)] = ""
	}
	said := map[string]bool{}
	for range 20 {
		p := ParsePolicy(o)
		if p.Invalid == nil {
			t.Fatal("it is valid")
		}
		said[p.Invalid.Error()] = true
	}
	if len(said) != 1 {
		t.Errorf("it says %q", slices.Collect(maps.Keys(said)))
	}
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
		v := &Snapshot{Entry: takenOf(shop), Members: []Member{seenIn("east", true)}}
		v.Object = owned("a!")
		v.Record = election.Record{State: election.Leading, Leader: "east", Duration: test.duration, Skew: test.recorded}
		v.Claim(claims("a!"))
		if got := v.Policy.Election.Timings; got.Skew != test.want || got.Validate() != nil {
			t.Errorf("D %v, ε %v: %+v (%v), want ε %v", test.duration, test.recorded, got, got.Validate(), test.want)
		}
	}
}
