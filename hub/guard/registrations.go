package guard

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// The answers of the API server about registrations.
const (
	notTheReader = "only the user named in the annotation " + v1alpha1.ReaderAccountAnnotation + " writes or deletes this registration of a reader; " +
		"one is created by the program that it is of (the Leasecast hub may remove it)"
	becameAnother = "a Lease does not become a registration of a reader, or cease to be one, by an update; create or delete it"
	identified    = "the identity, namespaces and account of a registration never change; create another"
	incompleteReg = "a registration of a reader needs the label " + v1alpha1.ReaderLabel + ": \"true\", the annotations " +
		v1alpha1.ReaderAccountAnnotation + ", " + v1alpha1.ReaderNamespacesAnnotation + " and " + v1alpha1.ReaderReleasedAnnotation +
		", the finalizer " + v1alpha1.ReaderFinalizer + ", no owner, spec.holderIdentity, spec.renewTime and spec.leaseDurationSeconds greater than 0"
)

// Names of variables in the policy for registrations.
const (
	was = "was" // the Lease before the request is a registration
	is  = "is"  // the Lease that the request leaves behind is one
)

// provokedRegistration is the index of the validation that Verify provokes.
const provokedRegistration = 0

// registrationsSpec matches by the label alone, by which the hub lists them. So the heartbeats of nodes never
// meet an expression, and registrations are protected in all namespaces.
func registrationsSpec() admissionv1.ValidatingAdmissionPolicySpec {
	spec := admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{
			MatchPolicy:       ptr.To(admissionv1.Equivalent),
			NamespaceSelector: &metav1.LabelSelector{},
			ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: v1alpha1.ReaderLabel, Operator: metav1.LabelSelectorOpExists,
			}}},
			ResourceRules: writesOfLeases(),
		},
		Variables: []admissionv1.Variable{
			{Name: cleanup, Expression: namespaceCleanup},
			{Name: was, Expression: "oldObject != null && " + registers("oldObject")},
			{Name: is, Expression: "object != null && " + registers("object")},
		},
		Validations: []admissionv1.Validation{
			{
				Expression: "request.operation != 'CREATE' || " + completeRegistration,
				Message:    incompleteReg,
				Reason:     ptr.To(metav1.StatusReasonInvalid),
			},
			{
				Expression: "request.operation != 'UPDATE' || (variables." + was + " && variables." + is + ")",
				Message:    becameAnother,
				Reason:     ptr.To(metav1.StatusReasonInvalid),
			},
			{
				// Creating one in another's name is not even for the hub.
				Expression: "request.operation == 'CREATE' ? " + annotation("object", v1alpha1.ReaderAccountAnnotation) + " == request.userInfo.username : " +
					"(" + annotation("oldObject", v1alpha1.ReaderAccountAnnotation) + " == request.userInfo.username || variables." + cleanup + " || " + mayPublish + ")",
				Message: notTheReader,
				Reason:  ptr.To(metav1.StatusReasonForbidden),
			},
			{
				Expression: "request.operation != 'UPDATE' || (" + strings.Join([]string{
					"object.metadata.labels['" + v1alpha1.ReaderLabel + "'] == oldObject.metadata.labels['" + v1alpha1.ReaderLabel + "']",
					annotation("object", v1alpha1.ReaderAccountAnnotation) + " == " + annotation("oldObject", v1alpha1.ReaderAccountAnnotation),
					annotation("object", v1alpha1.ReaderNamespacesAnnotation) + " == " + annotation("oldObject", v1alpha1.ReaderNamespacesAnnotation),
					holder("object") + " == " + holder("oldObject"),
				}, " && ") + ")",
				Message: identified,
				Reason:  ptr.To(metav1.StatusReasonInvalid),
			},
		},
	}
	signMessage(&spec, provokedRegistration)
	return spec
}

var completeRegistration = "(" + strings.Join([]string{
	"object.metadata.labels['" + v1alpha1.ReaderLabel + "'] == 'true'",
	annotation("object", v1alpha1.ReaderAccountAnnotation) + " != ''",
	annotation("object", v1alpha1.ReaderNamespacesAnnotation) + " != ''",
	annotation("object", v1alpha1.ReaderReleasedAnnotation) + " != ''",
	"has(object.metadata.finalizers) && '" + v1alpha1.ReaderFinalizer + "' in object.metadata.finalizers",
	"(!has(object.metadata.ownerReferences) || object.metadata.ownerReferences.size() == 0)",
	holder("object") + " != ''",
	"has(object.spec.renewTime)",
	"has(object.spec.leaseDurationSeconds) && object.spec.leaseDurationSeconds > 0",
}, " && ") + ")"

// registers is a CEL expression: has this Lease the label of a registration?
func registers(o string) string {
	return "has(" + o + ".metadata.labels) && '" + v1alpha1.ReaderLabel + "' in " + o + ".metadata.labels"
}

// annotation is a CEL expression: the annotation of this Lease, empty if it has none.
func annotation(o, key string) string {
	return "(has(" + o + ".metadata.annotations) && '" + key + "' in " + o + ".metadata.annotations ? " + o + ".metadata.annotations['" + key + "'] : '')"
}

// holder is a CEL expression: the holderIdentity of this Lease, empty if it has none.
func holder(o string) string {
	return "(has(" + o + ".spec.holderIdentity) ? " + o + ".spec.holderIdentity : '')"
}
