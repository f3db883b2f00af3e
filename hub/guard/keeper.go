package guard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
)

const (
	// LookEvery is how often stored objects are compared with what the Keeper left, while there are fences.
	LookEvery = time.Second
	// IdleEvery is how often they are compared while there are no fences.
	IdleEvery = 10 * time.Second
	// VerifyEvery is how often what is in force is probed again.
	VerifyEvery = time.Minute
	// guardRetry and fenceRetry are the delays before a rejected request is sent again. After fenceRetry all probes are
	// due again if one had no answer.
	guardRetry, fenceRetry = time.Second, 5 * time.Second
	// Timeout bounds one turn.
	Timeout = 10 * time.Second
	// namespaceTimeout is what each namespace of each fence adds.
	namespaceTimeout = 25 * time.Millisecond
	// fencesAtOnce is how many fences of a member are checked concurrently, and namespacesAtOnce in how many
	// namespaces a fence is probed concurrently.
	fencesAtOnce, namespacesAtOnce = 8, 16
)

// Options configure a Keeper. All fields are required.
type Options struct {
	Member kubernetes.Interface
	// Hub is the mark of this installation, and Fleet is the member's fleet.
	Hub, Fleet string
	// Now returns a boot reading.
	Now func() time.Duration
	// MayWrite reports whether the hub still has the right to write. It is called just before each write: a turn takes
	// long, and another replica may be elected in the middle of it.
	MayWrite func() bool
	// Changed is called after the status changed, and Mended after a write that reverts an edit of a fence by others
	// was sent. They must not block.
	Changed func()
	Mended  func(fence string)
	Log     logr.Logger
}

// Keeper keeps the admission policies of one member: the guard, the anchor and the fences. Each turn compares the
// desired objects with a snapshot of their metadata, writes what differs, and probes what is not known to be in
// force. Keep, Remove and Forget must not run concurrently.
type Keeper struct {
	Options
	anchor Policy

	lookAt, verifyAt, guardAt time.Duration // boot readings
	// failed is why the last snapshot could not be taken, and unlisted why it lacks the fences.
	failed, unlisted error
	unwritten        error // why the guard could not be written, until guardAt
	unprobed         error // why a probe had no answer when they were last due
	silent           bool  // the last turn got no answer about the guard or some fences

	store *store

	mu        sync.Mutex
	unguarded error // nil while the guard is in force
	fences    map[string]*fenceState
}

// NewKeeper returns a Keeper that knows nothing about the member.
func NewKeeper(o Options) *Keeper {
	return &Keeper{
		Options: o, anchor: anchor(), store: newStore(o), unguarded: ErrUnchecked,
		fences: map[string]*fenceState{},
	}
}

// Forget has the next turn write and probe everything: another hub or replica may have written to the member.
func (k *Keeper) Forget() {
	k.lookAt, k.verifyAt, k.guardAt = 0, 0, 0
	k.store.forget()
}

// Keep is one turn. It installs the guard first. It removes fences that are not desired last, once all desired ones
// are in force, so that no write is accepted in between. The fences of invalid policies stay. If the member rejects
// a fence, earlier fences of its policy stay. Silence keeps the status.
func (k *Keeper) Keep(ctx context.Context, d Desired) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	now := k.Now()
	due := now >= k.verifyAt
	failed := k.look(ctx, now, d)
	unguarded := failed
	if failed == nil {
		unguarded = k.keepGuard(ctx, now, due)
	}
	k.noteGuard(unguarded)
	silent := k.keepFences(ctx, d, cmp.Or(failed, k.unlisted), due)
	if isAnswer(unguarded) {
		unguarded = nil
	}
	if due && failed == nil {
		k.verifyAt, k.unprobed = now+VerifyEvery, silent
		if now >= k.guardAt {
			k.unprobed = cmp.Or(unguarded, silent)
		}
		if k.unprobed != nil {
			k.verifyAt = now + fenceRetry
		}
	}
	k.noteSilence(cmp.Or(unguarded, silent, k.unprobed))
}

// Remove removes the fences of this hub, and the guard too where that is wanted. A hub that may not list fences has
// installed none.
func (k *Keeper) Remove(ctx context.Context, andGuard bool) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	k.Forget()
	k.track(nil)
	k.mu.Lock()
	k.unguarded = ErrUnchecked
	k.mu.Unlock()
	if err := k.look(ctx, k.Now(), Desired{}); err != nil && !errors.Is(err, ErrUnsupported) {
		return err
	}
	if k.unlisted != nil && !errors.Is(k.unlisted, ErrForbidden) {
		return k.unlisted
	}
	if err := k.removeFences(ctx, nil, nil); err != nil || !andGuard {
		return err
	}
	for _, p := range Policies() {
		name := p.Policy.Name
		err := cmp.Or(k.store.remove(ctx, bindings, name), k.store.remove(ctx, policiesResource, name))
		if err != nil {
			return err
		}
	}
	return nil
}

