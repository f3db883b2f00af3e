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

// see returns what a live answer shows: the Lease, or nil if it does not exist.
func (s self) see(obj *coordinationv1.Lease) known {
	if obj == nil {
		return known{read: true}
	}
	c, mac := wire.Read(obj)
	k := known{read: true, lease: obj, content: c, sealed: s.key.Sealed(c, mac), labelled: wire.Labelled(obj)}
	k.marked = k.sealed && c.Hub == s.hub
	if k.ours = k.sealed; c.Cluster != s.cluster || c.ClusterUID != s.uid || c.Hub != s.hub {
		own := c
		own.Cluster, own.ClusterUID, own.Hub = s.cluster, s.uid, s.hub
		k.ours = s.key.Sealed(own, mac)
	}
	return k
}

// known is the Lease in the member, as far as it is known.
type known struct {
	read     bool                  // false: unknown until a live read
	lease    *coordinationv1.Lease // nil: it does not exist. Without read: the newest version seen
	content  lease.Content
	sealed   bool
	ours     bool // sealed by this hub for this member; edits of the annotations that name both do not count
	marked   bool // it carries the mark of this hub
	labelled bool
	watched  bool // a watch has shown this state, and will show a change of it
}

// invalidate marks the known Lease as possibly out of date. A read must follow.
func (k *known) invalidate() { k.read = false }

// mayBeHubs reports whether a Lease is, was or may be one that a hub has written. own is the UID of the last Lease
// that was certainly this hub's. A Lease that a hub has relinquished still names its cluster.
func (k *known) mayBeHubs(own types.UID) bool {
	named := k.content.Hub != "" || k.content.Cluster != ""
	return !k.read || k.ours || k.sealed || named || k.lease != nil && k.lease.UID == own
}

// leaseSyncer is the state machine of one Lease. It is not safe for concurrent use.
type leaseSyncer struct {
	key     types.NamespacedName // of its Lease
	self    self
	want    assign.Assignment
	timings Timings
	known   known
	ownUID  types.UID // the UID of the last Lease that was certainly ours: an edit of that Lease is repaired

	sent     lease.Term    // this tenure's last promise for the term in want
	sentBoot time.Duration // the boot reading at that promise

	observations       int           // how often the watch showed a change
	conflicts          int           // in a row
	failedWrites       int           // writes in a row that failed
	retryAt            time.Duration // boot reading until which nothing is written, or zero
	refusedSince       time.Duration // boot reading from which rejected renewals count, or zero
	writtenAt          time.Duration // boot reading of the last write in this role and term, or zero
	writeTried         bool          // since the term was lost, a write was tried
	future             future
	createPendingUntil time.Duration // boot reading until which an unanswered request may still create a leader's Lease
	relinquished       bool          // this hub's mark is removed, and nothing is renewed any more
	following          time.Duration // boot reading when a follower's Lease was first found to name an earlier leader
	lookAgain          time.Duration // boot reading from which a blocked syncer reads again
	status             SyncStatus
	reported           reported
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
		l.writeTried, l.following, l.refusedSince, l.writtenAt = false, 0, 0, 0
		l.reported.restart(l.status)
	}
	if l.want, l.timings = a, t; a.Role == assign.Absent {
		l.noteSuccess() // nothing is written any more, so no later write clears the failures
	}
}

// observe records a Lease from a watch, or nil if the watch no longer shows it. The known version with the same content
// is ignored. An older version may be late, or may be the present one after a restore of the member's etcd: a read must
// show which. A read also shows which of two objects of one name, or of one version, is newer. The watch shows labelled
// Leases only, so a Lease that it no longer shows may just have lost its label: a read must show that, too.
func (l *leaseSyncer) observe(obj *coordinationv1.Lease) {
	k := l.known.lease
	if l.known.isStill(obj) {
		l.known.lease = obj // shared with the cache: one copy is kept
		l.known.watched, l.lookAgain = true, 0
		return
	}
	l.observations++
	if obj == nil {
		l.known.invalidate()
		l.known.watched = false
		return
	}
	if k != nil {
		newer, err := resourceversion.CompareResourceVersion(obj.ResourceVersion, k.ResourceVersion)
		if k.UID != obj.UID || err != nil || newer <= 0 {
			l.known.invalidate()
			l.known.watched = false
			return
		}
	}
	l.setKnown(obj)
	l.known.watched, l.lookAgain = true, 0
}

// isStill reports whether an object is the known one in the known version.
func (k *known) isStill(obj *coordinationv1.Lease) bool {
	return k.lease != nil && obj != nil && k.lease.UID == obj.UID &&
		k.lease.ResourceVersion == obj.ResourceVersion && sameContent(k.lease, obj)
}

// sameContent reports whether two objects of one version have the same content. They have, unless the member's etcd
// was restored: it then uses versions a second time. An informer shows the same object again when it resyncs.
func sameContent(a, b *coordinationv1.Lease) bool {
	return a == b || equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(a.Annotations, b.Annotations)
}

// setKnown records a live answer: the Lease, or nil if it does not exist. A watch sends no state twice, so what it has
// shown stays shown.
func (l *leaseSyncer) setKnown(obj *coordinationv1.Lease) {
	watched := l.known.watched && l.known.isStill(obj)
	if l.known = l.self.see(obj); l.known.ours {
		l.ownUID = obj.UID
	}
	l.known.watched = watched
}
