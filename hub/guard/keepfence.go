package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// askedAtOnce is in how many namespaces of a member it is asked at a time whether a fence is in force.
const askedAtOnce = 16

// FenceState is the result of the last look at a fence in a member.
type FenceState struct {
	// InForce are the namespaces in which it was seen to refuse.
	InForce map[string]bool
	// Settled says that nothing is on its way: where there is a Lease, it is the Lease that counts.
	Settled bool
	// Mended says that the fence was not as it was left, and that its namespaces are not the reason.
	Mended bool
}

// Keep puts a fence in place, and returns its state. It gets the active namespaces that the fence covers. The
// value tells whether a namespace has its Lease.
//
// What is stored says where the gate was seen in force: there is no wall. Every step keeps one of the two in force. A
// namespace gets the gate when it has a Lease, and loses the wall when the gate was seen to refuse there. It loses the
// gate when it is going away: whoever cleans it up must not be asked for a Lease.
//
// Only if that is due, or the gate was not as it has to be, it asks again where it was in force before.
//
// A fence that warns refuses nothing, so it is in force nowhere. With an error only Mended is known. The error wraps
// ErrForbidden or ErrUnsupported where they apply.
func (f Fence) Keep(ctx context.Context, member kubernetes.Interface, active map[string]bool, due bool) (s FenceState, err error) {
	anchored, err := anchor().Ensure(ctx, member)
	if err != nil {
		return s, err
	}
	if f.lock != nil {
		return f.keepLock(ctx, member, active, anchored)
	}
	gated, unwalled, err := f.stored(ctx, member)
	if err != nil {
		return s, err
	}
	gates := withGate(active, gated)
	changed, err := f.keepGate(ctx, member, gates)
	if err != nil {
		return s, err
	}
	if due || changed {
		unwalled = nil
	}
	seen, err := f.seenAtGate(ctx, member, gates, unwalled)
	if err != nil {
		return s, err
	}
	rewalled, err := f.wallBut(seen).Ensure(ctx, member)
	if err != nil {
		return s, err
	}
	s = FenceState{InForce: map[string]bool{}, Settled: len(seen) == len(gates)}
	s.Mended = anchored || changed || rewalled && s.Settled
	err = f.seeWall(ctx, member, active, seen, &s)
	return s, err
}

// keepLock is Keep for the fence of a lock. It has no wall: where there is no Lease, it refuses the lock, and no more.
func (f Fence) keepLock(ctx context.Context, member kubernetes.Interface, active map[string]bool, anchored bool) (s FenceState, err error) {
	changed, err := f.gate.Ensure(ctx, member)
	if err != nil {
		return s, err
	}
	s = FenceState{InForce: map[string]bool{}, Settled: true, Mended: anchored || changed}
	if f.warns {
		return s, nil
	}
	for ns := range active { // one at most: see Fences
		if s.InForce[ns], err = f.gate.refuses(ctx, member, ns); err != nil {
			return s, err
		}
		s.Settled = s.InForce[ns]
	}
	return s, nil
}

// withGate are the active namespaces that get the gate: those that have a Lease, or have had one.
func withGate(active map[string]bool, gated []string) (gates []string) {
	for _, ns := range slices.Sorted(maps.Keys(active)) {
		if active[ns] || slices.Contains(gated, ns) {
			gates = append(gates, ns)
		}
	}
	return gates
}

// seenAtGate returns where the gate is in force, or is in place if it warns. It does not ask in those that are known.
func (f Fence) seenAtGate(ctx context.Context, member kubernetes.Interface, gates, known []string) (seen []string, err error) {
	if f.warns {
		return gates, nil
	}
	return f.gate.seenIn(ctx, member, gates, known)
}

// seenIn returns the namespaces in which the policy is in force. It does not ask in those where that is known.
func (p Policy) seenIn(ctx context.Context, member kubernetes.Interface, namespaces, known []string) (seen []string, err error) {
	inForce := make([]bool, len(namespaces))
	asked, ctx := errgroup.WithContext(ctx)
	asked.SetLimit(askedAtOnce)
	for i, ns := range namespaces {
		if inForce[i] = slices.Contains(known, ns); inForce[i] {
			continue
		}
		asked.Go(func() (err error) {
			inForce[i], err = p.refuses(ctx, member, ns)
			return err
		})
	}
	if err := asked.Wait(); err != nil {
		return nil, err
	}
	for i, ns := range namespaces {
		if inForce[i] {
			seen = append(seen, ns)
		}
	}
	return seen, nil
}

// seeWall completes the state of a fence that was seen at the gate of some namespaces. It asks in the others.
func (f Fence) seeWall(ctx context.Context, member kubernetes.Interface, active map[string]bool, seen []string, s *FenceState) error {
	if f.warns {
		return nil
	}
	namespaces := slices.Sorted(maps.Keys(active))
	seen, err := f.wall.seenIn(ctx, member, namespaces, seen)
	if err != nil {
		return err
	}
	for _, ns := range namespaces {
		s.InForce[ns] = slices.Contains(seen, ns)
		s.Settled = s.Settled && s.InForce[ns]
	}
	return nil
}

// refuses reports whether the policy is in force in a namespace.
func (p Policy) refuses(ctx context.Context, member kubernetes.Interface, namespace string) (bool, error) {
	err := p.Verify(ctx, member, namespace)
	if errors.Is(err, ErrNotEnforced) {
		return false, nil
	}
	return err == nil, err
}

// keepGate puts the gate into these namespaces only.
func (f Fence) keepGate(ctx context.Context, member kubernetes.Interface, namespaces []string) (changed bool, err error) {
	if len(namespaces) == 0 {
		return false, removeBinding(ctx, member, f.gate.Binding.Name)
	}
	return f.gateIn(namespaces).Ensure(ctx, member)
}

// stored returns the namespaces that have the gate, and those that have no wall.
func (f Fence) stored(ctx context.Context, member kubernetes.Interface) (gated, unwalled []string, err error) {
	bindings := member.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	for name, of := range map[string]struct {
		operator metav1.LabelSelectorOperator
		to       *[]string
	}{
		f.gate.Binding.Name: {metav1.LabelSelectorOpIn, &gated}, f.wall.Binding.Name: {metav1.LabelSelectorOpNotIn, &unwalled},
	} {
		b, err := bindings.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read ValidatingAdmissionPolicyBinding %s: %w", name, orForbidden(err))
		}
		if b.Spec.MatchResources == nil || b.Spec.MatchResources.NamespaceSelector == nil {
			continue
		}
		for _, e := range b.Spec.MatchResources.NamespaceSelector.MatchExpressions {
			if e.Key == corev1.LabelMetadataName && e.Operator == of.operator {
				*of.to = append(*of.to, e.Values...)
			}
		}
	}
	return gated, unwalled, nil
}