// look takes a snapshot if one is due. It returns why it could not.
func (k *Keeper) look(ctx context.Context, now time.Duration, d Desired) error {
	if now < k.lookAt && (k.failed != nil || !k.store.isStale()) {
		return k.failed
	}
	unlisted, err := k.store.read(ctx)
	k.lookAt, k.failed, k.unlisted = now+IdleEvery, err, unlisted
	if err != nil {
		k.lookAt = now
		if rejects(err) {
			k.lookAt += guardRetry
		}
		return err
	}
	if len(d.Fences)+len(d.Invalid) > 0 {
		k.lookAt = now + LookEvery
	}
	isStored := func(f Fence) bool { return errors.Is(k.Unfenced(f, ""), ErrStored) }
	if slices.ContainsFunc(d.Fences, isStored) {
		k.Changed() // a leader keeps its lead with a stored fence
	}
	return nil
}

// keepGuard installs the guard, and probes it if it changed, if it was not in force, or if that is due. It returns
// why the guard is not in force.
func (k *Keeper) keepGuard(ctx context.Context, now time.Duration, due bool) error {
	was := k.Unguarded()
	if now < k.guardAt {
		return k.unwritten
	}
	for _, p := range Policies() {
		is, err := k.store.ensurePolicy(ctx, p)
		if due = due || is != unchanged; err != nil {
			k.guardAt, k.unwritten = now+guardRetry, err
			return err
		}
	}
	if was == nil && !due {
		return nil
	}
	return Verify(ctx, k.Member)
}

// noteGuard records whether the guard is in force. Silence keeps the last result.
func (k *Keeper) noteGuard(err error) {
	if err != nil && !isAnswer(err) {
		return
	}
	k.mu.Lock()
	before := k.unguarded
	k.unguarded = err
	k.mu.Unlock()
	if (before == nil) != (err == nil) || errors.Is(before, ErrUnchecked) {
		k.Log.Info("The guard of the cluster's Leases was checked", "inForce", err == nil, "err", err)
		k.Changed()
	}
}

// keepFences keeps the fences installed, and removes others. failed is why none can be checked, or nil. It returns
// what kept fences from being checked.
func (k *Keeper) keepFences(ctx context.Context, d Desired, failed error, due bool) (silent error) {
	forgot := k.track(d.Fences)
	if len(d.Fences) > 0 && failed == nil {
		_, failed = k.store.ensurePolicy(ctx, k.anchor)
	}
	open := d.open(k.Unfenced)
	errs, settled := make([]error, len(d.Fences)), make([]bool, len(d.Fences))
	var group errgroup.Group // its functions return no errors
	group.SetLimit(fencesAtOnce)
	for i, f := range d.Fences {
		group.Go(func() error {
			settled[i], errs[i] = k.keepFence(ctx, f, fenceTurn{
				active: d.Spaces[i], open: d.openTo(i, open), failed: cmp.Or(d.Denied[f.Name()], failed), due: due,
			})
			return nil
		})
	}
	_ = group.Wait()
	if forgot {
		k.Changed()
	}
	kept, policies, pending := map[string]bool{}, map[string]bool{}, failed != nil
	for _, name := range d.Invalid {
		policies[name] = true
	}
	for i, f := range d.Fences {
		if d.Denied[f.Name()] != nil {
			continue
		}
		for _, name := range f.Names() {
			kept[name] = true
		}
		switch {
		case errs[i] == nil:
			pending = pending || !settled[i]
		case rejects(errs[i]):
			policies[f.PolicyName()] = true
		default:
			pending, silent = true, errors.Join(silent, errs[i])
		}
	}
	if pending {
		return silent
	}
	if err := k.removeFences(ctx, kept, policies); !errors.Is(err, ErrForbidden) {
		return err
	}
	return nil
}

// removeFences removes this hub's fences for the fleet, except the fences with these names and of these policies.
// Another hub's fences stay.
func (k *Keeper) removeFences(ctx context.Context, kept, policies map[string]bool) error {
	for _, resource := range []string{bindings, policiesResource} {
		for _, name := range k.store.fencesIn(resource, kept, policies) {
			if err := k.store.remove(ctx, resource, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteSilence logs that the guard or fences could not be checked, once until they can be again.
func (k *Keeper) noteSilence(err error) {
	was := k.silent
	if k.silent = err != nil; err != nil && !was {
		k.Log.Error(err, "The guard or fences of the cluster cannot be checked, and stay as they are")
	}
}
