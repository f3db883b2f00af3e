package ledger

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

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

	skew time.Duration
	// known is the record as this tenure last read or wrote it. If it is nil, the next Take accepts what it finds.
	known *v1alpha1.NamespaceLeader
	// current: no other client's write was seen since known was read live or written.
	current bool
	// unanswered are the writes of the record that got no answer.
	unanswered []v1alpha1.NamespaceLeaderSpec
	versions   versions
	written    time.Duration // boot reading of this tenure's last write of the record
}

// Taken is the record as a decision took it.
type Taken struct {
	Key    types.NamespacedName // fleet and namespace
	Object *v1alpha1.NamespaceLeader
	Found  *v1alpha1.NamespaceLeaderSpec // as it is stored; nil: it does not exist
	Record election.Record               // the zero value is a lost one
	// Moved: the record is another hub's. Edited: a client that is no hub changed it. Vanished: such a client
	// deleted it. Absurd: no hub can have written its content.
	Moved, Edited, Vanished, Absurd bool
	// Deposed: the record was changed, and this replica may not be the elected one any more.
	Deposed bool
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

// dropAbsurd treats a record as lost that no hub with a right clock can have written.
func (e *Entry) dropAbsurd(now time.Time) {
	switch r := e.Record; {
	case !lease.PlausibleEpoch(now, r.Epoch):
		e.Edited, e.Absurd, e.Record = true, true, election.Record{}
	case r.Duration > lease.MaxDuration, r.Skew > lease.MaxSkew, r.Stop > seal.MaxStop:
		e.Edited, e.Absurd, e.Record = true, true, election.Record{Epoch: r.Epoch} // the epoch must not fall
	}
}

// detectEdit compares a record that was read live with the one that this tenure knows. An edit by anyone but a hub
// has no effect: the decision uses the known record, and Write restores it. If a later tenure may have written the
// record, nothing is decided any more. A new tenure has no known record, and accepts what it finds. asked is a
// reading from before the record was read.
func (l *Ledger) detectEdit(ctx context.Context, e *Entry, asked lease.Reading) {
	var known v1alpha1.NamespaceLeaderSpec
	if e.Moved = l.isOtherHubs(e.Object); e.Moved {
		e.forget() // the record is the other hub's, whatever this hub knew
	}
	last := e.known
	if last != nil {
		last.Spec.DeepCopyInto(&known)
		if e.Found != nil {
			known.Hub = e.Found.Hub // Write restores a mark that an edit removed
		}
	}
	switch changed := last != nil && !equality.Semantic.DeepEqual(e.Found, &known); { // also if deleted
	case e.isUnanswered(e.Found):
		e.unanswered = nil
		l.remember(e, e.Object, asked)
	case changed && !l.Elected(ctx):
		// A later tenure takes the election before it writes. Elected asks for that live, after the record was read.
		e.Deposed = true
	case changed:
		e.Edited = true
		if e.Vanished = e.Object == nil; e.Vanished {
			e.Object = NewRecord(e.Key)
		}
		e.Object.Spec = known
	case e.Found != nil && !e.Moved:
		l.remember(e, e.Object, asked)
	}
	if e.Object != nil {
		e.Record = RecordOf(&e.Object.Spec)
	}
}

// remember stores a record that was read or written after the reading asked. It stores nothing while an earlier
// tenure may still write, because such a write would look like an edit. It also stores nothing for another hub's
// record, which the other hub may change.
func (l *Ledger) remember(e *Entry, o *v1alpha1.NamespaceLeader, asked lease.Reading) {
	e.versions.note(o.ResourceVersion)
	if l.isOtherHubs(o) || l.Tenure.EarlierEndIn(asked, e.skew) > 0 {
		e.forget()
		return
	}
	e.known, e.current = o.DeepCopy(), true
	e.known.ManagedFields = nil // unused here, and an update without them leaves them as they are
}

// maxUnanswered is how many unanswered writes are remembered for one record.
const maxUnanswered = 10

// noteUnanswered remembers a write of the record that got no answer. It may have been applied, or may be applied
// later. The next Take accepts what it finds. After that, this write does not count as an edit. Once a write of
// this tenure was applied, no earlier one can be applied any more: each names the version that it replaces.
func (e *Entry) noteUnanswered(spec *v1alpha1.NamespaceLeaderSpec) {
	e.forget()
	e.unanswered = append(e.unanswered, *spec)
	e.unanswered = e.unanswered[max(0, len(e.unanswered)-maxUnanswered):]
}

// isUnanswered reports whether a record equals an unanswered write of this tenure.
func (e *Entry) isUnanswered(found *v1alpha1.NamespaceLeaderSpec) bool {
	return slices.ContainsFunc(e.unanswered, func(s v1alpha1.NamespaceLeaderSpec) bool {
		return equality.Semantic.DeepEqual(&s, found)
	})
}

// forget drops the known record: the next Take accepts what it finds.
func (e *Entry) forget() { e.known, e.current = nil, false }

// Recheck has the next Take read the record live, and compare it with the known one.
func (e *Entry) Recheck() { e.current = false }
