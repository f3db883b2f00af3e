package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
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

// Keep puts a fence in place, and returns its state. It gets the active namespaces that the fence covers, and those that
// it does not cover, but goes on with where it is: another fence is not in force there yet. The values tell whether a
// namespace has its Lease.
//
// What is stored says where the gate was seen in force: there is no wall. Every step keeps one of the two in force. A
// namespace gets the gate when it has a Lease, and loses the wall when the gate was seen to refuse there. It loses the
// gate when it is going away: whoever cleans it up must not be asked for a Lease.
//
// Only if that is due, or the gate was not as it has to be, it asks again where it was in force before.
//
// A fence that warns refuses nothing, so it is in force nowhere. With an error only Mended is known. The error wraps
// ErrForbidden or ErrUnsupported where they apply. Before the first fence there must be the anchor: see [Anchor].
func (f Fence) Keep(ctx context.Context, member kubernetes.Interface, active, open map[string]bool, due bool) (s FenceState, err error) {
	if f.lock != nil {
		return f.keepLock(ctx, member, active)
	}
	is, err := f.stored(ctx, member)
	if err != nil {
		return s, err
	}
	gates := is.withGate(active, open)
	changed, err := f.keepGate(ctx, member, gates)
	if err != nil {
		return s, err
	}
	known := is.unwalled
	if due || changed {
		known = nil
	}
	seen, err := f.seenAtGate(ctx, member, gates, known)
	if err != nil {
		return s, err
	}
	rewalled := false
	for i, w := range f.walls {
		wrote, err := wallBut(w, is.leftOut(i, f.lost, open), seen).Ensure(ctx, member)
		if err != nil {
			return s, err
		}
		rewalled = rewalled || wrote
	}
	s = FenceState{InForce: map[string]bool{}, Settled: len(seen) == len(gates)}
	s.Mended = changed || rewalled && s.Settled
	err = f.seeWalls(ctx, member, active, seen, &s)
	return s, err
}

// keepLock is Keep for the fence of a lock. It has no wall: where there is no Lease, it refuses the lock, and no more. So it
// is in force also where the policy's namespace does not exist, if the lock is in another one.
func (f Fence) keepLock(ctx context.Context, member kubernetes.Interface, active map[string]bool) (s FenceState, err error) {
	changed, err := f.gate.Ensure(ctx, member)
	if err != nil {
		return s, err
	}
	s = FenceState{InForce: map[string]bool{}, Settled: true, Mended: changed}
	if f.warns {
		return s, nil
	}
	own := f.names[0] // the only one: see Fences
	if _, isActive := active[own]; !isActive && f.lock.Namespace == own {
		return s, nil // nothing can be asked for there
	}
	s.Settled, err = f.gate.refuses(ctx, member, f.lock.Namespace)
	s.InForce[own] = s.Settled
	return s, err
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

// seeWalls completes the state of a fence that was seen at the gate of some namespaces. It asks in the others.
func (f Fence) seeWalls(ctx context.Context, member kubernetes.Interface, active map[string]bool, seen []string, s *FenceState) error {
	if f.warns {
		return nil
	}
	for i, w := range f.walls {
		var behind []string // this wall, or its gate
		for _, ns := range slices.Sorted(maps.Keys(active)) {
			if named := slices.Contains(f.names, ns); named && i == 0 || !named && i == len(f.walls)-1 {
				behind = append(behind, ns)
			}
		}
		inForce, err := w.seenIn(ctx, member, behind, seen)
		if err != nil {
			return err
		}
		for _, ns := range behind {
			s.InForce[ns] = slices.Contains(inForce, ns)
			s.Settled = s.Settled && s.InForce[ns]
		}
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

// storedFence is what a member stores of a fence.
type storedFence struct {
	gated    []string // the namespaces that have the gate
	unwalled []string // those that have no wall, because the gate was seen in force
	walls    []*admissionv1.ValidatingAdmissionPolicyBinding
}

func (f Fence) stored(ctx context.Context, member kubernetes.Interface) (is storedFence, err error) {
	bindings := member.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	for i, name := range f.Names() {
		b, err := bindings.Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return is, fmt.Errorf("read ValidatingAdmissionPolicyBinding %s: %w", name, orForbidden(err))
		}
		if err != nil {
			b = nil
		}
		if i == 0 {
			is.gated = fromLast(b, 0, metav1.LabelSelectorOpIn)
			continue
		}
		is.walls = append(is.walls, b)
		is.unwalled = append(is.unwalled, fromLast(b, 0, metav1.LabelSelectorOpNotIn)...)
	}
	return is, nil
}

// fromLast are the namespaces that the last expression of a binding names, or one before it, if it has this operator.
func fromLast(b *admissionv1.ValidatingAdmissionPolicyBinding, before int, o metav1.LabelSelectorOperator) []string {
	if b == nil || b.Spec.MatchResources == nil || b.Spec.MatchResources.NamespaceSelector == nil {
		return nil
	}
	expressions := b.Spec.MatchResources.NamespaceSelector.MatchExpressions
	i := len(expressions) - 1 - before
	if i < 0 || expressions[i].Key != corev1.LabelMetadataName || expressions[i].Operator != o {
		return nil
	}
	return expressions[i].Values
}

// withGate are the namespaces that get the gate: the active ones that have a Lease, or have had one. In an open one it
// stays.
func (is storedFence) withGate(active, open map[string]bool) (gates []string) {
	for ns, leased := range active {
		if leased || slices.Contains(is.gated, ns) {
			gates = append(gates, ns)
		}
	}
	for ns, leased := range open {
		if leased && slices.Contains(is.gated, ns) {
			gates = append(gates, ns)
		}
	}
	slices.Sort(gates)
	return gates
}

// leftOut are the lost namespaces that a wall leaves out. In an open one it stays.
func (is storedFence) leftOut(wall int, lost []string, open map[string]bool) (out []string) {
	b := is.walls[wall]
	before := fromLast(b, 1, metav1.LabelSelectorOpNotIn)
	for _, ns := range lost {
		if _, isOpen := open[ns]; !isOpen || b == nil || slices.Contains(before, ns) {
			out = append(out, ns)
		}
	}
	return out
}
