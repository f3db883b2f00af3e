package guard

import (
	"regexp"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

func TestEachVersionOfAPolicySaysWhichItIs(t *testing.T) {
	told := regexp.MustCompile(`\(guard ([0-9a-f]{8})\)$`)
	specs := map[string]func() admissionv1.ValidatingAdmissionPolicySpec{Name: policySpec, RegistrationsName: registrationsSpec}
	changes := map[string]func(*admissionv1.ValidatingAdmissionPolicySpec){
		"a match condition": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConditions = append(s.MatchConditions, admissionv1.MatchCondition{Name: "more", Expression: "true"})
		},
		"a variable":   func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Variables[0].Expression += " " },
		"a validation": func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[3].Expression += " " },
		"a message":    func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[0].Message += " " },
		"an operation": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.Create}
		},
		"what is matched": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.NamespaceSelector.MatchLabels = map[string]string{"a": "b"}
		},
	}
	for _, p := range Policies() {
		if !told.MatchString(p.provoked) {
			t.Fatalf("%s: the message that Verify looks for ends in no fingerprint: %s", p.Policy.Name, p.provoked)
		}
		spec := specs[p.Policy.Name]
		for name, change := range changes {
			t.Run(p.Policy.Name+"/"+name, func(t *testing.T) {
				other := spec()
				change(&other)
				if fingerprint(other) == fingerprint(spec()) {
					t.Error("the fingerprint is the same after a change")
				}
			})
		}
		once, again := spec(), spec()
		if fingerprint(once) != fingerprint(again) {
			t.Errorf("%s: the fingerprint changes by itself", p.Policy.Name)
		}
	}
}
