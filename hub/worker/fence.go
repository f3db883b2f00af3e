package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

const (
	// fenceLook is how often the desired fences, and the namespaces that they cover, are compared with the last
	// check.
	fenceLook = 500 * time.Millisecond
	// editedEvery is how often stored fences are checked for edits. editedTimeout bounds one such check.
	editedEvery, editedTimeout = time.Second, 2 * time.Second
	// fencesAtOnce is how many fences of a member are checked concurrently.
	fencesAtOnce = 8
	// namespaceTimeout is what each namespace of each fence adds to guardTimeout, the bound of one check.
	namespaceTimeout = 25 * time.Millisecond
)

// ErrStored wraps ErrUnchecked. It means that the fence was not checked yet, but the member stores it.
var ErrStored = fmt.Errorf("%w, but the cluster stores it", ErrUnchecked)

// knownFence is the result of a fence's last check that the member answered.
type knownFence struct {
	guard.FenceState
	why error // why the fence could not be installed
	// since maps each namespace to the boot reading since when the fence was seen in force there.
	since map[string]time.Duration
}

// Unfenced returns why a fence is not in force in a namespace, or nil. An empty namespace stands for the whole
// member. A fence that only warns counts as in force once it is installed. A fence that was not checked yet yields
// ErrUnchecked, or ErrStored if the member stores it.
func (w *Worker) Unfenced(f guard.Fence, namespace string) error {
	_, err := w.FencedSince(f, namespace)
	return err
}

// FencedSince is Unfenced, and also returns since when the fence is in force in the namespace. That is a boot
// reading of the worker's clock, taken after the first check in which the fence rejected the probe. It starts again
// when a probe was accepted, or when the fence was written. It is zero for a fence that warns.
func (w *Worker) FencedSince(f guard.Fence, namespace string) (since time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	is, known := w.fences[f.Name()]
	switch {
	case is.why != nil:
		return 0, is.why
	case !known && w.stored[f.Name()]:
		return 0, ErrStored
	case !known:
		return 0, ErrUnchecked
	case f.Warns(), is.InForce[namespace], namespace == "" && is.Settled:
		return is.since[namespace], nil
	default:
		return 0, guard.ErrNotEnforced
	}
}

// wantedFences are the fences that the policies ask for in a member.
type wantedFences struct {
	fences []guard.Fence
	// spaces holds each fence's active namespaces. The value is true where the namespace has the Lease.
	spaces []map[string]bool
	// denied holds, by name, the fences that an administrator of the member has not allowed. They are removed, or
	// not installed.
	denied map[string]error
	// open holds the active namespaces in which a fence that is not denied is not in force yet.
	open map[string]bool
	// invalid names the policies whose fences are not known.
	invalid []string
	// written names the fences with an object that was written, by any client, since the stored versions were last
	// read.
	written map[string]bool
	// leases holds the hub's Leases in namespaces of the member that are not terminating.
	leases map[types.NamespacedName]bool
}

func (a wantedFences) equal(b wantedFences) bool {
	return slices.Equal(names(a.fences), names(b.fences)) && reflect.DeepEqual(a.spaces, b.spaces) && maps.Equal(a.open, b.open) &&
		reflect.DeepEqual(a.denied, b.denied) && slices.Equal(a.invalid, b.invalid) &&
		(len(a.invalid) == 0 || maps.Equal(a.leases, b.leases))
}

// allowed returns the fences that are not denied.
func (a wantedFences) allowed() []guard.Fence {
	return slices.DeleteFunc(slices.Clone(a.fences), func(f guard.Fence) bool { return a.denied[f.Name()] != nil })
}

// openTo returns the open namespaces that fence i does not cover. The value is true where the namespace has its
// Lease.
func (a wantedFences) openTo(i int) map[string]bool {
	open := map[string]bool{}
	for ns := range a.open {
		if !has(a.spaces[i], ns) {
			open[ns] = a.leases[types.NamespacedName{Namespace: ns, Name: a.fences[i].LeaseName()}]
		}
	}
	return open
}

// timeout bounds one check of the fences.
func (a wantedFences) timeout() time.Duration {
	namespaces := 0
	for _, in := range a.spaces {
		namespaces += len(in)
	}
	return guardTimeout + time.Duration(namespaces)*namespaceTimeout
}

