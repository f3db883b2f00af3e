package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var (
	// ErrUnchecked means that a guard or a fence was not checked yet.
	ErrUnchecked = errors.New("it has not been checked yet")
	// ErrStored wraps ErrUnchecked. It means that the fence was not checked yet, but the member stores it.
	ErrStored = fmt.Errorf("%w, but the cluster stores it", ErrUnchecked)
)

// boundAnnotation is the mark of a binding: the namespaces that its gate covers, or those that its wall excludes.
const boundAnnotation = "leasecast.dev/bound"

// fenceState is what is known about a fence. The Keeper's lock guards the first fields.
type fenceState struct {
	checked, settled bool
	err              error    // why the member does not have the fence
	unchecked        []string // namespaces where no probe has had an answer since the fence is checked
	// since maps each namespace in which the fence is in force to the boot reading of the first probe that showed it.
	since map[string]time.Duration

	// gate and wall hold the namespaces where a probe was rejected since the part was changed by others.
	gate, wall map[string]bool
	retryAt    time.Duration
}

// fenceTurn is what a fence has to be in one turn.
type fenceTurn struct {
	// active are the active namespaces that the fence covers. open are namespaces that it does not cover but must
	// keep, because another fence is not in force there yet. The values are true where a namespace has its Lease.
	active, open map[string]bool
	failed       error // why the fence cannot be installed, or nil
	due          bool  // probe again what is in force
}

// Unguarded returns why the member is not guarded, or nil while the guard is in force.
func (k *Keeper) Unguarded() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unguarded
}

// Unfenced returns why a fence is not in force in a namespace, or nil. An empty namespace stands for the whole
// member. A fence that only warns counts as in force once it is installed. A fence that was not checked yet yields
// ErrUnchecked, or ErrStored if the member stores it.
func (k *Keeper) Unfenced(f Fence, namespace string) error {
	_, err := k.FencedSince(f, namespace)
	return err
}

// FencedSince is Unfenced, and also returns since when the fence is in force in the namespace. That is a boot
// reading, taken after the first check in which the fence rejected the probe. It starts again when a probe was
// accepted, or when others changed the fence. It is zero for a fence that warns.
func (k *Keeper) FencedSince(f Fence, namespace string) (since time.Duration, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.fences[f.Name()]
	switch {
	case s == nil || !s.checked || slices.Contains(s.unchecked, namespace) || namespace == "" && len(s.unchecked) > 0:
		if slices.ContainsFunc(f.Names(), k.store.lacks) {
			return 0, ErrUnchecked
		}
		return 0, ErrStored
	case s.err != nil:
		return 0, s.err
	}
	since, inForce := s.since[namespace]
	if f.warns || inForce || namespace == "" && s.settled {
		return since, nil
	}
	return 0, ErrNotEnforced
}

// fenceResult is what one turn has shown of a fence.
type fenceResult struct {
	inForce   []string // the namespaces where it was seen to reject
	unchecked []string // the namespaces where no probe has had an answer
	settled   bool     // no change is pending: where there is a Lease, the gate decides by it
	is        change
	silent    error // why a probe had no answer
}

// keepFence installs a fence, probes it, and records the result. With an error that is no answer about the fence,
// the last result stays.
func (k *Keeper) keepFence(ctx context.Context, f Fence, turn fenceTurn) (settled bool, err error) {
	s, now := k.fences[f.Name()], k.Now()
	if turn.failed == nil && now < s.retryAt {
		return s.settled, s.err
	}
	var r fenceResult
	if err = turn.failed; err == nil {
		r, err = k.install(ctx, f, s, turn)
	}
	if s.retryAt = 0; turn.failed == nil && rejects(err) {
		s.retryAt = now + fenceRetry
	}
	if r.is == mended {
		k.Mended(f.Name())
	}
	k.noteFence(f, s, r, err)
	return r.settled, cmp.Or(err, r.silent)
}

// noteFence records the result of a check.
func (k *Keeper) noteFence(f Fence, s *fenceState, r fenceResult, err error) {
	k.mu.Lock()
	before := s.summary()
	if r.is >= replaced {
		s.since = nil
	}
	if err == nil || rejects(err) {
		since := map[string]time.Duration{}
		for _, ns := range r.inForce {
			since[ns] = cmp.Or(s.since[ns], k.Now())
		}
		s.unchecked = slices.DeleteFunc(r.unchecked, func(ns string) bool { // where one was checked, the last result stays
			return s.checked && !slices.Contains(s.unchecked, ns)
		})
		s.checked, s.settled, s.err, s.since = true, r.settled, err, since
	}
	after := s.summary()
	k.mu.Unlock()
	if before != after {
		k.Log.Info("A fence of the cluster was checked", "fence", f.Name(), "settled", r.settled, "err", err)
		k.Changed()
	}
}

