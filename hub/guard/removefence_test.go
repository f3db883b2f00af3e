package guard_test

import (
	"errors"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// boundTo returns the namespaces that a binding names, and whether it is there.
func (s *simulated) boundTo(t *testing.T, name string) (namespaces []string, is bool) {
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
		if e.Key == corev1.LabelMetadataName && e.Operator == metav1.LabelSelectorOpIn {
			namespaces = e.Values
		}
	}
	return namespaces, true
}

// The gate of a fence refuses everybody where there is no Lease. So one that nobody asks for any more stays only where the
// hub may still write that.
func TestWhereAnEarlierFenceStays(t *testing.T) {
	shops := asks("shops", checkoutWrites, "shop", "till")
	lock := asks("shops", v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{{Controller: "crossplane"}}}, "shop")
	type in = map[string]bool
	for name, test := range map[string]struct {
		policy     *v1alpha1.LeadershipPolicy
		stays      map[string]in
		gate, wall []string
	}{
		"nowhere, of a policy that is gone":           {shops, nil, nil, nil},
		"nowhere, though others stay":                 {shops, map[string]in{"tills": {"shop": true}}, nil, nil},
		"where its policy still manages":              {shops, map[string]in{"shops": {"shop": true, "bank": true}}, []string{"shop"}, []string{"shop", "till"}},
		"everywhere, while its policy is invalid":     {shops, map[string]in{"shops": {"shop": true, "till": true}}, []string{"shop", "till"}, []string{"shop", "till"}},
		"the wall, where all its namespaces end":      {shops, map[string]in{"shops": {}}, nil, []string{"shop", "till"}},
		"that of a lock, where its namespace is gone": {lock, map[string]in{"shops": {}}, []string{"crossplane-system", "shop"}, nil},
		"no lock of a policy that is gone":            {lock, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := simulate(), guard.Fences("hub", test.policy)[0]
			active := map[string]bool{}
			for _, ns := range test.policy.Spec.Namespaces.Names {
				active[ns] = true
			}
			s.settles(t, f, active)
			if !f.IsOfLock() { // as it was before there were Leases
				s.edits(t, f.Names()[1], func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
					b.Spec.MatchResources.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
						{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{"shop", "till"}},
					}}
				})
			}
			for range 2 { // the second time nothing is left to do
				s.ClearActions()
				if err := guard.RemoveFences(t.Context(), s, "hub", "fleet", guard.Kept{Policies: test.stays}); err != nil {
					t.Fatal(err)
				}
			}
			if s.last() != "list "+policies+" " {
				t.Errorf("the second time it did: %s", s.last())
			}
			for i, want := range [][]string{test.gate, test.wall}[:len(f.Names())] {
				if got, is := s.boundTo(t, f.Names()[i]); !slices.Equal(got, want) || is != (want != nil) {
					t.Errorf("%s is bound to %q, want %q", f.Names()[i], got, want)
				}
				_, err := s.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), f.Names()[i], metav1.GetOptions{})
				if is := err == nil; is != (want != nil) {
					t.Errorf("the policy %s: %v", f.Names()[i], err)
				}
			}
		})
	}
}

func TestAGateThatSomebodyHasBoundToEverythingDoesNotStay(t *testing.T) {
	for name, edit := range map[string]func(*admissionv1.ValidatingAdmissionPolicyBinding){
		"it matches all":           func(b *admissionv1.ValidatingAdmissionPolicyBinding) { b.Spec.MatchResources = nil },
		"it is for all namespaces": func(b *admissionv1.ValidatingAdmissionPolicyBinding) { b.Spec.MatchResources.NamespaceSelector = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s, f := simulate(), guard.Fences("hub", asks("shops", checkoutWrites, "shop"))[0]
			s.settles(t, f, map[string]bool{"shop": true})
			s.edits(t, f.Name(), edit)
			kept := guard.Kept{Policies: map[string]map[string]bool{"shops": {"shop": true}}}
			if err := guard.RemoveFences(t.Context(), s, "hub", "fleet", kept); err != nil {
				t.Fatal(err)
			}
			if _, is := s.boundTo(t, f.Name()); is {
				t.Error("it stays")
			}
		})
	}
}

func TestAGateThatCannotBeNarrowedIsTold(t *testing.T) {
	s, f := simulate(), guard.Fences("hub", asks("shops", checkoutWrites, "shop", "till"))[0]
	s.settles(t, f, map[string]bool{"shop": true, "till": true})
	s.fails = func(verb, resource, _ string) error {
		if verb == "update" {
			return forbids(resource)
		}
		return nil
	}
	kept := guard.Kept{Policies: map[string]map[string]bool{"shops": {"shop": true}}}
	if err := guard.RemoveFences(t.Context(), s, "hub", "fleet", kept); !errors.Is(err, guard.ErrForbidden) {
		t.Errorf("the error is %v", err)
	}
}
