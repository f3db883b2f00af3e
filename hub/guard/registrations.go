package guard

import (
	"fmt"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// The messages of the API server about registrations.
const (
	notTheReader = "only the user named in the annotation " + v1alpha1.ReaderAccountAnnotation + " writes or deletes this registration of a reader; " +
		"one is created by the program that it is of (the Leasecast hub may remove it)"
	becameAnother = "a Lease does not become a registration of a reader, or cease to be one, by an update; create or delete it"
	identified    = "the identity, namespaces and account of a registration never change; create another"
	incompleteReg = "a registration of a reader needs the label " + v1alpha1.ReaderLabel + ": \"true\", the annotations " +
		v1alpha1.ReaderAccountAnnotation + ", " + v1alpha1.ReaderNamespacesAnnotation + " and " + v1alpha1.ReaderReleasedAnnotation +
		", the finalizer " + v1alpha1.ReaderFinalizer + ", no owner, spec.holderIdentity, spec.renewTime and spec.leaseDurationSeconds greater than 0"
)

// Bounds on the content of a registration. The hub keeps all registrations in memory, and a tenant may write any
// number of them.
const (
	maxLabels      = 16
	maxAnnotations = 8
	maxFinalizers  = 2
	// maxText bounds the identity, the account and other annotations, in characters.
	maxText = 1024
	// maxList bounds the annotations that grow with the number of namespaces, in characters. maxClaims bounds the
	// namespaces that a registration may name.
	maxList   = 96 << 10
	maxClaims = 1000
	// maxAsked is how many namespaces are checked with the authorizer one by one. Each check costs a part of a
	// policy's compute budget in the API server. perExpression is how many checks one expression may contain.
	maxAsked      = 16
	perExpression = 2
	// maxSeconds is the longest duration: lease.MaxRegistration.
	maxSeconds = 3600
)

var (
	oversized = fmt.Sprintf("a registration of a reader has at most %d labels, %d annotations of %d characters, %d finalizers, %d namespaces, "+
		"no owner, no spec.strategy, no spec.preferredHolder, an identity and an account of at most %d characters, and a duration of at most %d seconds",
		maxLabels, maxAnnotations, maxText, maxFinalizers, maxClaims, maxText, maxSeconds)
	notWatching = fmt.Sprintf("a registration may only name namespaces in which its writer may watch Leases (coordination.k8s.io); "+
		"one for all namespaces, or for more than %d, needs that right in the whole cluster: bind the ClusterRole leasecast-reader", maxAsked)
)

// Names of variables in the policy for registrations.
const (
	was        = "was"        // the Lease before the request is a registration
	is         = "is"         // the Lease after the request is a registration
	claims     = "claims"     // the namespaces that it names
	everywhere = "everywhere" // its writer may watch Leases in all namespaces
	hub        = "hub"        // the hub writes
)

// provokedRegistration is the index of the validation that Verify's probe fails.
const provokedRegistration = 0

// registrationsSpec matches by the label alone, by which the hub lists registrations. So the heartbeats of nodes
// are not evaluated, and registrations are protected in all namespaces.
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
			{Name: hub, Expression: mayPublish},
			{Name: claims, Expression: "object == null || " + annotation("object", v1alpha1.ReaderNamespacesAnnotation) + " == '' ? [] : " +
				annotation("object", v1alpha1.ReaderNamespacesAnnotation) + ".split(',')"},
			{Name: everywhere, Expression: watchLeases + ".check('watch').allowed()"},
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
				// Not even the hub may create a registration in another user's name.
				Expression: "request.operation == 'CREATE' ? " + annotation("object", v1alpha1.ReaderAccountAnnotation) + " == request.userInfo.username : " +
					"(" + annotation("oldObject", v1alpha1.ReaderAccountAnnotation) + " == request.userInfo.username || variables." + cleanup + " || variables." + hub + ")",
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
			{
				// The hub removes the finalizer from a registration that was stored before this policy was
				// installed.
				Expression: "object == null || (request.operation == 'UPDATE' && variables." + hub + ") || " + bounded,
				Message:    oversized,
				Reason:     ptr.To(metav1.StatusReasonInvalid),
			},
		},
	}
	spec.Validations = append(spec.Validations, mayWatch()...)
	signMessage(&spec, provokedRegistration)
	return spec
}