// fenceCheck is the last check of a member's fences. The zero value means that there was no check.
type fenceCheck struct {
	wanted   wantedFences
	versions map[string]string // of the stored objects
	settled  bool
	// retry is the delay before a rejected fence is tried again, or zero.
	retry time.Duration
	// These are boot readings: again for the next check, verifyAt for the next one that sends probes, and lookAt
	// for the next read of the stored versions.
	again, verifyAt, lookAt time.Duration
}

// keepFences keeps the fences of the member installed, and records where they are in force, until ctx ends.
func (w *Worker) keepFences(ctx context.Context) {
	for last := (fenceCheck{}); ctx.Err() == nil; pause(ctx, fenceLook) {
		last = w.lookAtFences(ctx, last)
	}
}

// lookAtFences is one turn of keepFences. It installs nothing once leave has seen that no turn is under way.
func (w *Worker) lookAtFences(ctx context.Context, last fenceCheck) fenceCheck {
	w.setFencing(true)
	defer w.setFencing(false)
	if w.leaving() || !w.Hub.Serves(w.Member.Fleet) {
		return fenceCheck{}
	}
	fences, invalid, err := w.Hub.Fences(ctx, w.Member.Key)
	if err != nil {
		return last
	}
	wanted := wantedFences{fences: fences, invalid: invalid}
	if err := w.addNamespaces(ctx, &wanted); err != nil {
		return last
	}
	return w.fencesAfter(ctx, last, wanted)
}

func (w *Worker) setFencing(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fencing = on
}

// isFencing reports whether a turn of keepFences, which may install fences, is under way.
func (w *Worker) isFencing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fencing
}

// fencesAfter checks the fences of the member if that is due, or if anything has changed since the last check.
func (w *Worker) fencesAfter(ctx context.Context, last fenceCheck, wanted wantedFences) fenceCheck {
	now := w.Clock.Now().Boot
	is := last
	is.wanted, is.again = wanted, 0
	if len(wanted.fences) > 0 && now >= last.lookAt {
		is.versions, is.lookAt = w.versions(ctx, wanted.fences, last.versions), now+editedEvery
	}
	asked := wanted.equal(last.wanted)
	if asked && now < last.again && maps.Equal(is.versions, last.versions) {
		last.lookAt = is.lookAt
		return last
	}
	wanted.written = writtenSince(wanted.fences, last.versions, is.versions)
	due := now >= last.verifyAt
	refused, settled := w.checkFences(ctx, wanted, due, asked && last.settled)
	is.settled, is.retry = settled, 0
	if refused {
		is.retry = min(guardEvery, max(refusedRetry, 2*last.retry))
	}
	if settled {
		is.again = now + cmp.Or(is.retry, guardEvery)
		if due {
			is.verifyAt = now + verifyEvery
		}
	}
	return is
}

// writtenSince returns the fences whose objects were written between two reads of the stored versions.
func writtenSince(fences []guard.Fence, last, now map[string]string) map[string]bool {
	written := map[string]bool{}
	for _, f := range fences {
		for _, name := range f.Names() {
			for _, key := range versionsOf(name) {
				written[f.Name()] = written[f.Name()] || last[key] != now[key]
			}
		}
	}
	return written
}

// versionsOf returns the keys of a policy and its binding in [guard.Versions].
func versionsOf(name string) [2]string {
	return [2]string{"validatingadmissionpolicies/" + name, "validatingadmissionpolicybindings/" + name}
}

// versions returns the versions that the member stores, and records which of these fences are stored. It returns
// last if the member does not answer.
func (w *Worker) versions(ctx context.Context, wanted []guard.Fence, last map[string]string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, editedTimeout)
	defer cancel()
	versions, err := guard.Versions(ctx, w.Client)
	if err != nil {
		return last
	}
	if w.noteStored(wanted, versions) {
		w.Hub.Changed(w.Member.Key, "")
	}
	return versions
}

