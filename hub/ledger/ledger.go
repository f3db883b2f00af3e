package ledger

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/tenure"
)

// Options are what a Ledger works with. All are required.
type Options struct {
	Client client.Client // reads from the cache
	Live   client.Reader // reads records from the API server
	Tenure *tenure.Tenure
	Clock  lease.Clock
	// HubID is the mark of this installation (see seal.Mark). It is on all records and Leases that the hub writes.
	HubID string
}

// Ledger holds the entries of all namespaces. It is safe for concurrent use, with one decision on a namespace at a
// time.
type Ledger struct {
	*Options

	mu      sync.Mutex // guards what follows, and the claims in entries; never held across I/O
	entries map[types.NamespacedName]*Entry
	owners  map[types.NamespacedName]string // the policy that each record names, as a watch shows it
	written time.Duration                   // boot reading of this tenure's last write of any record
}

// New returns an empty Ledger. Its clients may be set until it is used.
func New(o *Options) *Ledger {
	return &Ledger{Options: o, entries: map[types.NamespacedName]*Entry{}, owners: map[types.NamespacedName]string{}}
}

// Take returns the entry of a namespace for one decision. It reads the record live once. After that it uses what
// this tenure wrote last, until a watch shows another client's write or a write fails. A decision on an outdated
// record does no harm: its write fails (compare-and-swap). No other tenure decides before this one has lost the
// right to act. The caller must Return the entry.
func (l *Ledger) Take(ctx context.Context, key types.NamespacedName) (*Entry, error) {
	e, current := l.entry(key)
	e.Taken = Taken{Key: key}
	if current {
		e.Object, e.Found = e.known, &e.known.Spec // shared: must not be changed
	} else {
		found := &v1alpha1.NamespaceLeader{}
		switch err := l.Live.Get(ctx, key, found); {
		case apierrors.IsNotFound(err):
			found = nil
		case err != nil:
			e.Recheck()
			return e, fmt.Errorf("record %s: %w", key, err)
		}
		l.observeEarlier(e, found)
		l.accept(e, found, l.Clock.Now().Wall)
	}
	if e.Object != nil {
		e.Record = RecordOf(&e.Object.Spec)
	}
	return e, nil
}

// observeEarlier has the tenure know when an earlier one was at work, if a record that is read first shows that.
func (l *Ledger) observeEarlier(e *Entry, found *v1alpha1.NamespaceLeader) {
	if e.known != nil || found == nil || found.Spec.Hub != l.HubID || found.Spec.Since == nil {
		return
	}
	if started, _ := l.Tenure.Started(); !found.Spec.Since.After(started.Wall) {
		l.Tenure.ObserveEarlier(found.Spec.Since.Time)
	}
}

// entry returns the entry of a namespace, and creates it if necessary. current: no other client's write was seen since
// the record was read or written. Otherwise the caller reads it live.
func (l *Ledger) entry(key types.NamespacedName) (e *Entry, current bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e = l.entries[key]; e == nil {
		e = &Entry{}
		l.entries[key] = e
	}
	if current = e.known != nil && !e.recheck && !e.seen.isNewer(); !current {
		e.recheck, e.seen = false, seen{}
	}
	return e, current
}

// Return ends a decision. The entry keeps what this tenure remembers, and not the object that the decision took. Most
// namespaces of a member are unowned: nothing of them is kept.
func (l *Ledger) Return(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Claim == (Claim{}) && e.Object == nil && e.known == nil && e.Highest == 0 {
		delete(l.entries, e.Key)
	}
	e.Taken = Taken{}
}

// Change is what a decision makes of a record.
type Change struct {
	Record  election.Record
	Persist bool   // Record differs from the one that the decision was based on
	Policy  string // the owner; empty: the record keeps the one that it names
	// TakesOver: another hub's record gets the mark of this one.
	TakesOver bool
	Message   string // for the history: the words of the operator who ordered the change
}

// Write stores the record of a decision by compare-and-swap, before anything depends on it. It returns false if the
// stored record has that content already.
func (l *Ledger) Write(ctx context.Context, e *Entry, is Change) (written bool, err error) {
	if !is.Persist && (e.Object == nil || l.isStored(e, is)) {
		return false, nil
	}
	object := l.recordFor(e, is)
	if equal(e.Found, &object.Spec) {
		return false, nil
	}
	if !l.Tenure.Holds() {
		return false, fmt.Errorf("record %s: the right to write is lost", e.Key)
	}
	logger := log.FromContext(ctx).WithValues("namespaceLeader", klog.KRef(e.Key.Namespace, e.Key.Name))
	switch {
	case e.Restored:
		logger.Info("A record that was deleted, or created again from a backup, is restored", "reason", reason.RecordRestored)
	case is.TakesOver:
		logger.Info("A record of another hub is taken over", "leader", is.Record.Leader, "epoch", is.Record.Epoch,
			"from", e.Found.Hub, "reason", reason.Moved)
	}
	if err := l.write(ctx, e, object); err != nil {
		return false, err
	}
	if is.Message != "" {
		e.Changes[0].Message = is.Message
	}
	switch r := is.Record; {
	case r.State != election.Leading:
	case r.Reason == reason.Adopted:
		e.Adopted = r.Epoch
	case r.Epoch != e.Record.Epoch:
		e.Granted = r.Epoch
	}
	return true, nil
}

