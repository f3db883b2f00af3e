package guard

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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
)

// The messages of the API server. Each includes what to do. They distinguish a rejection by the policy from others.
const (
	notTheHub = "only the Leasecast hub writes or deletes Leases with leasecast.dev/ labels or annotations; " +
		"change the LeadershipPolicy, or the priority label of the Cluster, on the hub instead " +
		"(the hub itself needs the permission to " + Verb + " " + Path + ")"
	epochFell = "spec.leaseTransitions is the epoch of the leader and never falls: write at least the stored number"
	noCluster = "a Lease with leasecast.dev/ marks needs the annotation " + v1alpha1.ClusterAnnotation
	elected   = "a Lease with leasecast.dev/ marks must not set spec.strategy or spec.preferredHolder, " +
		"or the API server would elect a holder by itself"
	incomplete = "a Lease with leasecast.dev/ marks needs spec.holderIdentity (empty for nobody), spec.renewTime, " +
		"spec.leaseDurationSeconds greater than 0 and spec.leaseTransitions"
)

// Names of variables in the policy.
const (
	cleanup = "cleanup"
	written = "written"
)

const (
	namespaceCleanup = "request.operation == 'DELETE' && " +
		"namespaceObject.status.phase == '" + string(corev1.NamespaceTerminating) + "'"
	mayPublish = "authorizer.path('" + Path + "').check('" + Verb + "').allowed()"
)

// provoked is the index of the validation that Verify's probe fails.
const provoked = 1

// marked is a CEL expression: the Lease in variable o carries a mark of ours.
const marked = `((has(o.metadata.labels) && o.metadata.labels.exists(key, key.startsWith('leasecast.dev/'))) || ` +
	`(has(o.metadata.annotations) && o.metadata.annotations.exists(key, key.startsWith('leasecast.dev/'))))`

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
func Policies() []Policy {
	return []Policy{
		newPolicy(Name, policySpec(), provoked, v1alpha1.ManagedLabel),
		newPolicy(RegistrationsName, registrationsSpec(), provokedRegistration, v1alpha1.ReaderLabel),
	}
}

// newPolicy completes a policy. Its validation at the index provoked rejects a Lease that has only this label.
func newPolicy(name string, spec admissionv1.ValidatingAdmissionPolicySpec, provoked int, label string) Policy {
	meta := metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue},
	}
	return Policy{
		Policy: &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: spec},
		Binding: &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: *meta.DeepCopy(),
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		},
		probe: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name:   "leasecast-guard-probe",
			Labels: map[string]string{label: "true"},
		}},
		provoked: spec.Validations[provoked].Message,
	}
}

func policySpec() admissionv1.ValidatingAdmissionPolicySpec {
	spec := admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    ptr.To(admissionv1.Fail),
		MatchConstraints: leasesOfTenants(),
		MatchConditions: []admissionv1.MatchCondition{{
			Name:       "marked",
			Expression: "[object, oldObject].exists(o, o != null && " + marked + ")",
		}},
		Variables: []admissionv1.Variable{
			{
				// The namespace is terminating, and its content with it.
				Name:       cleanup,
				Expression: namespaceCleanup,
			},
			{
				// The request stores a marked Lease.
				Name:       written,
				Expression: "object != null && [object].exists(o, " + marked + ")",
			},
		},
		Validations: []admissionv1.Validation{
			{
				Expression: "variables." + cleanup + " || " + mayPublish,
				Message:    notTheHub,
				Reason:     ptr.To(metav1.StatusReasonForbidden),
			},
			{
				// Optional fields are tested with has(): reading an absent one is an error.
				Expression: "!variables." + written + " || (has(object.spec.holderIdentity) && has(object.spec.renewTime) && " +
					"has(object.spec.leaseDurationSeconds) && object.spec.leaseDurationSeconds > 0 && has(object.spec.leaseTransitions))",
				Message: incomplete,
				Reason:  ptr.To(metav1.StatusReasonInvalid),
			},
			{
				Expression: "!variables." + written + " || (has(object.metadata.annotations) && " +
					"'" + v1alpha1.ClusterAnnotation + "' in object.metadata.annotations && " +
					"object.metadata.annotations['" + v1alpha1.ClusterAnnotation + "'] != '')",
				Message: noCluster,
				Reason:  ptr.To(metav1.StatusReasonInvalid),
			},
			{
				Expression: "!variables." + written + " || (!has(object.spec.strategy) && !has(object.spec.preferredHolder))",
				Message:    elected,
				Reason:     ptr.To(metav1.StatusReasonInvalid),
			},
			{
				Expression: "request.operation != 'UPDATE' || !has(oldObject.spec.leaseTransitions) || " +
					"(has(object.spec.leaseTransitions) && object.spec.leaseTransitions >= oldObject.spec.leaseTransitions)",
				Message: epochFell,
				Reason:  ptr.To(metav1.StatusReasonInvalid),
			},
		},
	}
	signMessage(&spec, provoked)
	return spec
}

// neverManaged are the namespaces of the cluster itself.
var neverManaged = []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// leasesOfTenants matches the Leases in all namespaces that can be managed.
func leasesOfTenants() *admissionv1.MatchResources {
	return &admissionv1.MatchResources{
		MatchPolicy:    ptr.To(admissionv1.Equivalent),
		ObjectSelector: &metav1.LabelSelector{},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key:      corev1.LabelMetadataName,
			Operator: metav1.LabelSelectorOpNotIn,
			Values:   neverManaged,
		}}},
		ResourceRules: writesOfLeases(),
	}
}

func writesOfLeases() []admissionv1.NamedRuleWithOperations {
	return []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		Rule: admissionv1.Rule{
			APIGroups:   []string{coordinationv1.GroupName},
			APIVersions: []string{coordinationv1.SchemeGroupVersion.Version},
			Resources:   []string{"leases"},
			Scope:       ptr.To(admissionv1.AllScopes),
		},
	}}}
}

// signMessage adds the version of the policy to a validation's message. Verify must distinguish this version from
// an older one that is still in force.
func signMessage(spec *admissionv1.ValidatingAdmissionPolicySpec, validation int) {
	spec.Validations[validation].Message += " (guard " + fingerprint(*spec) + ")"
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