// summary returns what others decide by.
func (s *fenceState) summary() string {
	return fmt.Sprint(s.checked, s.settled, s.unchecked, slices.Sorted(maps.Keys(s.since)), s.err != nil, DeniedIn(s.err),
		errors.Is(s.err, ErrForbidden), errors.Is(s.err, ErrUnsupported))
}

// track forgets all fences but these, and reports whether it forgot any.
func (k *Keeper) track(fences []Fence) (forgot bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := len(k.fences)
	maps.DeleteFunc(k.fences, func(name string, _ *fenceState) bool {
		return !slices.ContainsFunc(fences, func(f Fence) bool { return f.Name() == name })
	})
	forgot = len(k.fences) < before
	for _, f := range fences {
		if k.fences[f.Name()] == nil {
			k.fences[f.Name()] = &fenceState{gate: map[string]bool{}, wall: map[string]bool{}}
		}
	}
	return forgot
}

// isAnswer reports whether an error shows that the guard is not in force. Any other error is silence.
func isAnswer(err error) bool { return rejects(err) || errors.Is(err, ErrNotEnforced) }

// rejects reports whether an error is an answer about a guard or a fence: the member does not have it, and will not.
// Any other error is silence, and changes nothing. A fence that a member rejects must not hold up the others.
func rejects(err error) bool {
	return DeniedIn(err) != nil || errors.Is(err, ErrForbidden) || errors.Is(err, ErrUnsupported) ||
		apierrors.IsInvalid(err)
}

// install puts a fence in place, and probes it unless it warns.
//
// The stored bindings show where the gate was seen in force: there is no wall. Every step keeps one of the two in
// force. A namespace gets the gate when it has a Lease, and loses the wall when the gate was seen to reject there.
// It loses the gate when it terminates, because its cleanup must not depend on a Lease. Where no probe has an answer,
// the wall stays as it is stored, and a new one leaves the leader alone.
func (k *Keeper) install(ctx context.Context, f Fence, s *fenceState, turn fenceTurn) (r fenceResult, err error) {
	gates := k.gatesOf(f, turn)
	if r.is, err = k.ensureGate(ctx, f, gates); r.is >= replaced {
		clear(s.gate)
	}
	if err == nil && !f.warns {
		r.silent = k.probe(ctx, f.gate, gates, s.gate, turn.due)
	}
	if err != nil || f.lock != nil {
		r.inForce, r.settled = f.lockInForce(gates, s.gate)
		return r, cmp.Or(err, r.silent)
	}
	active := slices.Sorted(maps.Keys(turn.active))
	maps.DeleteFunc(s.gate, func(ns string, _ bool) bool { return !slices.Contains(gates, ns) })
	maps.DeleteFunc(s.wall, func(ns string, _ bool) bool { return !slices.Contains(active, ns) || s.gate[ns] })
	for i, w := range f.walls {
		gated := k.gated(f, w, gates, s.gate)
		rewritten, err := k.store.ensurePolicy(ctx, wallBut(w, k.leftOut(w, f.lost, turn.open), gated))
		if r.is = max(r.is, rewritten); rewritten >= replaced {
			clear(s.wall)
		}
		if err != nil {
			return r, err
		}
		r.silent = cmp.Or(r.silent, k.probe(ctx, w, f.behind(i, active, gated), s.wall, turn.due))
	}
	r.inForce = keep(active, s.gate, s.wall)
	r.settled = f.warns || len(r.inForce) == len(active) && len(keep(gates, s.gate)) == len(gates)
	if r.silent != nil {
		r.unchecked = slices.DeleteFunc(active, func(ns string) bool {
			_, gate := s.gate[ns]
			_, wall := s.wall[ns]
			return gate || wall
		})
		if len(r.unchecked) == len(turn.active) {
			return r, r.silent
		}
	}
	return r, nil
}

// gated returns the namespaces that a wall excludes: those where the gate was seen in force, and some where its probe
// had no answer. An earlier process of the hub may have seen it there, and a new wall would refuse the leader, too.
func (k *Keeper) gated(f Fence, wall Policy, gates []string, gate map[string]bool) []string {
	bound, stored := k.store.boundTo(wall.Binding.Name)
	_, before, _ := strings.Cut(bound, "/")
	earlier := strings.Split(before, ",")
	return slices.DeleteFunc(slices.Clone(gates), func(ns string) bool {
		seen, answered := gate[ns]
		return !f.warns && !seen && (answered || stored && !slices.Contains(earlier, ns))
	})
}

