package guard_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/leasecast/leasecast/hub/guard"
)

// What Ensure writes, in a member that stores it and enforces nothing.
func TestEnsurePutsBackWhatIsStored(t *testing.T) {
	for name, edit := range map[string]func(*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding){
		"the spec of a policy": func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.Validations = nil
		},
		"the spec of a binding": func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.PolicyName = "another"
		},
		"the labels of a policy that has none": func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Labels = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i, want := range guard.Policies() {
				var there []runtime.Object
				for n, p := range guard.Policies() {
					if n == i {
						edit(p.Policy, p.Binding)
					}
					there = append(there, p.Policy, p.Binding)
				}
				client := fake.NewClientset(there...)
				if changed, err := guard.Ensure(t.Context(), client); err != nil || !changed {
					t.Fatalf("Ensure = %v, %v, want true, nil", changed, err)
				}
				mustBeAsBuilt(t, client)
				policy, _ := stored(t, client, want.Policy.Name)
				if diff := cmp.Diff(want.Policy.Labels, policy.Labels); diff != "" {
					t.Errorf("labels (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestEnsureWritesNothingOnceTheHubMayNotWrite(t *testing.T) {
	for name, there := range map[string][]runtime.Object{
		"where no policy is there":       nil,
		"where a policy has been edited": inPlace(unlabelled),
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(there...)
			ctx := guard.WhileAllowed(t.Context(), func() bool { return false })
			if changed, err := guard.Ensure(ctx, client); changed || !errors.Is(err, guard.ErrMayNotWrite) {
				t.Errorf("Ensure = %v, %v, want false, %v", changed, err, guard.ErrMayNotWrite)
			}
			for _, a := range client.Actions() {
				if a.GetVerb() != "get" {
					t.Errorf("%s of %s was sent", a.GetVerb(), a.GetResource().Resource)
				}
			}
		})
	}
}

func TestEnsureSaysWhatItCouldNotWrite(t *testing.T) {
	for _, resource := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		t.Run(resource, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("create", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, guard.Name, nil)
			})
			wrote := resource == "validatingadmissionpolicybindings" // then the policy is there
			if changed, err := guard.Ensure(t.Context(), client); err == nil || changed != wrote {
				t.Errorf("Ensure = %v, %v, want %v and an error", changed, err, wrote)
			}
			_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), guard.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) == wrote {
				t.Errorf("the policy: %v", err)
			}
		})
	}
}
