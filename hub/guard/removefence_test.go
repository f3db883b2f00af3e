package guard_test

import (
	"errors"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// boundTo returns the namespaces that a binding names: with In those of a gate, and with NotIn those of a wall.
func (s *simulated) boundTo(t *testing.T, name string, with metav1.LabelSelectorOperator) (namespaces []string, is bool) {
	t.Helper()
	list, err := s.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.Items, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool { return b.Name == name })
	if i < 0 {
		return nil, false
	}
	for _, e := range list.Items[i].Spec.MatchResources.NamespaceSelector.MatchExpressions {
		if e.Key == corev1.LabelMetadataName && e.Operator == with {
			namespaces = append(namespaces, slices.DeleteFunc(slices.Clone(e.Values), v1alpha1.NeverManaged)...)
		}
	}
	return namespaces, true
}

// leasesIn are those that the hub has written under the default name.
func leasesIn(namespaces ...string) map[types.NamespacedName]bool {
	all := map[types.NamespacedName]bool{}
	for _, ns := range namespaces {
		all[types.NamespacedName{Namespace: ns, Name: v1alpha1.DefaultLeaseName}] = true
	}
	return all
}

// The gate of a fence refuses everybody where there is no Lease. So one that nobody asks for any more keeps to those that
// there are, and the wall is for the other namespaces, also for one that is created again.
func TestWhereAnEarlierFenceStays(t *testing.T) {
	shops := asks("shops", checkoutWrites, "shop", "till")
	selected := asks("shops", checkoutWrites)
	selected.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	lock := asks("shops", lockIn("stock"), "shop")
	others := asks("shops", checkoutWrites)
	others.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"prod"}},
	}}
	stays, both := []string{"tills", "shops"}, []string{"shop", "till"}
	for name, test := range map[string]struct {
		policy        *v1alpha1.LeadershipPolicy
		stays         []string
		leases        map[types.NamespacedName]bool
		gated, open   []string // by the gate, and not by the wall
		gone, ungated bool
	}{
		"nowhere, of a policy that is gone":       {policy: shops, leases: leasesIn(both...), gone: true},
		"nowhere, though another policy's stay":   {policy: shops, stays: stays[:1], leases: leasesIn(both...), gone: true},
		"as it was, where there are all Leases":   {policy: shops, stays: stays, leases: leasesIn(both...), gated: both, open: both},
		"where there is a Lease":                  {policy: shops, stays: stays, leases: leasesIn("shop", "bank"), gated: both[:1], open: both[:1]},
		"the wall, where there is none":           {policy: shops, stays: stays, ungated: true},
		"selected namespaces":                     {policy: selected, stays: stays, leases: leasesIn("till"), gated: both[1:], open: both[1:]},
		"all but one, where there is none":        {policy: others, stays: stays, ungated: true, open: []string{"prod"}},
		"not by Leases that it does not ask":      {policy: shops, stays: stays, leases: map[types.NamespacedName]bool{{Namespace: "shop", Name: "other"}: true}, ungated: true, open: both[:1]},
		"that of a lock, where there is no Lease": {policy: lock, stays: stays, gated: []string{"stock"}},
		"no lock of a policy that is gone":        {policy: lock, leases: leasesIn("shop"), gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := simulate(), guard.Fences("hub", test.policy, nil)[0]
			if s.settles(t, f, map[string]bool{"shop": true}); !f.IsOfLock() {
				s.settles(t, f, map[string]bool{"shop": true, "till": true})
			}
			for range 2 { // the second time nothing is left to do
				s.ClearActions()
				if err := guard.RemoveFences(t.Context(), s, "hub", "fleet", guard.Kept{Policies: test.stays, Leases: test.leases}); err != nil {
					t.Fatal(err)
				}
			}
			if s.last() != "list "+policies+" " || len(s.Actions()) != 2 {
				t.Errorf("the second time it did: %s", s.last())
			}
			got, is := s.boundTo(t, f.Name(), metav1.LabelSelectorOpIn)
			if !slices.Equal(got, test.gated) || is == (test.gone || test.ungated) {
				t.Errorf("the gate is in %q, want %q", got, test.gated)
			}
			for i, part := range f.Names() {
				_, err := s.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), part, metav1.GetOptions{})
				if gone := err != nil; gone != (test.gone || test.ungated && i == 0) {
					t.Errorf("the policy %s: %v", part, err)
				}
			}
			if f.IsOfLock() {
				return
			}
			if got, is := s.boundTo(t, f.Names()[1], metav1.LabelSelectorOpNotIn); !slices.Equal(got, test.open) || is == test.gone {
				t.Errorf("the wall is not in %q, want %q", got, test.open)
			}
		})
	}
}

// Between the two a fence would let all through.
func TestANamespaceGetsTheWallBeforeItLosesTheGate(t *testing.T) {
	s, f := simulate(), guard.Fences("hub", asks("shops", checkoutWrites, "shop"), nil)[0]
	s.settles(t, f, map[string]bool{"shop": true})
	s.fails = func(verb, resource, name string) error {
		if verb == "update" && name == f.Names()[1] {
			return forbids(resource)
		}
		return nil
	}
	if err := guard.RemoveFences(t.Context(), s, "hub", "fleet", guard.Kept{Policies: []string{"shops"}}); !errors.Is(err, guard.ErrForbidden) {
		t.Errorf("the error is %v", err)
	}
	if _, is := s.boundTo(t, f.Name(), metav1.LabelSelectorOpIn); !is {
		t.Error("the gate is gone")
	}
}

func TestAGateThatSomebodyHasBoundToEverythingDoesNotStay(t *testing.T) {
	for name, edit := range map[string]func(*admissionv1.ValidatingAdmissionPolicyBinding){
		"it matches all":           func(b *admissionv1.ValidatingAdmissionPolicyBinding) { b.Spec.MatchResources = nil },
		"it is for all namespaces": func(b *admissionv1.ValidatingAdmissionPolicyBinding) { b.Spec.MatchResources.NamespaceSelector = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s, f := simulate(), guard.Fences("hub", asks("shops", checkoutWrites, "shop"), nil)[0]
			s.settles(t, f, map[string]bool{"shop": true})
			s.edits(t, f.Name(), edit)
			kept := guard.Kept{Policies: []string{"shops"}, Leases: leasesIn("shop")}
			if err := guard.RemoveFences(t.Context(), s, "hub", "fleet", kept); err != nil {
				t.Fatal(err)
			}
			if _, err := s.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(t.Context(), f.Name(), metav1.GetOptions{}); err == nil {
				t.Error("it stays")
			}
		})
	}
}

func TestAGateThatCannotBeNarrowedIsTold(t *testing.T) {
	s, f := simulate(), guard.Fences("hub", asks("shops", checkoutWrites, "shop", "till"), nil)[0]
	s.settles(t, f, map[string]bool{"shop": true, "till": true})
	s.fails = func(verb, resource, _ string) error {
		if verb == "update" {
			return forbids(resource)
		}
		return nil
	}
	kept := guard.Kept{Policies: []string{"shops"}, Leases: leasesIn("shop")}
	if err := guard.RemoveFences(t.Context(), s, "hub", "fleet", kept); !errors.Is(err, guard.ErrForbidden) {
		t.Errorf("the error is %v", err)
	}
}
