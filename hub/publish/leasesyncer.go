package publish

import (
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// self is the part that all Leases of this hub in one member share.
type self struct {
	cluster, uid, hub string
	key               seal.Key
}

// known is the Lease in the member, as far as it is known.
type known struct {
	read     bool                  // false: unknown until a live read
	lease    *coordinationv1.Lease // nil: it does not exist. Without read: the newest version seen
	content  lease.Content
	sealed   bool
	ours     bool // sealed by this hub for this member; edits of the annotations that name both do not count
	labelled bool
	watched  bool // a watch has shown this state, and will show a change of it
}

// leaseSyncer is the state machine of one Lease. It is not safe for concurrent use.
type leaseSyncer struct {
	namespace, name string
	self            self
	want            assign.Assignment
	timings         Timings
	known           known
	ownUID          types.UID // the UID of the last Lease that was certainly ours: an edit of that Lease is repaired

	// sentEpoch and sent are this tenure's last promise for the term in want.
	sentEpoch int64
	sent      lease.Term

	observations       int           // how often the watch showed a change
	conflicts          int           // in a row
	failedWrites       int           // writes in a row that failed
	retryAt            time.Duration // boot reading until which nothing is written, or zero
	refusedSince       time.Duration // boot reading from which rejected renewals count, or zero
	writtenAt          time.Duration // boot reading of the last write in this role and term, or zero
	writeTried         bool          // since the term was lost, a write was tried
	futureRenewTime    time.Time     // a renewTime in the future that was read
	futureSince        time.Duration // boot reading when it was first found to be in the future
	createPendingUntil time.Duration // boot reading until which an unanswered request may still create a leader's Lease
	parked             bool          // waits until the member answers another request
	relinquished       bool          // this hub's mark is removed, and nothing is renewed any more
	following          time.Duration // boot reading when a follower's Lease was first found to name an earlier leader
	lookAgain          time.Duration // boot reading from which a blocked syncer reads again
	status             SyncStatus
	reported           SyncStatus // the status that the controller was last called for, without its messages
}

// statusChanged reports whether the status has changed since the controller was last called. If so, the caller must
// call it.
func (l *leaseSyncer) statusChanged() bool {
	f := l.status.withoutMessages()
	if f == l.reported {
		return false
	}
	l.reported = f
	return true
}

// assign replaces the content that the Lease must have. It ignores an assignment with an older epoch than the
// present one, which comes from a record that was read too early.
//
// A new role or term clears the old one's status. A MinRenewTime stays in force, with its outcome, if the next
// assignment of the same term has none.
func (l *leaseSyncer) assign(a assign.Assignment, t Timings) {
	if a.Role != assign.Absent && a.Term.Epoch < l.want.Term.Epoch {
		return
	}
	same := a.Role == l.want.Role && a.Term.SameTerm(l.want.Term)
	if same && a.MinRenewTime.IsZero() {
		a.MinRenewTime = l.want.MinRenewTime
	}
	if !same || !a.MinRenewTime.Equal(l.want.MinRenewTime) {
		l.status.InPlace, l.status.Refused, l.status.Lost, l.status.MinRenewTime = false, false, false, a.MinRenewTime
		l.status.Released, l.writeTried, l.following, l.refusedSince, l.writtenAt = 0, false, 0, 0, 0
		marked, unmarked := l.reported.Marked, l.reported.Unmarked
		l.reported = l.status.withoutMessages()
		l.reported.Marked, l.reported.Unmarked = marked, unmarked
	}
	if l.want, l.timings = a, t; a.Role == assign.Absent {
		l.noteSuccess() // nothing is written any more, so no later write clears the failures
	}
}

// observe records a Lease from a watch. The known version with the same content is ignored. An older version may be
// late, or may be the present one after a restore of the member's etcd: a read must show which. A read also shows
// which of two objects of one name, or of one version, is newer.
func (l *leaseSyncer) observe(obj *coordinationv1.Lease) {
	k := l.known.lease
	if k != nil && k.UID == obj.UID && k.ResourceVersion == obj.ResourceVersion && sameContent(k, obj) {
		l.known.watched, l.lookAgain = true, 0
		return
	}
	l.observations++
	if k != nil {
		newer, err := resourceversion.CompareResourceVersion(obj.ResourceVersion, k.ResourceVersion)
		if k.UID != obj.UID || err != nil || newer <= 0 {
			l.invalidate()
			return
		}
	}
	l.setKnown(obj)
	l.known.watched, l.lookAgain = true, 0
}

// sameContent reports whether two objects of one version have the same content. They have, unless the member's etcd
// was restored: it then uses versions a second time.
func sameContent(a, b *coordinationv1.Lease) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(a.Annotations, b.Annotations)
}

// observeGone records that a watch no longer shows the Lease. The watch shows labelled Leases only, so the Lease
// may just have lost its label. A read must show it.
func (l *leaseSyncer) observeGone() {
	l.observations++
	l.invalidate()
}

// setKnown records a live answer: the Lease, or nil if it does not exist.
func (l *leaseSyncer) setKnown(obj *coordinationv1.Lease) {
	l.known = known{read: true, lease: obj}
	if obj == nil {
		return
	}
	c, seal := wire.Read(obj)
	l.known.content, l.known.sealed, l.known.labelled = c, l.self.key.Sealed(c, seal), wire.Labelled(obj)
	if l.known.ours = l.isOwn(c, seal); l.known.ours {
		l.ownUID = obj.UID
	}
}

// isOwn reports whether the seal is right for a Lease of this syncer. Edits of the annotations that name the
// cluster and the hub do not count.
func (l *leaseSyncer) isOwn(c lease.Content, seal string) bool {
	if c.Cluster == l.self.cluster && c.ClusterUID == l.self.uid && c.Hub == l.self.hub {
		return l.known.sealed
	}
	c.Cluster, c.ClusterUID, c.Hub = l.self.cluster, l.self.uid, l.self.hub
	return l.self.key.Sealed(c, seal)
}

// invalidate marks the known Lease as possibly out of date. A read must follow.
func (l *leaseSyncer) invalidate() { l.known.read = false }
