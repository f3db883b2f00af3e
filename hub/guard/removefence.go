package guard

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// Kept is what RemoveFences keeps in a member.
type Kept struct {
	// Names are the names of stored objects.
	Names []string
	// Policies are the names of policies whose earlier fences stay.
	Policies []string
	// Leases are the hub's Leases in the active namespaces of the member. A fence that stays evaluates only these:
	// where a Lease is missing, an API server rejects every request.
	Leases map[types.NamespacedName]bool
}

// RemoveFences removes the fences that this hub keeps in a member for a fleet, except for these. Another hub's
// fences stay.
func RemoveFences(ctx context.Context, member kubernetes.Interface, hub, fleet string, but Kept) error {
	ours := metav1.ListOptions{LabelSelector: v1alpha1.FenceLabel + "=" + fleet}
	isWanted := func(o metav1.Object) bool {
		return o.GetAnnotations()[v1alpha1.HubAnnotation] != hub || slices.Contains(but.Names, o.GetName())
	}
	client := member.AdmissionregistrationV1()
	bindings, err := client.ValidatingAdmissionPolicyBindings().List(ctx, ours)
	if apierrors.IsNotFound(err) { // the kind: a member without fences
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the bindings of fences: %w", orForbidden(err))
	}
	stay, led := map[string]bool{}, map[string]bool{}
	for l := range but.Leases {
		led[l.Namespace] = true
	}
	for _, walls := range []bool{true, false} { // a namespace gets the wall before it loses the gate
		for i := range bindings.Items {
			b := &bindings.Items[i]
			if isWanted(b) || walls != (b.Spec.ParamRef == nil) {
				continue
			}
			if stay[b.Name], err = but.keep(ctx, member, b, led); err != nil {
				return err
			}
		}
	}
	policies, err := client.ValidatingAdmissionPolicies().List(ctx, ours)
	if err != nil {
		return fmt.Errorf("list the fences: %w", orForbidden(err))
	}
	for i := range policies.Items {
		if p := &policies.Items[i]; !isWanted(p) && !stay[p.Name] {
			if err := removePolicy(ctx, member, p.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep keeps the binding of a fence that no policy asks for, or deletes it. led are the namespaces of the Leases.
func (k Kept) keep(ctx context.Context, member kubernetes.Interface, b *admissionv1.ValidatingAdmissionPolicyBinding, led map[string]bool) (stays bool, err error) {
	stays, changed := k.narrow(b, led)
	switch {
	case !stays:
		return false, removeBinding(ctx, member, b.Name)
	case changed:
		if err := Allowed(ctx); err != nil {
			return true, err
		}
		_, err = member.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Update(ctx, b, metav1.UpdateOptions{})
		if err != nil {
			err = fmt.Errorf("update ValidatingAdmissionPolicyBinding %s: %w", b.Name, orForbidden(err))
		}
	}
	return true, err
}

// narrow removes namespaces without the Lease from the gate of a fence, so that the wall covers them. It reports
// whether the binding stays. The fence of a lock stays unchanged: where there is no Lease, nobody may take the
// lock.
func (k Kept) narrow(b *admissionv1.ValidatingAdmissionPolicyBinding, led map[string]bool) (left, changed bool) {
	gate := b.Spec.ParamRef
	switch {
	case !slices.Contains(k.Policies, b.Annotations[v1alpha1.PolicyAnnotation]):
		return false, false
	case gate != nil && gate.Namespace != "":
		return true, false
	case b.Spec.MatchResources == nil, b.Spec.MatchResources.NamespaceSelector == nil:
		return gate == nil, false // an edit: a gate would reject everyone in every namespace without a Lease
	}
	left = gate == nil
	expressions := b.Spec.MatchResources.NamespaceSelector.MatchExpressions
	for i := range expressions {
		e := &expressions[i]
		before := len(e.Values)
		switch {
		case e.Key != corev1.LabelMetadataName:
		case gate != nil && e.Operator == metav1.LabelSelectorOpIn:
			e.Values = slices.DeleteFunc(e.Values, func(ns string) bool { return !k.Leases[types.NamespacedName{Namespace: ns, Name: gate.Name}] })
			left = len(e.Values) > 0
		case gate == nil && i == len(expressions)-1: // see wallBut; other expressions are the policy's own
			e.Values = slices.DeleteFunc(e.Values, func(ns string) bool { return !v1alpha1.NeverManaged(ns) && !led[ns] })
		}
		changed = changed || len(e.Values) < before
	}
	return left, changed
}
