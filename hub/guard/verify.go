package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

var (
	// ErrForbidden is wrapped when the member forbids the request: the hub's credentials lack rules of the
	// ClusterRole leasecast-hub-member (config/member).
	ErrForbidden = errors.New("the cluster forbids it: apply config/member there, and config/fencing for fences")
	// ErrUnsupported is wrapped when the member's API server does not serve the kind, which Kubernetes has since
	// 1.30.
	ErrUnsupported = errors.New("the cluster serves no ValidatingAdmissionPolicies: it needs Kubernetes 1.30 or later")
	// ErrNotEnforced is wrapped when the member does not enforce the policy, or not yet.
	ErrNotEnforced = errors.New("the cluster does not refuse yet what it must")
	// ErrMayNotWrite is returned where nothing was sent.
	ErrMayNotWrite = errors.New("this hub may not write to the cluster any more")
)

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
	return p.judge(err)
}

// judge returns what the answer to a probe shows.
func (p Policy) judge(err error) error {
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

// Verify returns nil if the fence is in force in a namespace. Then its gate or one of its walls rejects a probe there,
// or warns of it if the fence only warns. The fence of a lock is in force in the lock's namespace. The error is as that
// of Policy.Verify, and does not name the fence.
func (f Fence) Verify(ctx context.Context, member kubernetes.Interface, namespace string) (missing error) {
	for _, p := range append([]Policy{f.gate}, f.walls...) {
		probed := p.probed
		if f.warns {
			probed = p.warned
		}
		err := probed(ctx, member, namespace)
		if !errors.Is(err, ErrNotEnforced) {
			return err
		}
		missing = cmp.Or(missing, err)
	}
	return missing
}

// warned is probed for a policy that only warns.
func (p Policy) warned(ctx context.Context, member kubernetes.Interface, namespace string) error {
	answer := member.CoordinationV1().RESTClient().Post().Namespace(namespace).Resource("leases").
		VersionedParams(&metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, scheme.ParameterCodec).
		Body(p.probe.DeepCopy()).Do(ctx)
	for _, w := range answer.Warnings() {
		if strings.Contains(w.Text, p.Policy.Name) {
			return nil
		}
	}
	return p.judge(answer.Error())
}

// RefusesWriter reports whether a member's answer rejects a Lease because its writer lacks the right of the hub.
func RefusesWriter(answer string) bool {
	return strings.Contains(answer, Policies()[0].Policy.Spec.Validations[0].Message)
}

// orForbidden wraps ErrForbidden around a member's 403.
func orForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w (%w)", ErrForbidden, err)
	}
	return err
}
