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
)

// self is what all Leases of this hub in one member have in common.
type self struct {
	cluster, uid, hub string
	key               lease.Key
}

// known is what is known to be in the member.
type known struct {
	read     bool                  // false: nothing is known, a live read must say
	lease    *coordinationv1.Lease // nil: there is none. Without read: the newest that was seen
	content  lease.Content
	sealed   bool
	ours     bool // sealed by this hub for this member, apart from edits of the annotations that say so
	labelled bool
	watched  bool // a watch has shown it so, and will show when that changes
}

// leaseSyncer is the state machine of one Lease. It is not safe for concurrent use.
type leaseSyncer struct {
	namespace, name string
	self            self
	want            lease.Assignment
	timings         Timings
	known           known
	ownUID          types.UID // the UID of the last Lease that was certainly ours: an edit of that one is repaired

	// sentEpoch and sent are what this tenure promised last for the term in want.
	sentEpoch int64
	sent      lease.Term

	observations       int           // how often the watch showed something new
	conflicts          int           // in a row
	failedWrites       int           // writes in a row that failed
	retryAt            time.Duration // boot reading until which nothing is written; zero: it may be
	refusedSince       time.Duration // boot reading from which refused renewals count; zero: the last one was not refused
	writtenAt          time.Duration // boot reading of the last write in this role and term; zero: there was none
	writeTried         bool          // since the term was lost: whether a write was tried
	futureRenewTime    time.Time     // a renewTime in the future that was read
	futureSince        time.Duration // boot reading when it was first found to be in the future
	createPendingUntil time.Duration // boot reading until which a request without an answer may still create a leader's Lease
	parked             bool          // waits until the member answers another request
	relinquished       bool          // the mark of this hub goes, and nothing is renewed any more
	following          time.Duration // boot reading when a follower's Lease was first found to name an earlier leader
	lookAgain          time.Duration // boot reading from which on a blocked syncer reads again
	status             SyncStatus
	reported           SyncStatus // the status that the controller was called for last, without its messages
}

// statusChanged reports whether the controller should look at the status again. The caller then has to call
// it.
func (l *leaseSyncer) statusChanged() bool {
	f := l.status.withoutMessages()
	if f == l.reported {
		return false
	}
	l.reported = f
	return true
}

// assign replaces what the Lease has to say. An assignment with an older epoch than the present one comes
// from a record that was read too early. It is ignored.
//
// A new role or term clears what the status says of the old one. MinRenewTime is asked for once: it stays in
// force, with its outcome, when the next assignment of the same term asks for nobody's.
func (l *leaseSyncer) assign(a lease.Assignment, t Timings) {
	if a.Role != lease.Absent && a.Term.Epoch < l.want.Term.Epoch {
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
	if l.want, l.timings = a, t; a.Role == lease.Absent {
		l.noteSuccess() // nothing is written any more, so no later write clears the failures
	}
}

// observe notes a Lease that a watch shows. The version that is known says nothing new, if its content is the
// same. An older version may be late, or the present one if the member's etcd was restored. Which one, a read
// must tell. A read also tells which of two objects of one name, or of one version, is the newer.
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

// sameContent reports whether two objects of one version say the same. They do, unless the member's etcd was
// restored: it then uses versions a second time.
func sameContent(a, b *coordinationv1.Lease) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

// observeGone notes that a watch no longer shows the Lease. The watch shows labelled Leases only, so the
// Lease may just have lost its label. A read must tell.
func (l *leaseSyncer) observeGone() {
	l.observations++
	l.invalidate()
}

// setKnown notes a live answer: the Lease, or nil for none.
func (l *leaseSyncer) setKnown(obj *coordinationv1.Lease) {
	l.known = known{read: true, lease: obj}
	if obj == nil {
		return
	}
	c, seal := wire.Read(obj)
	l.known.content, l.known.sealed, l.known.labelled = c, lease.Sealed(l.self.key, c, seal), wire.Labelled(obj)
	if l.known.ours = l.isOwn(c, seal); l.known.ours {
		l.ownUID = obj.UID
	}
}

// isOwn reports whether the seal is that of a Lease of this syncer, apart from edits of the annotations that
// say so.
func (l *leaseSyncer) isOwn(c lease.Content, seal string) bool {
	if c.Cluster == l.self.cluster && c.ClusterUID == l.self.uid && c.Hub == l.self.hub {
		return l.known.sealed
	}
	c.Cluster, c.ClusterUID, c.Hub = l.self.cluster, l.self.uid, l.self.hub
	return lease.Sealed(l.self.key, c, seal)
}

// invalidate notes that what is known may be out of date. A read must tell.
func (l *leaseSyncer) invalidate() { l.known.read = false }
