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
	// fenceLook is how often it is looked whether the fences, or the namespaces that they cover, are others now.
	fenceLook = 500 * time.Millisecond
	// editedEvery is how often it is looked whether somebody has edited a fence, and editedTimeout bounds one look.
	editedEvery, editedTimeout = time.Second, 2 * time.Second
	// fencesAtOnce is how many fences of a member are checked at a time.
	fencesAtOnce = 8
	// namespaceTimeout is how much longer than guardTimeout one check may take, for each namespace of each fence.
	namespaceTimeout = 25 * time.Millisecond
)

// ErrStored wraps ErrUnchecked. It is about a fence that the member stores.
var ErrStored = fmt.Errorf("%w, but the cluster stores it", ErrUnchecked)

// knownFence is the result of the last check of a fence in a member that has answered.
type knownFence struct {
	guard.FenceState
	why error // it could not be put in place
	// since are the boot readings from which on it was seen in force, by the namespace.
	since map[string]time.Duration
}

// Unfenced says why a fence is not in force in a namespace, or in any of the member if that is empty. It is nil where
// it is, and for a fence that only warns where that is in place. Nobody knows it of one that was not checked yet. The
// error wraps ErrStored if the member stores that one.
func (w *Worker) Unfenced(f guard.Fence, namespace string) error {
	_, err := w.FencedSince(f, namespace)
	return err
}

// FencedSince is Unfenced, and says since when the fence is in force in the namespace: the boot reading of the worker's
// clock after the first probe that it has refused. It begins again when a probe was let through, or when anybody has
// written the fence. It is zero for a fence that warns.
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

// wantedFences are those that the policies ask for in a member.
type wantedFences struct {
	fences []guard.Fence
	// spaces are the active namespaces that each of them covers. The value says whether a namespace has the Lease.
	spaces []map[string]bool
	// denied are, by their names, those that an administrator of the member has not allowed. They go, and do not come.
	denied map[string]error
	// open are the active namespaces in which one of the others is not in force yet.
	open map[string]bool
	// invalid are the policies of which nobody knows what they ask for.
	invalid []string
	// written are those of which something was written since the last look at what is stored, by whomever.
	written map[string]bool
	// leases are those of the hub in namespaces of the member that are not going away.
	leases map[types.NamespacedName]bool
}

func (a wantedFences) equal(b wantedFences) bool {
	return slices.Equal(names(a.fences), names(b.fences)) && reflect.DeepEqual(a.spaces, b.spaces) && maps.Equal(a.open, b.open) &&
		reflect.DeepEqual(a.denied, b.denied) && slices.Equal(a.invalid, b.invalid) &&
		(len(a.invalid) == 0 || maps.Equal(a.leases, b.leases))
}

// allowed are those that are put in place.
func (a wantedFences) allowed() []guard.Fence {
	return slices.DeleteFunc(slices.Clone(a.fences), func(f guard.Fence) bool { return a.denied[f.Name()] != nil })
}

// openTo are the open namespaces that one of the fences does not cover. The value says whether a namespace has the Lease.
func (a wantedFences) openTo(i int) map[string]bool {
	open := map[string]bool{}
	for ns := range a.open {
		if !has(a.spaces[i], ns) {
			open[ns] = a.leases[types.NamespacedName{Namespace: ns, Name: a.fences[i].LeaseName()}]
		}
	}
	return open
}

// timeout bounds one check of them.
func (a wantedFences) timeout() time.Duration {
	namespaces := 0
	for _, in := range a.spaces {
		namespaces += len(in)
	}
	return guardTimeout + time.Duration(namespaces)*namespaceTimeout
}

// fenceCheck is the last check of the fences of a member. The zero value is none.
type fenceCheck struct {
	wanted   wantedFences
	versions map[string]string // of what is stored
	settled  bool
	// retry is how long a refusal is not tried again, after one.
	retry time.Duration
	// again and verifyAt are the boot readings of the next check, and of the next one that asks where they are in force.
	// lookAt is that of the next look at what is stored.
	again, verifyAt, lookAt time.Duration
}

// keepFences keeps the fences of the member in place, and notes where they are in force, until ctx ends.
func (w *Worker) keepFences(ctx context.Context) {
	for last := (fenceCheck{}); ctx.Err() == nil; pause(ctx, fenceLook) {
		last = w.lookAtFences(ctx, last)
	}
}

// lookAtFences is one turn of keepFences. It puts nothing in place once leave has seen that none is under way.
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

// isFencing reports whether fences may be put in place right now.
func (w *Worker) isFencing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fencing
}

// fencesAfter checks the fences of the member if that is due, or if something is not as the last check has left it.
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

// writtenSince are the fences of which something was written between two looks at what is stored.
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

// versionsOf are the keys of a policy and its binding, as [guard.Versions] has them.
func versionsOf(name string) [2]string {
	return [2]string{"validatingadmissionpolicies/" + name, "validatingadmissionpolicybindings/" + name}
}

// versions returns those of what is stored in the member, and notes which of these fences are. Where there is no answer,
// they are the last ones.
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

// checkFences puts the fences in place, and removes others. A fence of another version goes last: nothing is let
// through in between. What an invalid policy has asked for stays. Where the member refuses a fence, earlier ones of its
// policy stay. If the last check has settled all others, whatever has to be mended is somebody's edit.
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
	return refused, err == nil || errors.Is(err, guard.ErrForbidden) // which has time until the next check
}

// keptFence is what has become of a fence in a check.
type keptFence struct {
	err                   error
	settled, mended, news bool
}

// keepAll puts the fences in place, some at a time, and notes each one as soon as it is known.
func (w *Worker) keepAll(ctx context.Context, wanted wantedFences, due bool) []keptFence {
	results := make([]keptFence, len(wanted.fences))
	if len(results) == 0 {
		return nil
	}
	anchored, failed := guard.Anchor(ctx, w.Client)
	var group errgroup.Group // none of which fails
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

// tells reports whether an error is an answer about a fence: the member does not have it, and will not. All else is
// silence, which says nothing. One fence that a member does not take must not keep it from the others.
func tells(err error) bool {
	return guard.DeniedIn(err) != nil || errors.Is(err, guard.ErrForbidden) || errors.Is(err, guard.ErrUnsupported) || apierrors.IsInvalid(err)
}

// noteSilence logs that fences could not be checked, once until they are again.
func (w *Worker) noteSilence(err error) {
	w.mu.Lock()
	was := w.fencesSilent
	w.fencesSilent = err != nil
	w.mu.Unlock()
	if err != nil && !was {
		w.Log.Error(err, "Fences of the cluster cannot be checked, and stay as they are", "reason", reason.Unfenced)
	}
}

// noteFence notes what a check has found of a fence. It reports whether somebody's edit may have been mended, and whether
// there is news. Silence says nothing: what was known stays.
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

// forgetFences forgets all but these, and reports whether there were others.
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

// noteStored notes which of the fences the member stores, and reports whether there is news of one that was not checked
// yet: a leader goes on with that.
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

// addNamespaces adds the namespaces of the member, by its cache.
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
		return nil // who may not list them has none
	}
	return err
}

// names are those of all that fences keep in a member.
func names(fs []guard.Fence) (all []string) {
	for _, f := range fs {
		all = append(all, f.Names()...)
	}
	return slices.Compact(all)
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) {
	timer, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-timer.Done()
}
