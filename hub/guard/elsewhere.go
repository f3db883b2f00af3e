package guard

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// A policy fences what is in its own namespaces. A lock or an account in another namespace is fenced only if an
// administrator of the member has labelled that Namespace. The authors of policies on the hub have no rights there.

// NotAllowedError names the namespaces in which a member's administrator has not allowed fences from outside, or
// that do not exist.
type NotAllowedError struct {
	Namespaces []string
}

func (e NotAllowedError) Error() string {
	return "an administrator of the cluster has to allow what is fenced outside the policy's namespaces: " +
		"kubectl label namespace " + strings.Join(e.Namespaces, " ") + " " +
		v1alpha1.FencingLabel + "=" + v1alpha1.FencingAllowed
}

// DeniedIn returns the namespaces of a NotAllowedError in err, or nil.
func DeniedIn(err error) []string {
	var denied NotAllowedError
	errors.As(err, &denied)
	return denied.Namespaces
}

// Denied returns a [NotAllowedError] if the fence covers a lock or an account outside the policy's namespaces and
// the member does not allow that. namespaces are all namespaces of the member.
func (f Fence) Denied(namespaces []corev1.Namespace) error {
	denied := slices.Clone(f.elsewhere)
	for i := range namespaces {
		if len(denied) == 0 {
			break
		}
		ns := &namespaces[i]
		if ns.Labels[v1alpha1.FencingLabel] == v1alpha1.FencingAllowed || f.Selects(ns.Name, ns.Labels) {
			denied = slices.DeleteFunc(denied, func(name string) bool { return name == ns.Name })
		}
	}
	if len(denied) == 0 {
		return nil
	}
	return NotAllowedError{denied}
}

// whereAllowed selects the namespace of a lock. If it is not the policy's own, the member's API server also
// requires the label. So a lock is released from the fence as soon as the label is removed, with or without a hub.
func whereAllowed(namespace, own string) *metav1.LabelSelector {
	s := in(namespace)
	if namespace != own {
		label := requirement(v1alpha1.FencingLabel, metav1.LabelSelectorOpIn, v1alpha1.FencingAllowed)
		s.MatchExpressions = append(s.MatchExpressions, label)
	}
	return s
}

// splitWrites separates the accounts that may be outside the policy's namespaces from all other writers. The member
// may allow one of the two fences and not the other.
func splitWrites(o *v1alpha1.LeadershipPolicy) (own, elsewhere []v1alpha1.WriteFence) {
	for _, w := range o.Spec.Fencing.Writes {
		here, there := w, w
		here.ServiceAccounts, there.ServiceAccounts = nil, nil
		for _, a := range w.ServiceAccounts {
			if a.Namespace == "" || slices.Contains(o.Spec.Namespaces.Names, a.Namespace) {
				here.ServiceAccounts = append(here.ServiceAccounts, a)
			} else {
				there.ServiceAccounts = append(there.ServiceAccounts, a)
			}
		}
		if len(there.ServiceAccounts) > 0 {
			elsewhere = append(elsewhere, there)
		}
		if len(there.ServiceAccounts) == 0 || len(here.ServiceAccounts) > 0 {
			own = append(own, here)
		}
	}
	return own, elsewhere
}

// accountsOf returns the accounts of writes, and their namespaces, in order and without duplicates.
func accountsOf(writes []v1alpha1.WriteFence) (all []v1alpha1.FencedServiceAccount, namespaces []string) {
	for _, w := range writes {
		all = append(all, w.ServiceAccounts...)
	}
	for _, a := range all {
		namespaces = append(namespaces, a.Namespace)
	}
	slices.Sort(namespaces)
	return all, slices.Compact(namespaces)
}
