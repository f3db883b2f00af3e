package ledger

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/seal"
)

// Entry is the record of one namespace, with what this tenure remembers of it. Decisions on a namespace run one
// after the other, and own the entry.
type Entry struct {
	Taken
	Memory
	// Claim is which policies claim the namespace. It is read under the Ledger's lock, and set by SetClaim.
	Claim Claim
	// Changes are this tenure's writes of the record since the status was written, newest first. Events are the
	// events since then that are not recorded yet.
	Changes []v1alpha1.Change
	Events  []Event
	// Large: the metadata of the record is, as it was last read or written.
	Large bool

	// known is the record as this tenure last read or wrote it. If it is nil, the next Take accepts what it finds.
	known   *v1alpha1.NamespaceLeader
	recheck bool          // the next Take reads the record live
	written time.Duration // boot reading of this tenure's last write of the record
	seen    seen
}

// seen compares the versions of one record that a watch has shown with those that this tenure has read or written. It
// is read and set under the Ledger's lock.
type seen struct {
	known, shown string // the last version of each
	deleted      bool
}

// isNewer reports whether the watch has shown a version that this tenure has not read or written.
func (s seen) isNewer() bool {
	order, err := resourceversion.CompareResourceVersion(s.shown, s.known)
	return s.deleted || s.shown != "" && (err != nil || order > 0)
}

// Taken is the record as a decision took it.
type Taken struct {
	Key    types.NamespacedName // fleet and namespace
	Object *v1alpha1.NamespaceLeader
	Found  *v1alpha1.NamespaceLeaderSpec // as it is stored; nil: it does not exist
	Record election.Record               // the zero value is a lost one
	// Moved: the record is another hub's. Restored: Object is the record that this tenure knows. What is stored is
	// older, or gone, and Write replaces it.
	Moved, Restored bool
}

// Memory is what this tenure remembers for its decisions.
type Memory struct {
	Granted int64 // the last epoch that this tenure granted
	Adopted int64 // the last epoch that it adopted from a Lease
	Highest int64 // the highest epoch that it saw in the record
	// OtherHub is the time until which another hub can have written: it was seen to own the record, or to lead by
	// its Leases. OtherSeen: the last decision saw it. OtherBounds are the largest D and ε of its Leases.
	OtherHub    time.Time
	OtherSeen   bool
	OtherBounds seal.Bounds
	// Lost holds, for each unreachable cluster, the boot reading since when. It is kept only where the policy
	// fences locks.
	Lost map[string]time.Duration
	// AbleSince and FitSince hold, by cluster, the boot reading since when every decision found it able to lead, and for
	// FitSince all that is required healthy. FitSince is kept only where the policy fails back, or requires something.
	AbleSince, FitSince map[string]time.Duration
	// UnhealthySince holds, by cluster, the boot reading since when every decision found that something required was
	// not healthy there. It is kept only where the policy requires something.
	UnhealthySince map[string]time.Duration
}

// Claim names the policies that select a namespace, and the one that owns it.
type Claim struct {
	Owner  string
	Losers string // comma-separated
}

// Event is an event about a record that is not recorded yet.
type Event struct {
	Kind    string // Normal or Warning
	Reason  reason.Reason
	Message string
}

// largeMetadata is the size of metadata, in bytes, from which on an API server is busy with the record for a while.
const largeMetadata = 16 << 10

// maxAnnotation bounds each annotation that is kept, in bytes.
const maxAnnotation = 1 << 10

// accept takes a record that was read live; nil: there is none. API servers refuse edits of its spec by others. But
// a record can be deleted, or created again from a backup. Then the known one counts. A known epoch that no reader
// accepts comes from a clock that was ahead, and people delete the record to be rid of it.
func (l *Ledger) accept(e *Entry, found *v1alpha1.NamespaceLeader, now time.Time) {
	e.Object = found
	if found != nil {
		e.Found = &found.Spec
	}
	if e.Moved = l.isOtherHubs(found); !e.Moved && e.isOlder(found) && lease.PlausibleEpoch(now, e.known.Spec.Epoch) {
		e.Restored, e.recheck = true, true
		if e.Object = NewRecord(e.Key); found != nil {
			e.Object = found.DeepCopy() // what was found may be shared
		}
		e.known.Spec.DeepCopyInto(&e.Object.Spec)
		return
	}
	l.remember(e, found)
}

// isOlder reports whether a record that was found is older than the known one.
func (e *Entry) isOlder(found *v1alpha1.NamespaceLeader) bool {
	switch {
	case e.known == nil:
		return false
	case found == nil || found.Spec.Epoch < e.known.Spec.Epoch:
		return true
	default:
		return found.Spec.Epoch == e.known.Spec.Epoch && found.UID != e.known.UID &&
			!equality.Semantic.DeepEqual(&found.Spec, &e.known.Spec)
	}
}

// remember stores a record that was read or written. It stores nothing for another hub's record: what becomes of that
// is the other hub's.
func (l *Ledger) remember(e *Entry, o *v1alpha1.NamespaceLeader) {
	e.Large = o != nil && o.ObjectMeta.Size() > largeMetadata
	if o == nil || l.isOtherHubs(o) {
		e.known = nil
		return
	}
	if e.known = o.DeepCopy(); e.Large {
		Slim(e.known)
	}
	e.known.ManagedFields = nil // unused here, and an update without them leaves them as they are
	l.mu.Lock()
	defer l.mu.Unlock()
	e.seen.known = o.ResourceVersion
}

// Slim drops from a record or policy the metadata that the hub does not use, which may be large. Patches and updates of
// a status leave it as it is.
func Slim(o client.Object) {
	kept := map[string]string{}
	for _, key := range []string{
		v1alpha1.RecordAnnotation, v1alpha1.FrozenUntilAnnotation, v1alpha1.FrozenReasonAnnotation,
		v1alpha1.MoveToAnnotation, v1alpha1.MoveReasonAnnotation, v1alpha1.RebalanceAtAnnotation,
	} {
		if value, ok := o.GetAnnotations()[key]; ok {
			kept[key] = strings.Clone(value[:min(len(value), maxAnnotation)])
		}
	}
	o.SetManagedFields(nil)
	o.SetAnnotations(kept)
	o.SetLabels(nil)
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
}

// Recheck has the next Take read the record live.
func (e *Entry) Recheck() { e.recheck = true }

// NewRecord returns the record of a namespace that had none.
func NewRecord(key types.NamespacedName) *v1alpha1.NamespaceLeader {
	o := &v1alpha1.NamespaceLeader{}
	o.Namespace, o.Name = key.Namespace, key.Name
	o.Labels = map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.MoveLabel: ""}
	return o
}
