package guard_test

import (
	"errors"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/hub/guard"
)

const admission = "admissionregistration.k8s.io"

// lifetime is all that the hub ever does with the guard of a member: install, repair and remove it.
func lifetime(t *testing.T, hub *kubernetes.Clientset) error {
	t.Helper()
	admin := administrator(t)
	if err := newHub(admin, "fleet").Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := newHub(hub, "fleet")
	if err := h.guards(t.Context()); errors.Is(err, guard.ErrForbidden) {
		return err
	}
	policies, bindings := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies(), admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	for _, p := range guard.Policies() {
		policy, err := policies.Get(t.Context(), p.Policy.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		policy.Spec.FailurePolicy = nil // which becomes the default of the API
		policy.Spec.Validations = policy.Spec.Validations[:1]
		if _, err := policies.Update(t.Context(), policy, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding, err := bindings.Get(t.Context(), p.Binding.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
		if _, err := bindings.Update(t.Context(), binding, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.guards(t.Context()); errors.Is(err, guard.ErrForbidden) {
		return err
	}
	return h.Remove(t.Context())
}

// Least privilege: config/member grants each verb that the guard needs, and no other one.
func TestTheGuardNeedsEachVerbThatConfigMemberGrantsForIt(t *testing.T) {
	hub := account(t, "hub-with-all", hubRules(t)...)
	if err := lifetime(t, hub); err != nil {
		t.Fatalf("with all that config/member grants: %v", err)
	}
	tried := 0
	for _, rule := range hubRules(t) {
		if !slices.Contains(rule.APIGroups, admission) {
			continue
		}
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				tried++
				t.Run(verb+" "+resource, func(t *testing.T) {
					hub := account(t, "hub-without-"+verb+"-"+resource, lessOne(hubRules(t), resource, verb)...)
					if err := lifetime(t, hub); !errors.Is(err, guard.ErrForbidden) {
						t.Errorf("the hub does without it: take it out of config/member/hub_role.yaml (%v)", err)
					}
				})
			}
		}
	}
	if tried != 8 {
		t.Errorf("%d verbs were tried: get, create, update and delete of two resources make 8", tried)
	}
}

// lessOne are the rules without one verb on one resource.
func lessOne(rules []rbacv1.PolicyRule, resource, verb string) (less []rbacv1.PolicyRule) {
	for _, rule := range rules {
		if i := slices.Index(rule.Resources, resource); i >= 0 && slices.Contains(rule.Verbs, verb) {
			without := *rule.DeepCopy()
			without.Resources, without.Verbs = []string{resource}, slices.DeleteFunc(without.Verbs, func(v string) bool { return v == verb })
			rule = *rule.DeepCopy()
			if rule.Resources = slices.Delete(rule.Resources, i, i+1); len(without.Verbs) > 0 {
				less = append(less, without)
			}
			if len(rule.Resources) == 0 {
				continue
			}
		}
		less = append(less, rule)
	}
	return less
}
