package guard

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// AnchorName is the name of a policy that rejects nothing, and of its binding.
const AnchorName = "fences.leasecast.dev"

// anchor returns a policy that has a member's API servers watch the Leases permanently. It is never removed. An API
// server watches the Leases while some policy in force has them as parameters. When the last such policy is removed,
// it stops that watch, and starts no other until it restarts (k8s.io/apiserver v0.36, policy_source.go). A fence that
// is installed later would evaluate outdated Leases. So this policy stays in force, for a resource that does not exist.
func anchor() Policy {
	meta := metav1.ObjectMeta{
		Name:   AnchorName,
		Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue},
	}
	nothing := rule("fences.leasecast.dev", "v1", []string{"none"}, admissionv1.Create)
	spec := fenceSpec([]rules{nothing}, "false", nil, []validation{{Expression: "true"}})
	spec.FailurePolicy = ptr.To(admissionv1.Ignore)
	p := withBinding(meta, spec, admissionv1.Audit)
	p.Binding.Spec.ParamRef = &admissionv1.ParamRef{
		Name: v1alpha1.DefaultLeaseName, ParameterNotFoundAction: ptr.To(admissionv1.AllowAction),
	}
	return p
}
