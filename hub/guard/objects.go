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
	// Name is the name of the policy and of its binding in every member.
	Name = "managed-leases.leasecast.dev"

	// Verb on Path, a URL that leads nowhere, is what RBAC must grant to whoever acts as
	// the hub.
	Verb = "publish"
	// Path is explained at Verb.
	Path = "/leasecast.dev/leases"
)

// What the API server answers, each naming what to do. A refusal by the policy is told from
// others by these words.
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

// provoked is the index of the validation that Verify provokes.
const provoked = 1

// marked is a CEL expression: does the Lease in variable o carry any mark of ours?
const marked = `((has(o.metadata.labels) && o.metadata.labels.exists(key, key.startsWith('leasecast.dev/'))) || ` +
	`(has(o.metadata.annotations) && o.metadata.annotations.exists(key, key.startsWith('leasecast.dev/'))))`

// Objects returns the policy and its binding as they stand in every member. All
// defaults of the API are spelled out, so that what a member stores can be compared.
func Objects() (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	meta := metav1.ObjectMeta{
		Name:   Name,
		Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue},
	}
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: policySpec()},
		&admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: *meta.DeepCopy(),
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        Name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
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
				// The namespace is going away and takes its content along.
				Name: cleanup,
				Expression: "request.operation == 'DELETE' && " +
					"namespaceObject.status.phase == '" + string(corev1.NamespaceTerminating) + "'",
			},
			{
				// The request leaves a marked Lease behind.
				Name:       written,
				Expression: "object != null && [object].exists(o, " + marked + ")",
			},
		},
		Validations: []admissionv1.Validation{
			{
				Expression: "variables." + cleanup + " || " +
					"authorizer.path('" + Path + "').check('" + Verb + "').allowed()",
				Message: notTheHub,
				Reason:  ptr.To(metav1.StatusReasonForbidden),
			},
			{
				// Absent fields are asked for with has(): reading one is an error.
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
	// Verify must know this policy from an older one that is still in force.
	spec.Validations[provoked].Message += " (" + fingerprint(spec) + ")"
	return spec
}

// leasesOfTenants matches the Leases of all namespaces that can be managed.
func leasesOfTenants() *admissionv1.MatchResources {
	return &admissionv1.MatchResources{
		MatchPolicy:    ptr.To(admissionv1.Equivalent),
		ObjectSelector: &metav1.LabelSelector{},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key:      corev1.LabelMetadataName,
			Operator: metav1.LabelSelectorOpNotIn,
			Values:   []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease},
		}}},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
			Rule: admissionv1.Rule{
				APIGroups:   []string{coordinationv1.GroupName},
				APIVersions: []string{coordinationv1.SchemeGroupVersion.Version},
				Resources:   []string{"leases"},
				Scope:       ptr.To(admissionv1.AllScopes),
			},
		}}},
	}
}

// fingerprint tells one version of the policy from another.
func fingerprint(spec admissionv1.ValidatingAdmissionPolicySpec) string {
	content, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("guard: marshal a constant: %v", err)) // plain data always marshals
	}
	sum := sha256.Sum256(content)
	return "guard " + hex.EncodeToString(sum[:4])
}