// checkFences installs the fences, and removes others. It removes a fence of another version last, so that no write
// is accepted in between. The fences of an invalid policy stay. If the member rejects a fence, earlier fences of
// its policy stay. If the last check settled all fences, a repair now means that a fence was edited.
func (w *Worker) checkFences(ctx context.Context, wanted wantedFences, due, wasSettled bool) (refused, settled bool) {
	ctx, cancel := context.WithTimeout(ctx, wanted.timeout())
	defer cancel()
	news := w.forgetFences(wanted.fences)
	if news {
		w.Hub.Changed(w.Member.Key, "")
	}
	stays := guard.Kept{Names: names(wanted.allowed()), Policies: slices.Clone(wanted.invalid), Leases: wanted.leases}
	underWay, silent := false, error(nil)
	for i, is := range w.keepAll(ctx, wanted, due) {
		f := wanted.fences[i]
		news = news || is.news
		if is.mended && wasSettled {
			w.Hub.RecordMended(w.Member.Key, "somebody has edited or deleted the fence "+f.Name()+" in the cluster: the hub has put it back")
		}
		switch {
		case has(wanted.denied, f.Name()):
		case is.err == nil:
			underWay = underWay || !is.settled
		case tells(is.err):
			refused = true
			stays.Policies = append(stays.Policies, f.PolicyName())
		default:
			underWay, silent = true, errors.Join(silent, is.err)
		}
	}
	w.noteSilence(silent)
	if news {
		w.Log.Info("The fences of the cluster were checked", "fences", len(wanted.fences), "underWay", underWay, "refused", refused)
	}
	if underWay {
		return refused, false
	}
	err := guard.RemoveFences(ctx, w.Client, w.HubID, w.Member.Fleet, stays)
	return refused, err == nil || errors.Is(err, guard.ErrForbidden) // a forbidden removal waits for the next check
}

// keptFence is the outcome of a fence's check.
type keptFence struct {
	err                   error
	settled, mended, news bool
}

// keepAll installs the fences, fencesAtOnce at a time, and records each result at once.
func (w *Worker) keepAll(ctx context.Context, wanted wantedFences, due bool) []keptFence {
	results := make([]keptFence, len(wanted.fences))
	if len(results) == 0 {
		return nil
	}
	anchored, failed := guard.Anchor(ctx, w.Client)
	var group errgroup.Group // its functions return no errors
	group.SetLimit(fencesAtOnce)
	for i, f := range wanted.fences {
		group.Go(func() error {
			s, err := guard.FenceState{}, cmp.Or(wanted.denied[f.Name()], failed)
			if err == nil {
				s, err = f.Keep(ctx, w.Client, wanted.spaces[i], wanted.openTo(i), due)
			}
			s.Mended = s.Mended || anchored && i == 0
			results[i] = keptFence{err: err, settled: s.Settled}
			if results[i].mended, results[i].news = w.noteFence(f, s, err, wanted.written[f.Name()]); results[i].news {
				w.Hub.Changed(w.Member.Key, "")
			}
			return nil
		})
	}
	_ = group.Wait()
	return results
}

// tells reports whether an error is an answer about a fence: the member does not have it, and will not. Any other
// error is silence, and changes nothing. A fence that a member rejects must not hold up the others.
func tells(err error) bool {
	return guard.DeniedIn(err) != nil || errors.Is(err, guard.ErrForbidden) || errors.Is(err, guard.ErrUnsupported) || apierrors.IsInvalid(err)
}

// noteSilence logs that fences could not be checked, once until they can be again.
func (w *Worker) noteSilence(err error) {
	w.mu.Lock()
	was := w.fencesSilent
	w.fencesSilent = err != nil
	w.mu.Unlock()
	if err != nil && !was {
		w.Log.Error(err, "Fences of the cluster cannot be checked, and stay as they are", "reason", reason.Unfenced)
	}
}

// noteFence records the result of a fence's check. It reports whether an edit may have been reverted, and whether
// the result differs from the last one. Silence keeps the last result.
func (w *Worker) noteFence(f guard.Fence, s guard.FenceState, why error, written bool) (mended, news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.fences[f.Name()]
	mended = s.Mended && known && before.why == nil
	if why != nil && !tells(why) {
		return mended, false
	}
	is := knownFence{FenceState: s, why: why, since: map[string]time.Duration{}}
	for ns, inForce := range s.InForce {
		if !inForce {
			continue
		}
		if is.since[ns] = w.Clock.Now().Boot; has(before.since, ns) && !s.Mended && !written {
			is.since[ns] = before.since[ns]
		}
	}
	w.fences[f.Name()] = is
	return mended, !known || before.Settled != s.Settled || !maps.Equal(before.InForce, s.InForce) || (before.why == nil) != (why == nil) ||
		!slices.Equal(guard.DeniedIn(before.why), guard.DeniedIn(why)) || errors.Is(before.why, guard.ErrForbidden) != errors.Is(why, guard.ErrForbidden) ||
		errors.Is(before.why, guard.ErrUnsupported) != errors.Is(why, guard.ErrUnsupported)
}

