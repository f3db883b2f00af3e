package guard

import (
	"crypto/sha256"
	_ "embed" // for the manifests
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

const (
	// Name is the name of the policy that protects managed Leases, and of its binding.
	Name = "managed-leases.leasecast.dev"
	// RegistrationsName is the name of the policy that protects the registrations of
	// readers, and of its binding.
	RegistrationsName = "reader-registrations.leasecast.dev"

	// Verb on Path, a URL without a handler, is what RBAC must grant to whoever acts as the hub.
	Verb = "publish"
	// Path is explained at Verb.
	Path = "/leasecast.dev/leases"

	mayPublish = "authorizer.path('" + Path + "').check('" + Verb + "').allowed()"
)

var (
	//go:embed managed-leases.yaml
	managedLeases []byte
	//go:embed reader-registrations.yaml
	readerRegistrations []byte
)

// neverManaged are the namespaces of the cluster itself.
var neverManaged = []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// Guarded selects the Leases in namespaces that the policies protect. Other Leases are unowned: whoever may write
// Leases in kube-system may give them any label.
func Guarded() fields.Selector {
	const other = "metadata.namespace!="
	return fields.ParseSelectorOrDie(other + strings.Join(neverManaged, ","+other))
}

// Policy is an admission policy, and its binding of the same name, as every member has them. All defaults of the
// API are set, so that the two compare equal with what a member stores.
type Policy struct {
	Policy  *admissionv1.ValidatingAdmissionPolicy
	Binding *admissionv1.ValidatingAdmissionPolicyBinding

	// probe is a Lease that nobody may create, because of a validation that does not depend on the user. The answer
	// contains provoked. If provokedToo is not empty, the answer of a policy without its parameter contains it.
	probe                 *coordinationv1.Lease
	provoked, provokedToo string
}

// Policies returns the policy that protects managed Leases, and the one that protects the registrations of readers.
// Callers must not change them.
var Policies = sync.OnceValue(func() []Policy {
	leases := newPolicy(managedLeases, 1, v1alpha1.ManagedLabel)
	registrations := newPolicy(readerRegistrations, 0, v1alpha1.ReaderLabel, mayWatch()...)
	return []Policy{leases, registrations}
})

// newPolicy completes a manifest. Its validation at the index provoked rejects a Lease that has only this label. more
// are expressions of further validations, which are otherwise like the manifest's last one.
func newPolicy(manifest []byte, provoked int, label string, more ...string) Policy {
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	if err := yaml.UnmarshalStrict(manifest, policy); err != nil {
		panic(fmt.Sprintf("guard: parse an admission policy: %v", err)) // embedded: no content of a member causes this
	}
	policy.TypeMeta = metav1.TypeMeta{}
	spec := &policy.Spec
	spec.Variables = slices.Insert(spec.Variables, 0, admissionv1.Variable{Name: "hub", Expression: mayPublish})
	for _, expression := range more {
		last := spec.Validations[len(spec.Validations)-1]
		last.Expression = expression
		spec.Validations = append(spec.Validations, last)
	}
	// Verify must distinguish this version from an older one that is still in force.
	message := &spec.Validations[provoked].Message
	*message += " (guard " + fingerprint(*spec) + ")"
	p := withBinding(policy.ObjectMeta, *spec, admissionv1.Deny)
	p.probe = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: "leasecast-guard-probe", Labels: map[string]string{label: "true"},
	}}
	p.provoked = *message
	return p
}

// withBinding returns a policy and its binding.
func withBinding(meta metav1.ObjectMeta, spec policySpec, actions ...admissionv1.ValidationAction) Policy {
	return Policy{
		Policy: &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: spec},
		Binding: &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: *meta.DeepCopy(),
			Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: meta.Name, ValidationActions: actions},
		},
	}
}

// mayWatch returns expressions: the writer of a registration may watch Leases in the namespaces that it names. Each
// check with the authorizer costs a part of a policy's compute budget in the API server. So an expression has two of
// them, and 16 namespaces are checked.
func mayWatch() (all []string) {
	const watch = "(variables.claims.size() <= %[1]d || authorizer.group('coordination.k8s.io').resource('leases')" +
		".namespace(variables.claims[%[1]d]).check('watch').allowed())"
	for n := 0; n < 16; n += 2 {
		two := fmt.Sprintf(watch, n) + " && " + fmt.Sprintf(watch, n+1)
		all = append(all, "variables.frees || variables.claims.size() > 16 || "+two+" || variables.everywhere")
	}
	return all
}

// fingerprint identifies a version of a policy.
func fingerprint(version any) string {
	content, err := json.Marshal(version)
	if err != nil {
		panic(fmt.Sprintf("guard: marshal a policy: %v", err)) // plain data always marshals
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:4])
}
