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

// self is what every copy in a member has in common.
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
	ours     bool // sealed by this hub for this member, but for an edit of the marks that say so
	labelled bool
	watched  bool // a watch has shown it so: when that changes, it will tell
}

// leaseSyncer is the state machine of one copy. It is not safe for concurrent use.
type leaseSyncer struct {
	namespace, name string
	self            self
	want            lease.Assignment
	timings         Timings
	known           known
	ownUID          types.UID // the last Lease that was certainly a copy of ours: an edit of it is ours to repair

	// What was stamped last for want's term, by this tenure.
	sentEpoch int64
	sent      lease.Term

	observations       int           // how often the watch told something new
	conflicts          int           // in a row
	failedWrites       int           // writes in a row that failed
	retryAt            time.Duration // boot reading until which nothing is written; zero: it may be
	writeTried         bool          // futureSince the copy was lost, whether it can be written
	futureRenewTime    time.Time     // a stamp of the future that stands
	futureSince        time.Duration // boot reading when it was first found to be one
	createPendingUntil time.Duration // boot reading until which a leader's copy may still be made by a request without an answer
	parked             bool          // waits until the member is heard of
	relinquished       bool          // the mark of this hub goes, and nothing is stamped any more
	lookAgain          time.Duration // boot reading from when on a blocked syncer reads again
	status             SyncStatus
	reported           SyncStatus // what the controller was told last, without the message
}

// statusChanged reports whether the controller should look at the facts again, and takes it
// that it will.
func (l *leaseSyncer) statusChanged() bool {
	f := l.status.withoutMessages()
	if f == l.reported {
		return false
	}
	l.reported = f
	return true
}

// assign replaces what the copy has to be. An older epoch than the present one comes
// from a record that was read too early, and is ignored.
//
// What is known of the copy as it had to be before says nothing of the one to come. A
// Fresh is asked for once: what became of it stays known, and is tried for, when the
// next assignment of the same term asks somebody else.
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
		l.status.Released, l.writeTried = 0, false
		marked, unmarked := l.reported.Marked, l.reported.Unmarked
		l.reported = l.status.withoutMessages()
		l.reported.Marked, l.reported.Unmarked = marked, unmarked
	}
	if l.want, l.timings = a, t; a.Role == lease.Absent {
		l.noteSuccess() // nothing is to be written any more, so nobody would find out that it can be
	}
}

// observe takes in a copy as a watch showed it. The version that is known is no news, if it
// says what is known. An older one may be late or, if the member's etcd was restored, the
// present one: that is for a read to say, and so is which of two objects of one name, or of
// one version, is the newer.
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

// sameContent reports whether two objects of one version say the same. They do, unless the member's
// etcd was restored: then it gives versions a second time.
func sameContent(a, b *coordinationv1.Lease) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

// observeGone takes in that a watch no longer shows the copy. The watch shows labelled Leases
// only, so the copy may have lost its label: a read must say.
func (l *leaseSyncer) observeGone() {
	l.observations++
	l.invalidate()
}

// setKnown takes in a live answer: the copy, or nil for none.
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

// isOwn reports whether a seal is that of a copy of this syncer, but for an edit of the
// marks that say so.
func (l *leaseSyncer) isOwn(c lease.Content, seal string) bool {
	if c.Cluster == l.self.cluster && c.ClusterUID == l.self.uid && c.Hub == l.self.hub {
		return l.known.sealed
	}
	c.Cluster, c.ClusterUID, c.Hub = l.self.cluster, l.self.uid, l.self.hub
	return lease.Sealed(l.self.key, c, seal)
}

// invalidate takes in that what is known may be out of date: a read must say.
func (l *leaseSyncer) invalidate() { l.known.read = false }