// RemoveOrder removes an operator's order to move the namespace from the record.
func (l *Ledger) RemoveOrder(ctx context.Context, e *Entry) error {
	if !l.Tenure.Holds() {
		return fmt.Errorf("record %s: the right to write is lost", e.Key)
	}
	without := e.Object.DeepCopy()
	delete(without.Annotations, v1alpha1.MoveToAnnotation)
	delete(without.Annotations, v1alpha1.MoveReasonAnnotation)
	patch := client.MergeFromWithOptions(e.Object, client.MergeFromWithOptimisticLock{})
	if err := l.Client.Patch(ctx, without, patch); err != nil {
		return fmt.Errorf("record %s: remove %s: %w", e.Key, v1alpha1.MoveToAnnotation, err)
	}
	l.remember(e, without)
	e.Object, e.Found = without, &without.Spec
	return nil
}

// isStored reports whether the stored record is the one that the decision was based on.
func (l *Ledger) isStored(e *Entry, is Change) bool {
	return !e.Restored && (e.Moved && !is.TakesOver || e.Found.Hub == l.HubID) &&
		(is.Policy == "" || e.Found.Policy == is.Policy)
}

// recordFor returns the record that a decision asks for.
func (l *Ledger) recordFor(e *Entry, is Change) *v1alpha1.NamespaceLeader {
	object := e.Object.DeepCopy()
	if object == nil {
		object = NewRecord(e.Key)
	}
	Store(is.Record, &object.Spec)
	if !e.Moved || is.TakesOver {
		object.Spec.Hub = l.HubID
		if e.Found != nil {
			metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1alpha1.RecordAnnotation, string(object.UID))
		}
	}
	if is.Policy != "" {
		object.Spec.Policy = is.Policy
	}
	return object
}

// write stores a record, and remembers it.
func (l *Ledger) write(ctx context.Context, e *Entry, object *v1alpha1.NamespaceLeader) error {
	store := func() error { return l.Client.Update(ctx, object) }
	switch {
	case e.Found == nil:
		store = func() error { return l.Client.Create(ctx, object) }
	case e.Large: // what is known of it is not all. API servers take longer for patches, so others are updated.
		was := e.Object.DeepCopy()
		was.Spec = *e.Found
		patch := client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
		store = func() error { return l.Client.Patch(ctx, object, patch) }
	}
	sent := l.Clock.Now()
	if err := store(); err != nil {
		if e.Found == nil && !apierrors.IsAlreadyExists(err) {
			e.known = nil // a creation that may have been applied: the next Take accepts what it finds
		}
		return fmt.Errorf("write record %s: %w", e.Key, err)
	}
	e.Object, e.written, e.Changes = object, sent.Boot, History(RecordOf(&object.Spec), e.Changes)
	l.mu.Lock()
	l.written = max(l.written, sent.Boot)
	l.mu.Unlock()
	l.remember(e, object)
	return nil
}

// equal compares the contents of two objects. Most are equal in each bit, which is fast to see.
func equal(a, b any) bool { return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b) }

const (
	// statusWaits is how long a status waits after this replica has written any record. When many namespaces change
	// their leaders at once, their records come first.
	statusWaits = time.Second
	// statusLatest is how long a status waits for other records at most, counted from the write of its own record.
	statusLatest = 10 * time.Second
)

// StatusDueIn returns how long the status of a record must wait.
func (l *Ledger) StatusDueIn(e *Entry) time.Duration {
	if e.written == 0 {
		return 0 // this tenure has not written the record
	}
	l.mu.Lock()
	last := l.written
	l.mu.Unlock()
	return max(0, min(last+statusWaits, e.written+statusLatest)-l.Clock.Now().Boot)
}

// WriteStatus writes the status of a record, if it has changed.
func (l *Ledger) WriteStatus(ctx context.Context, e *Entry, status v1alpha1.NamespaceLeaderStatus) error {
	status.ObservedGeneration = e.Object.Generation
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = e.Object.Generation
	}
	was := e.Object.Status.Decisions
	if equal(&e.Object.Status, &status) &&
		(was == nil) == (status.Decisions == nil) { // an absent list equals an empty one otherwise
		return nil
	}
	object := e.Object.DeepCopy()
	object.Status = status
	if !l.Tenure.Holds() {
		return fmt.Errorf("status of record %s: the right to write is lost", e.Key)
	}
	switch err := l.Client.Status().Update(ctx, object); {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // a watch shows that
		e.Recheck()
		return nil
	case err != nil:
		return fmt.Errorf("write status of record %s: %w", e.Key, err)
	}
	e.Object, e.Changes = object, nil
	l.remember(e, object)
	return nil
}

