package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

var (
	// ErrForbidden is wrapped when the member forbids the request: the hub's credentials lack rules of the
	// ClusterRole leasecast-hub-member (config/member).
	ErrForbidden = errors.New("the member forbids it: grant the hub's user there the ClusterRole leasecast-hub-member")
	// ErrUnsupported is wrapped when the member's API server does not serve the kind, which Kubernetes has since
	// 1.30.
	ErrUnsupported = errors.New("the member does not serve ValidatingAdmissionPolicies: it needs Kubernetes 1.30 or later")
	// ErrNotEnforced is wrapped when the member does not enforce the policy, or not yet.
	ErrNotEnforced = errors.New("the policy is not in force")
)

// Ensure writes the policies and their bindings into a member, as Policies returns them, unless they are there
// already. It reports whether it wrote. Call it as often as an edit or a deletion should be repaired. Labels and
// annotations of others stay.
//
// A policy that it wrote is not in force yet: see Verify. A write that collides with another client's is an error;
// the next call repairs it. The error wraps ErrForbidden or ErrUnsupported where they apply.
func Ensure(ctx context.Context, member kubernetes.Interface) (changed bool, err error) {
	for _, p := range Policies() {
		wrote, err := p.Ensure(ctx, member)
		changed = changed || wrote
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// Ensure is the function Ensure for one policy.
func (p Policy) Ensure(ctx context.Context, member kubernetes.Interface) (changed bool, err error) {
	client := member.AdmissionregistrationV1()
	wrotePolicy, err := ensure(ctx, client.ValidatingAdmissionPolicies(), p.Policy,
		func(have *admissionv1.ValidatingAdmissionPolicy) bool {
			same := equality.Semantic.DeepEqual(have.Spec, p.Policy.Spec)
			have.Spec = p.Policy.Spec
			return same
		})
	if err != nil {
		return false, fmt.Errorf("install ValidatingAdmissionPolicy %s: %w", p.Policy.Name, err)
	}
	wroteBinding, err := ensure(ctx, client.ValidatingAdmissionPolicyBindings(), p.Binding,
		func(have *admissionv1.ValidatingAdmissionPolicyBinding) bool {
			same := equality.Semantic.DeepEqual(have.Spec, p.Binding.Spec)
			have.Spec = p.Binding.Spec
			return same
		})
	if err != nil {
		return wrotePolicy, fmt.Errorf("install ValidatingAdmissionPolicyBinding %s: %w", p.Binding.Name, err)
	}
	return wrotePolicy || wroteBinding, nil
}

// store is the common part of the typed clients of both kinds.
type store[T metav1.Object] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
}

// kept is an object that the hub keeps in members.
type kept[T any] interface {
	metav1.Object
	DeepCopy() T
}

// ensure writes the whole spec instead of using server-side apply. An apply would keep what others have added to a
// list in the spec, such as a match condition that exempts everyone. It reports whether it wrote. amend puts the
// wanted spec into the stored object, and reports whether it was there before.
func ensure[T kept[T]](ctx context.Context, in store[T], want T, amend func(have T) (same bool)) (bool, error) {
	have, err := in.Get(ctx, want.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if err := Allowed(ctx); err != nil {
			return false, err
		}
		// The client sets the kind of the object that it sends, and members share want.
		_, err = in.Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
		if apierrors.IsNotFound(err) { // the kind is missing, not the object
			return false, fmt.Errorf("%w (%w)", ErrUnsupported, err)
		}
		return err == nil, orForbidden(err)
	}
	if err != nil {
		return false, orForbidden(err)
	}
	labels, annotations := with(have.GetLabels(), want.GetLabels()), with(have.GetAnnotations(), want.GetAnnotations())
	if amend(have) && maps.Equal(labels, have.GetLabels()) && maps.Equal(annotations, have.GetAnnotations()) {
		return false, nil
	}
	if err := Allowed(ctx); err != nil {
		return false, err
	}
	have.SetLabels(labels)
	have.SetAnnotations(annotations)
	_, err = in.Update(ctx, have, metav1.UpdateOptions{})
	return err == nil, orForbidden(err)
}

// with returns the present labels or annotations, overridden by ours.
func with(there, ours map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, there)
	maps.Copy(all, ours)
	return all
}

// Verify returns nil if the member's API server rejects forbidden writes by exactly the policies that Policies
// returns. For each policy it sends a dry run of an incomplete Lease in the namespace default, which every cluster
// has. Nothing is stored, whatever the answer. The member is guarded only where every policy is enforced.
//
// It sends each request once and does not wait: a policy takes about a second to take effect. The error wraps
// ErrNotEnforced when a write was accepted, or was rejected for another reason. It wraps ErrForbidden when a policy
// is in force but does not recognize the caller as the hub. It wraps neither when no answer shows the state.
func Verify(ctx context.Context, member kubernetes.Interface) error {
	for _, p := range Policies() {
		if err := p.Verify(ctx, member, metav1.NamespaceDefault); err != nil {
			return err
		}
	}
	return nil
}

// Verify is the function Verify for one policy. It sends the probe in this namespace, which the policy must cover.
func (p Policy) Verify(ctx context.Context, member kubernetes.Interface, namespace string) error {
	if err := p.probed(ctx, member, namespace); err != nil {
		return fmt.Errorf("verify ValidatingAdmissionPolicy %s: %w", p.Policy.Name, err)
	}
	return nil
}

func (p Policy) probed(ctx context.Context, member kubernetes.Interface, namespace string) error {
	// A copy: encoding writes to it, and other goroutines send it at the same time.
	_, err := member.CoordinationV1().Leases(namespace).
		Create(ctx, p.probe.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return fmt.Errorf("a Lease that nobody may create was let through: %w", ErrNotEnforced)
	case strings.Contains(err.Error(), p.provoked), p.provokedToo != "" && strings.Contains(err.Error(), p.provokedToo):
		return nil
	case RefusesWriter(err.Error()):
		return fmt.Errorf("%w (%w)", ErrForbidden, err)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%w: a Lease that nobody may create was not refused by it (%w)", ErrNotEnforced, err)
	default:
		return err
	}
}

// RefusesWriter reports whether a member's answer rejects a Lease because its writer lacks the right of the hub.
func RefusesWriter(answer string) bool { return strings.Contains(answer, notTheHub) }

// Remove deletes the bindings and the policies from a member. A missing one counts as removed. Do not call it while
// a hub, this or another one, has Leases in the member. The error wraps ErrForbidden where it applies.
func Remove(ctx context.Context, member kubernetes.Interface) error {
	for _, p := range Policies() {
		if err := removeBinding(ctx, member, p.Binding.Name); err != nil {
			return err
		}
		if err := removePolicy(ctx, member, p.Policy.Name); err != nil {
			return err
		}
	}
	return nil
}

func removeBinding(ctx context.Context, member kubernetes.Interface, name string) error {
	if err := Allowed(ctx); err != nil {
		return err
	}
	err := member.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove ValidatingAdmissionPolicyBinding %s: %w", name, orForbidden(err))
	}
	return nil
}

func removePolicy(ctx context.Context, member kubernetes.Interface, name string) error {
	if err := Allowed(ctx); err != nil {
		return err
	}
	err := member.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove ValidatingAdmissionPolicy %s: %w", name, orForbidden(err))
	}
	return nil
}

// orForbidden wraps ErrForbidden around a member's 403.
func orForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w (%w)", ErrForbidden, err)
	}
	return err
}
