package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

var (
	// ErrForbidden is wrapped when the member does not let the hub do this: its credentials
	// lack rules of the ClusterRole leasecast-hub-member (config/member).
	ErrForbidden = errors.New("the member forbids it: grant the hub's user there the ClusterRole leasecast-hub-member")
	// ErrUnsupported is wrapped when the member's API server does not know the kind, which
	// Kubernetes has since 1.30.
	ErrUnsupported = errors.New("the member does not serve ValidatingAdmissionPolicies: it needs Kubernetes 1.30 or later")
	// ErrNotStanding is wrapped when the member does not enforce the policy, or not yet.
	ErrNotStanding = errors.New("the policy is not in force")
)

// Ensure writes the policy and its binding into a member unless they are there
// already, as Objects returns them, and reports whether it wrote. It reads both
// objects, so it may be called as often as an edit or a deletion should be
// repaired. Labels and annotations of others stay.
//
// What it wrote is not in force yet: see Verify. A write that collides with
// somebody else's is an error and is made good by the next call. The error
// wraps ErrForbidden or ErrUnsupported where they apply.
func Ensure(ctx context.Context, member kubernetes.Interface) (changed bool, err error) {
	client := member.AdmissionregistrationV1()
	policy, binding := Objects()
	wrotePolicy, err := ensure(ctx, client.ValidatingAdmissionPolicies(), policy,
		func(have *admissionv1.ValidatingAdmissionPolicy) bool {
			same := equality.Semantic.DeepEqual(have.Spec, policy.Spec)
			have.Spec = policy.Spec
			return same
		})
	if err != nil {
		return false, fmt.Errorf("install ValidatingAdmissionPolicy %s: %w", Name, err)
	}
	wroteBinding, err := ensure(ctx, client.ValidatingAdmissionPolicyBindings(), binding,
		func(have *admissionv1.ValidatingAdmissionPolicyBinding) bool {
			same := equality.Semantic.DeepEqual(have.Spec, binding.Spec)
			have.Spec = binding.Spec
			return same
		})
	if err != nil {
		return wrotePolicy, fmt.Errorf("install ValidatingAdmissionPolicyBinding %s: %w", Name, err)
	}
	return wrotePolicy || wroteBinding, nil
}

// store is what the typed clients of both kinds have in common.
type store[T metav1.Object] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
}

// ensure reports whether it wrote. amend puts the wanted spec into what is stored and
// reports whether it was there before.
func ensure[T metav1.Object](ctx context.Context, in store[T], want T, amend func(have T) (same bool)) (bool, error) {
	have, err := in.Get(ctx, want.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = in.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) { // not the object: the kind
			return false, fmt.Errorf("%w (%w)", ErrUnsupported, err)
		}
		return err == nil, orForbidden(err)
	}
	if err != nil {
		return false, orForbidden(err)
	}
	labels := maps.Clone(have.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, want.GetLabels())
	if amend(have) && maps.Equal(labels, have.GetLabels()) {
		return false, nil
	}
	have.SetLabels(labels)
	_, err = in.Update(ctx, have, metav1.UpdateOptions{})
	return err == nil, orForbidden(err)
}

// Verify returns nil if the member's API server refuses, by exactly the policy that
// Objects returns, a write that nobody may do: it asks for a dry run of an
// incomplete copy in the namespace default, which every cluster has. Nothing is
// stored, whatever the answer.
//
// It asks once and does not wait: a policy takes about a second to come into force.
// The error wraps ErrNotStanding when the write was let through or was refused for another
// reason, and ErrForbidden when the policy is in force but does not take the
// caller for the hub. It wraps neither when there was no answer that tells.
func Verify(ctx context.Context, member kubernetes.Interface) error {
	probe := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault,
		Name:      "leasecast-guard-probe",
		Labels:    map[string]string{v1alpha1.ManagedLabel: "true"},
	}}
	_, err := member.CoordinationV1().Leases(probe.Namespace).
		Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	policy, _ := Objects()
	switch {
	case err == nil:
		return fmt.Errorf("verify ValidatingAdmissionPolicy %s: an incomplete copy was let through: %w", Name, ErrNotStanding)
	case strings.Contains(err.Error(), policy.Spec.Validations[provoked].Message):
		return nil
	case strings.Contains(err.Error(), notTheHub):
		return fmt.Errorf("verify ValidatingAdmissionPolicy %s: %w (%w)", Name, ErrForbidden, err)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("verify ValidatingAdmissionPolicy %s: %w: an incomplete copy was not refused by it (%w)", Name, ErrNotStanding, err)
	default:
		return fmt.Errorf("verify ValidatingAdmissionPolicy %s: %w", Name, err)
	}
}

// Remove deletes the binding and the policy from a member; what is not there is
// removed already. It must not be called while a hub, this or another one, has
// copies in the member. The error wraps ErrForbidden where it applies.
func Remove(ctx context.Context, member kubernetes.Interface) error {
	client := member.AdmissionregistrationV1()
	err := client.ValidatingAdmissionPolicyBindings().Delete(ctx, Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove ValidatingAdmissionPolicyBinding %s: %w", Name, orForbidden(err))
	}
	err = client.ValidatingAdmissionPolicies().Delete(ctx, Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove ValidatingAdmissionPolicy %s: %w", Name, orForbidden(err))
	}
	return nil
}

// orForbidden adds ErrForbidden to what the member forbade.
func orForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w (%w)", ErrForbidden, err)
	}
	return err
}
