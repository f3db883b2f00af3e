package guard

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// Kept is what RemoveFences leaves in a member.
type Kept struct {
	// Names are of what the member stores.
	Names []string
	// Policies are those whose earlier fences stay, each in these namespaces only. In others nobody may write the Lease
	// that a fence asks, and then it would refuse everybody.
	Policies map[string]map[string]bool
}

// RemoveFences removes the fences that this hub keeps in a member for a fleet, but for these. One that another hub keeps
// stays.
func RemoveFences(ctx context.Context, member kubernetes.Interface, hub, fleet string, but Kept) error {
	ours := metav1.ListOptions{LabelSelector: v1alpha1.FenceLabel + "=" + fleet}
	isWanted := func(o metav1.Object) bool {
		return o.GetAnnotations()[v1alpha1.HubAnnotation] != hub || slices.Contains(but.Names, o.GetName())
	}
	client := member.AdmissionregistrationV1()
	bindings, err := client.ValidatingAdmissionPolicyBindings().List(ctx, ours)
	if apierrors.IsNotFound(err) { // the kind: a member that has no fences
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the bindings of fences: %w", orForbidden(err))
	}
	stay := map[string]bool{}
	for i := range bindings.Items {
		b := &bindings.Items[i]
		if isWanted(b) {
			continue
		}
		if stay[b.Name], err = keepIn(ctx, member, b, but.Policies[b.Annotations[v1alpha1.PolicyAnnotation]]); err != nil {
			return err
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

// keepIn keeps the binding of a fence that nobody asks for, or deletes it. It takes a gate out of all but these namespaces.
func keepIn(ctx context.Context, member kubernetes.Interface, b *admissionv1.ValidatingAdmissionPolicyBinding, namespaces map[string]bool) (stays bool, err error) {
	stays, changed := narrow(b, namespaces)
	switch {
	case !stays:
		return false, removeBinding(ctx, member, b.Name)
	case changed:
		_, err = member.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Update(ctx, b, metav1.UpdateOptions{})
		if err != nil {
			err = fmt.Errorf("update ValidatingAdmissionPolicyBinding %s: %w", b.Name, orForbidden(err))
		}
	}
	return true, err
}

// narrow takes out of the gate of a fence all namespaces but these, and reports whether any is left. A wall stays as it is:
// it asks no Lease, and lets those through that clean up. So does the fence of a lock: where the namespace of its Lease is
// missing, nobody may take the lock.
func narrow(b *admissionv1.ValidatingAdmissionPolicyBinding, to map[string]bool) (left, changed bool) {
	switch p := b.Spec.ParamRef; {
	case to == nil:
		return false, false
	case p == nil, p.Namespace != "":
		return true, false
	case b.Spec.MatchResources == nil, b.Spec.MatchResources.NamespaceSelector == nil:
		return false, false // an edit: without the Lease it refuses everybody in every namespace
	}
	expressions := b.Spec.MatchResources.NamespaceSelector.MatchExpressions
	for i := range expressions {
		if e := &expressions[i]; e.Key == corev1.LabelMetadataName && e.Operator == metav1.LabelSelectorOpIn {
			before := len(e.Values)
			e.Values = slices.DeleteFunc(e.Values, func(ns string) bool { return !to[ns] })
			left, changed = len(e.Values) > 0, len(e.Values) < before
		}
	}
	return left, changed
}