// forgetFences forgets all fences but these, and reports whether it forgot any.
func (w *Worker) forgetFences(but []guard.Fence) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, fences, stored := len(w.fences), map[string]knownFence{}, map[string]bool{}
	for _, f := range but {
		if is, known := w.fences[f.Name()]; known {
			fences[f.Name()] = is
		}
		stored[f.Name()] = w.stored[f.Name()]
	}
	w.fences, w.stored = fences, stored
	return len(fences) < before
}

// noteStored records which of the fences the member stores. It reports whether one that was not checked yet is
// newly stored: a leader keeps its lead with a stored fence.
func (w *Worker) noteStored(wanted []guard.Fence, versions map[string]string) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.stored
	w.stored = map[string]bool{}
	for _, f := range wanted {
		if slices.ContainsFunc(f.Names(), func(name string) bool {
			of := versionsOf(name)
			return !has(versions, of[0]) || !has(versions, of[1])
		}) {
			continue
		}
		w.stored[f.Name()] = true
		news = news || !before[f.Name()] && !has(w.fences, f.Name())
	}
	return news
}

// addNamespaces adds the member's namespaces and the hub's Leases in it, from its cache.
func (w *Worker) addNamespaces(ctx context.Context, wanted *wantedFences) error {
	if len(wanted.fences)+len(wanted.invalid) == 0 {
		return nil
	}
	var list corev1.NamespaceList
	if err := w.Cluster.GetCache().List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var leases coordinationv1.LeaseList
	if err := w.Cluster.GetCache().List(ctx, &leases, client.HasLabels{v1alpha1.ManagedLabel}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	wanted.add(list.Items, leases.Items)
	wanted.open = map[string]bool{}
	for i, f := range wanted.fences {
		for ns := range wanted.spaces[i] {
			if !has(wanted.denied, f.Name()) && w.Unfenced(f, ns) != nil {
				wanted.open[ns] = true
			}
		}
	}
	return nil
}

func (a *wantedFences) add(namespaces []corev1.Namespace, leases []coordinationv1.Lease) {
	written := map[string][]client.ObjectKey{} // by namespace
	for i := range leases {
		key := client.ObjectKeyFromObject(&leases[i])
		written[key.Namespace] = append(written[key.Namespace], key)
	}
	a.leases, a.spaces = map[types.NamespacedName]bool{}, make([]map[string]bool, len(a.fences))
	a.denied = map[string]error{}
	for i, f := range a.fences {
		a.spaces[i] = map[string]bool{}
		if err := f.Denied(namespaces); err != nil {
			a.denied[f.Name()] = err
		}
	}
	for n := range namespaces {
		ns := &namespaces[n]
		if !ns.DeletionTimestamp.IsZero() || ns.Status.Phase == corev1.NamespaceTerminating {
			continue
		}
		for _, key := range written[ns.Name] {
			a.leases[key] = true
		}
		for i, f := range a.fences {
			if f.Selects(ns.Name, ns.Labels) {
				a.spaces[i][ns.Name] = a.leases[client.ObjectKey{Namespace: ns.Name, Name: f.LeaseName()}]
			}
		}
	}
}

// unfence removes all fences from a member that takes no part any more.
func (w *Worker) unfence(ctx context.Context) error {
	err := guard.RemoveFences(ctx, w.Client, w.HubID, w.Member.Fleet, guard.Kept{})
	if errors.Is(err, guard.ErrForbidden) {
		return nil // a hub that may not list them has installed none
	}
	return err
}

// names returns the names of all objects that fences keep in a member.
func names(fs []guard.Fence) (all []string) {
	for _, f := range fs {
		all = append(all, f.Names()...)
	}
	return slices.Compact(all)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-timer.Done()
}
