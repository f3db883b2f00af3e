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

// askedAtOnce is in how many namespaces of a member a fence is probed concurrently.
const askedAtOnce = 16

// FenceState is the result of the last check of a fence in a member.
type FenceState struct {
	// InForce holds the namespaces in which the fence was checked. The value is true where it was seen to reject.
	InForce map[string]bool
	// Settled: no change is pending. Where there is a Lease, the gate decides by it.
	Settled bool
	// Mended: the fence was not as it was left, and its namespaces are not the reason.
	Mended bool
}

// Keep installs a fence, and returns its state. active are the active namespaces that the fence covers. open are
// namespaces that it does not cover but must keep, because another fence is not in force there yet. The values are
// true where a namespace has its Lease.
//
// The stored bindings show where the gate was seen in force: there is no wall. Every step keeps one of the two in
// force. A namespace gets the gate when it has a Lease, and loses the wall when the gate was seen to reject there.
// It loses the gate when it terminates, because its cleanup must not depend on a Lease.
//
// Namespaces where the gate was in force are probed again only if due is true, or if the gate had changed.
//
// A fence that warns rejects nothing, so it is in force nowhere. With an error only Mended is known. The error
// wraps ErrForbidden or ErrUnsupported where they apply. The anchor must be installed before the first fence: see
// [Anchor].
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

// keepLock is Keep for the fence of a lock, which has no wall. Where there is no Lease, the gate rejects the lock
// and nothing else. So it is in force also where the policy's namespace does not exist, if the lock is in another
// namespace.
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
		return s, nil // nothing can be requested there
	}
	s.Settled, err = f.gate.refuses(ctx, member, f.lock.Namespace)
	s.InForce[own] = s.Settled
	return s, err
}

// seenAtGate returns the namespaces where the gate is in force or, if the fence warns, installed. It does not probe
// the known ones.
func (f Fence) seenAtGate(ctx context.Context, member kubernetes.Interface, gates, known []string) (seen []string, err error) {
	if f.warns {
		return gates, nil
	}
	return f.gate.seenIn(ctx, member, gates, known)
}

// seenIn returns the namespaces in which the policy is in force. It does not probe those in known.
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

// seeWalls completes the state of a fence whose gate was seen in force in some namespaces. It probes the walls of
// the others.
func (f Fence) seeWalls(ctx context.Context, member kubernetes.Interface, active map[string]bool, seen []string, s *FenceState) error {
	if f.warns {
		return nil
	}
	for i, w := range f.walls {
		var behind []string // namespaces of this wall, or of its gate
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

// keepGate installs the gate in these namespaces only.
func (f Fence) keepGate(ctx context.Context, member kubernetes.Interface, namespaces []string) (changed bool, err error) {
	if len(namespaces) == 0 {
		return false, removeBinding(ctx, member, f.gate.Binding.Name)
	}
	return f.gateIn(namespaces).Ensure(ctx, member)
}

// storedFence is the part of a fence that a member stores.
type storedFence struct {
	gated    []string // the namespaces that have the gate
	unwalled []string // namespaces without a wall, because the gate was seen in force
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

// fromLast returns the namespaces in the last expression of a binding's selector, or in one before it, if that has
// this operator.
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

// withGate returns the namespaces that get the gate: the active ones that have a Lease, or already have the gate.
// Open ones keep the gate while they have a Lease.
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

// leftOut returns the lost namespaces that a wall excludes. In an open one the wall stays.
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