// Delete deletes a record that nothing depends on any more. It returns false if there was none.
func (l *Ledger) Delete(ctx context.Context, e *Entry) (deleted bool, err error) {
	e.known = nil
	if e.Found == nil {
		return false, nil
	}
	o := e.Object
	err = l.Client.Delete(ctx, o, client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion})
	if err = client.IgnoreNotFound(err); err != nil {
		return false, fmt.Errorf("delete record %s: %w", e.Key, err)
	}
	return true, nil
}

// Drop forgets a namespace without a record.
func (l *Ledger) Drop(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, e.Key)
}

// Show records what a watch shows of a record. It returns false for a version that this tenure has read or written. So
// it does for the deletion of a record of which this tenure remembers nothing.
func (l *Ledger) Show(o *v1alpha1.NamespaceLeader, deleted bool) (changed bool) {
	key := client.ObjectKeyFromObject(o)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owners[key] = o.Spec.Policy
	if deleted {
		delete(l.owners, key)
	}
	e := l.entries[key]
	if e == nil {
		return !deleted
	}
	e.seen.shown, e.seen.deleted = o.ResourceVersion, e.seen.deleted || deleted
	return e.seen.isNewer()
}

// Owner returns the policy that a record names, as a watch shows it. It returns false if there is no record.
func (l *Ledger) Owner(key types.NamespacedName) (policy string, recorded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	policy, recorded = l.owners[key]
	return policy, recorded
}

// Knows reports whether a watch has shown a record of a namespace, or this tenure has state for it.
func (l *Ledger) Knows(key types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, recorded := l.owners[key]
	return recorded || l.entries[key] != nil
}

// Cached returns the records of a fleet from a cache. The caller must not change them.
func (l *Ledger) Cached(ctx context.Context, fleetName string) ([]v1alpha1.NamespaceLeader, error) {
	var list v1alpha1.NamespaceLeaderList
	err := l.Client.List(ctx, &list, client.InNamespace(fleetName), client.UnsafeDisableDeepCopy)
	return list.Items, err
}

// CachedOf returns the records of some namespaces of a fleet, as far as a cache has them. The caller must not change
// them.
func (l *Ledger) CachedOf(ctx context.Context, fleetName string, names []string) (
	records []*v1alpha1.NamespaceLeader,
) {
	for _, name := range names {
		o := &v1alpha1.NamespaceLeader{}
		key := types.NamespacedName{Namespace: fleetName, Name: name}
		if l.Client.Get(ctx, key, o, client.UnsafeDisableDeepCopy) == nil {
			records = append(records, o)
		}
	}
	return records
}

// Relinquish takes this hub's mark off the records of a fleet. It skips another hub's records.
func (l *Ledger) Relinquish(ctx context.Context, fleetName string) error {
	var list v1alpha1.NamespaceLeaderList
	if err := l.Client.List(ctx, &list, client.InNamespace(fleetName)); err != nil {
		return err
	}
	for i := range list.Items {
		o := &list.Items[i]
		if l.isOtherHubs(o) {
			continue
		}
		changed := o.DeepCopy()
		changed.Spec.Hub = v1alpha1.NoHub
		patch := client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{})
		if err := l.Client.Patch(ctx, changed, patch); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// isOtherHubs reports whether a record carries another hub's mark. Then it came by a move, or is a copy, or this hub
// has relinquished it.
func (l *Ledger) isOtherHubs(o *v1alpha1.NamespaceLeader) bool {
	return o != nil && o.Spec.Hub != "" && o.Spec.Hub != l.HubID
}

// SetClaim remembers which policies claim a namespace, and returns what it replaces.
func (l *Ledger) SetClaim(e *Entry, is Claim) (was Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, e.Claim = e.Claim, is
	return was
}

// Claims calls yield for the claim on each namespace of a fleet.
func (l *Ledger) Claims(fleetName string, yield func(namespace string, of Claim)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.entries {
		if key.Namespace == fleetName {
			yield(key.Name, e.Claim)
		}
	}
}

// History puts a record before the past changes, newest first.
func History(r election.Record, past []v1alpha1.Change) []v1alpha1.Change {
	return Newest(v1alpha1.Change{
		Time: metav1.NewMicroTime(r.Since), Leader: r.Leader, Epoch: r.Epoch, State: v1alpha1.RecordState(r.State),
		Reason: r.Reason,
	}, past)
}

// Newest puts a change before the past ones, unless it has the leader, epoch and state of the last one.
func Newest(is v1alpha1.Change, past []v1alpha1.Change) []v1alpha1.Change {
	if len(past) > 0 && past[0].Leader == is.Leader && past[0].Epoch == is.Epoch && past[0].State == is.State {
		return past
	}
	past = slices.Insert(past, 0, is)
	return past[:min(len(past), v1alpha1.MaxHistory)]
}
