package worker

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

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
	// namespaceTimeout is how much longer than guardTimeout one check may take, for each namespace of each fence.
	namespaceTimeout = 25 * time.Millisecond
)

// fences are those of a member, as far as they are known.
type fences struct {
	states map[string]guard.FenceState // by the name of the fence
	why    map[string]error            // that a fence could not be put in place
	// since are the boot readings from which on a fence was seen in force, by its name and the namespace.
	since map[string]map[string]time.Duration
}

// Unfenced says why a fence is not in force in a namespace, or in any of the member if that is empty. It is nil where
// it is, and for a fence that only warns where that is in place.
func (w *Worker) Unfenced(f guard.Fence, namespace string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, known := w.fences.states[f.Name()]
	switch err := w.fences.why[f.Name()]; {
	case err != nil:
		return err
	case !known:
		return ErrUnchecked
	case f.Warns(), s.InForce[namespace], namespace == "" && s.Settled:
		return nil
	default:
		return guard.ErrNotEnforced
	}
}

// FencedSince is Unfenced, and says since when the fence is in force in the namespace: the boot reading of the worker's
// clock after the first probe that it has refused. It begins again when a probe was let through, or when the fence had to
// be written. It is zero for a fence that warns.
func (w *Worker) FencedSince(f guard.Fence, namespace string) (since time.Duration, err error) {
	if err := w.Unfenced(f, namespace); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fences.since[f.Name()][namespace], nil
}

// sinceAfter is since when a fence is in force where it was seen so at this reading.
func sinceAfter(before map[string]time.Duration, s guard.FenceState, now time.Duration) map[string]time.Duration {
	since := map[string]time.Duration{}
	for ns, is := range s.InForce {
		if !is {
			continue
		}
		if since[ns] = now; has(before, ns) && !s.Mended {
			since[ns] = before[ns]
		}
	}
	return since
}

// wantedFences are those that the policies ask for in a member.
type wantedFences struct {
	fences []guard.Fence
	// spaces are the active namespaces that each of them covers. The value says whether a namespace has the Lease.
	spaces []map[string]bool
	// invalid are the policies of which nobody knows what they ask for.
	invalid []string
	// leases are those of the hub in namespaces of the member that are not going away.
	leases map[types.NamespacedName]bool
}

func (a wantedFences) equal(b wantedFences) bool {
	return slices.Equal(names(a.fences), names(b.fences)) && reflect.DeepEqual(a.spaces, b.spaces) && slices.Equal(a.invalid, b.invalid) &&
		(len(a.invalid) == 0 || maps.Equal(a.leases, b.leases))
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
		is.versions, is.lookAt = w.versions(ctx, last.versions), now+editedEvery
	}
	asked := wanted.equal(last.wanted)
	if asked && now < last.again && maps.Equal(is.versions, last.versions) {
		last.lookAt = is.lookAt
		return last
	}
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

// versions returns those of what is stored in the member. Where there is no answer, they are the last ones.
func (w *Worker) versions(ctx context.Context, last map[string]string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, editedTimeout)
	defer cancel()
	versions, err := guard.Versions(ctx, w.Client)
	if err != nil {
		return last
	}
	return versions
}

// checkFences puts the fences in place, and removes others. A fence of another version goes last: nothing is let
// through in between. What an invalid policy has asked for stays. Where the member refuses a fence, earlier ones of its
// policy stay. If the last check has settled all others, whatever has to be mended is somebody's edit.
func (w *Worker) checkFences(ctx context.Context, wanted wantedFences, due, wasSettled bool) (refused, settled bool) {
	ctx, cancel := context.WithTimeout(ctx, wanted.timeout())
	defer cancel()
	var silent error
	stays := guard.Kept{Names: names(wanted.fences), Policies: slices.Clone(wanted.invalid), Leases: wanted.leases}
	found := fences{states: map[string]guard.FenceState{}, why: map[string]error{}, since: map[string]map[string]time.Duration{}}
	underWay := false
	for i, f := range wanted.fences {
		before, since, why := w.lastOf(f)
		s, err := f.Keep(ctx, w.Client, wanted.spaces[i], due)
		if s.Mended && wasSettled && why == nil {
			w.Hub.RecordMended(w.Member.Key, "somebody has edited or deleted the fence "+f.Name()+" in the cluster: the hub has put it back")
		}
		switch {
		case err == nil:
			underWay = underWay || !s.Settled
		case tells(err):
			refused = true
			stays.Policies = append(stays.Policies, f.PolicyName())
		default:
			underWay, silent = true, errors.Join(silent, err)
			if s, err = before, why; errors.Is(err, ErrUnchecked) {
				continue
			}
			s.Mended = false
		}
		found.since[f.Name()] = sinceAfter(since, s, w.Clock.Now().Boot)
		found.states[f.Name()], found.why[f.Name()] = s, err
	}
	w.noteSilence(silent)
	if w.noteFences(found) {
		w.Log.Info("The fences of the cluster were checked", "fences", len(wanted.fences), "underWay", underWay, "refused", refused)
		w.Hub.Changed(w.Member.Key, "")
	}
	if underWay {
		return refused, false
	}
	err := guard.RemoveFences(ctx, w.Client, w.HubID, w.Member.Fleet, stays)
	return refused, err == nil || errors.Is(err, guard.ErrForbidden) // which has time until the next check
}

// tells reports whether an error is an answer about a fence: the member does not have it, and will not. All else is
// silence, which says nothing. One fence that a member does not take must not keep it from the others.
func tells(err error) bool {
	return errors.Is(err, guard.ErrForbidden) || errors.Is(err, guard.ErrUnsupported) || apierrors.IsInvalid(err)
}

// lastOf returns what the last check has found of a fence, or ErrUnchecked, and since when it is in force.
func (w *Worker) lastOf(f guard.Fence) (s guard.FenceState, since map[string]time.Duration, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, known := w.fences.states[f.Name()]
	if !known {
		return s, nil, ErrUnchecked
	}
	return s, w.fences.since[f.Name()], w.fences.why[f.Name()]
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

// noteFences notes the states of fences, and reports whether they are news.
func (w *Worker) noteFences(found fences) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.fences
	w.fences = found
	return !maps.EqualFunc(before.states, found.states, func(a, b guard.FenceState) bool {
		return a.Settled == b.Settled && maps.Equal(a.InForce, b.InForce)
	}) ||
		!maps.EqualFunc(before.why, found.why, func(a, b error) bool {
			return (a == nil) == (b == nil) && errors.Is(a, guard.ErrForbidden) == errors.Is(b, guard.ErrForbidden) &&
				errors.Is(a, guard.ErrUnsupported) == errors.Is(b, guard.ErrUnsupported)
		})
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
	return nil
}

func (a *wantedFences) add(namespaces []corev1.Namespace, leases []coordinationv1.Lease) {
	written := map[string][]client.ObjectKey{} // by namespace
	for i := range leases {
		key := client.ObjectKeyFromObject(&leases[i])
		written[key.Namespace] = append(written[key.Namespace], key)
	}
	a.leases, a.spaces = map[types.NamespacedName]bool{}, make([]map[string]bool, len(a.fences))
	for i := range a.fences {
		a.spaces[i] = map[string]bool{}
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
