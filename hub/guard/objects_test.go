package guard

import (
	"regexp"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

func TestEachVersionOfThePolicySaysWhichItIs(t *testing.T) {
	told := regexp.MustCompile(`\(guard ([0-9a-f]{8})\)$`)
	spec := policySpec()
	if !told.MatchString(spec.Validations[provoked].Message) {
		t.Fatalf("the message that Verify looks for ends in no fingerprint: %s", spec.Validations[provoked].Message)
	}
	tests := map[string]func(*admissionv1.ValidatingAdmissionPolicySpec){
		"a match condition": func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.MatchConditions[0].Expression += " " },
		"a variable":        func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Variables[0].Expression += " " },
		"a validation":      func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[4].Expression += " " },
		"a message":         func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[0].Message += " " },
		"an operation": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.Create}
		},
		"a namespace": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.NamespaceSelector.MatchExpressions[0].Values = nil
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			other := policySpec()
			change(&other)
			if fingerprint(other) == fingerprint(spec) {
				t.Error("the fingerprint is the same after a change")
			}
		})
	}
	if fingerprint(policySpec()) != fingerprint(spec) {
		t.Error("the fingerprint changes by itself")
	}
}