// keep returns the namespaces that one of these sets holds.
func keep(namespaces []string, in ...map[string]bool) (kept []string) {
	for _, ns := range namespaces {
		if slices.ContainsFunc(in, func(set map[string]bool) bool { return set[ns] }) {
			kept = append(kept, ns)
		}
	}
	return kept
}

// gatesOf returns the namespaces that get the gate: the active ones that have a Lease, or already have the gate.
// Open ones keep the gate while they have a Lease. The gate of a lock is in the lock's namespace, without a Lease,
// too: there it rejects the lock and nothing else. Nothing can be requested in a namespace that does not exist.
func (k *Keeper) gatesOf(f Fence, turn fenceTurn) (gates []string) {
	if f.lock != nil {
		if _, isActive := turn.active[f.names[0]]; !isActive && f.lock.Namespace == f.names[0] {
			return nil
		}
		return []string{f.lock.Namespace}
	}
	stored, _ := k.store.boundTo(f.Name())
	gated := strings.Split(stored, ",")
	for ns, leased := range turn.active {
		if leased || slices.Contains(gated, ns) {
			gates = append(gates, ns)
		}
	}
	for ns, leased := range turn.open {
		if leased && slices.Contains(gated, ns) {
			gates = append(gates, ns)
		}
	}
	slices.Sort(gates)
	return gates
}

// ensureGate installs the gate in these namespaces only. The gate of a lock has a namespace of its own.
func (k *Keeper) ensureGate(ctx context.Context, f Fence, namespaces []string) (change, error) {
	switch {
	case f.lock != nil:
		return k.store.ensurePolicy(ctx, f.gate)
	case len(namespaces) > 0:
		return k.store.ensurePolicy(ctx, f.gateIn(namespaces))
	}
	if _, stored := k.store.boundTo(f.Name()); !stored {
		return unchanged, nil
	}
	return unchanged, k.store.remove(ctx, bindings, f.Name())
}

// leftOut returns the lost namespaces that a wall excludes. In an open one the wall stays.
func (k *Keeper) leftOut(wall Policy, lost []string, open map[string]bool) (out []string) {
	bound, stored := k.store.boundTo(wall.Binding.Name)
	before, _, _ := strings.Cut(bound, "/")
	for _, ns := range lost {
		if _, isOpen := open[ns]; !isOpen || !stored || slices.Contains(strings.Split(before, ","), ns) {
			out = append(out, ns)
		}
	}
	return out
}

// lockInForce returns the policy's one namespace if the lock's gate was seen to reject.
func (f Fence) lockInForce(gates []string, seen map[string]bool) (inForce []string, settled bool) {
	if f.warns || len(gates) == 0 {
		return nil, true
	}
	if settled = seen[gates[0]]; settled {
		inForce = f.names
	}
	return inForce, settled
}

// behind returns the active namespaces that wall i covers, and where the gate was not seen in force.
func (f Fence) behind(i int, active, seen []string) (behind []string) {
	for _, ns := range active {
		named := slices.Contains(f.names, ns)
		if !f.warns && !slices.Contains(seen, ns) && (named && i == 0 || !named && i == len(f.walls)-1) {
			behind = append(behind, ns)
		}
	}
	return behind
}

// probe probes a policy in these namespaces, unless it was seen to reject there and no probe is due. Without an answer,
// what was seen stays. It returns why there was none in one of them, or nil.
func (k *Keeper) probe(
	ctx context.Context, p Policy, namespaces []string, seen map[string]bool, due bool,
) (silent error) {
	errs := make([]error, len(namespaces))
	var probes errgroup.Group // its functions return no errors
	probes.SetLimit(namespacesAtOnce)
	for i, ns := range namespaces {
		if due || !seen[ns] {
			probes.Go(func() error {
				errs[i] = p.Verify(ctx, k.Member, ns)
				return nil
			})
		}
	}
	_ = probes.Wait()
	for i, ns := range namespaces {
		if err := errs[i]; err == nil || errors.Is(err, ErrNotEnforced) {
			seen[ns] = err == nil
		} else {
			silent = fmt.Errorf("in namespace %s: %w", ns, err)
		}
	}
	return silent
}