// watchLeases is a CEL expression: the resource to check with the authorizer.
const watchLeases = "authorizer.group('coordination.k8s.io').resource('leases')"

// mayWatch checks with the authorizer whether the writer of a registration may watch Leases in the namespaces that
// it names. A writer that may not cannot act there, and must not delay the hub. The hub itself only removes the
// finalizer.
func mayWatch() (vs []admissionv1.Validation) {
	exempt := "object == null || (request.operation == 'UPDATE' && variables." + hub + ") || "
	add := func(expression string) {
		vs = append(vs, admissionv1.Validation{Expression: exempt + expression, Message: notWatching, Reason: ptr.To(metav1.StatusReasonForbidden)})
	}
	// RBAC has no namespace "*", so it denies that too. Another authorizer may interpret it differently.
	add("(variables." + claims + ".size() <= " + strconv.Itoa(maxAsked) + " && !variables." + claims + ".exists(n, n == '*')) || variables." + everywhere)
	for first := 0; first < maxAsked; first += perExpression {
		var each []string
		for n := first; n < first+perExpression; n++ {
			each = append(each, fmt.Sprintf("(variables.%s.size() <= %d || %s.namespace(variables.%s[%d]).check('watch').allowed())", claims, n, watchLeases, claims, n))
		}
		add("variables." + claims + ".size() > " + strconv.Itoa(maxAsked) + " || (" + strings.Join(each, " && ") + ") || variables." + everywhere)
	}
	return vs
}

// bounded is a CEL expression: the registration is within the bounds.
var bounded = "(" + strings.Join([]string{
	fmt.Sprintf("(!has(object.metadata.labels) || object.metadata.labels.size() <= %d)", maxLabels),
	fmt.Sprintf("(!has(object.metadata.annotations) || (object.metadata.annotations.size() <= %d && "+
		"object.metadata.annotations.all(k, object.metadata.annotations[k].size() <= (k in ['%s', '%s'] ? %d : %d))))",
		maxAnnotations, v1alpha1.ReaderNamespacesAnnotation, v1alpha1.ReaderReleasedAnnotation, maxList, maxText),
	fmt.Sprintf("(!has(object.metadata.finalizers) || object.metadata.finalizers.size() <= %d)", maxFinalizers),
	"(!has(object.metadata.ownerReferences) || object.metadata.ownerReferences.size() == 0)",
	fmt.Sprintf("variables.%s.size() <= %d", claims, maxClaims),
	fmt.Sprintf("%s.size() <= %d", holder("object"), maxText),
	"!has(object.spec.strategy) && !has(object.spec.preferredHolder)",
	fmt.Sprintf("(!has(object.spec.leaseDurationSeconds) || object.spec.leaseDurationSeconds <= %d)", maxSeconds),
}, " && ") + ")"

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

// registers returns a CEL expression: this Lease has the label of a registration.
func registers(o string) string {
	return "has(" + o + ".metadata.labels) && '" + v1alpha1.ReaderLabel + "' in " + o + ".metadata.labels"
}

// annotation returns a CEL expression: the annotation of this Lease, empty if it has none.
func annotation(o, key string) string {
	return "(has(" + o + ".metadata.annotations) && '" + key + "' in " + o + ".metadata.annotations ? " + o + ".metadata.annotations['" + key + "'] : '')"
}

// holder returns a CEL expression: the holderIdentity of this Lease, empty if it has none.
func holder(o string) string {
	return "(has(" + o + ".spec.holderIdentity) ? " + o + ".spec.holderIdentity : '')"
}
