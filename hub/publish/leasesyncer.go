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
	"github.com/leasecast/leasecast/api/reason"
)

// Timings are what a syncer needs of a policy's.
type Timings struct {
	// Renew is r, Timeout is τ, Skew is ε.
	Renew, Timeout, Skew time.Duration
	// LongestPromise is the longest D that a copy may carry + ε: for how long what happened in the
	// member before still counts.
	LongestPromise time.Duration
}

// SyncStatus are what a syncer knows of its copy, for the controller.
type SyncStatus struct {
	// InPlace says that the copy is as it has to be.
	InPlace bool
	// Lost says that the copy of a leader does not stand and cannot be put right within
	// its term.
	Lost bool
	// MinRenewTime is the Fresh of the assignment that InPlace or Refused speaks of.
	MinRenewTime time.Time
	// Refused says that the last attempt to write a fresh copy failed.
	Refused bool
	// PoisonedEpoch is the highest epoch in which readers of the member may have believed an edit
	// that promises what nobody sent. They refuse the epochs below it from then on, and
	// within it they keep to the edit: only a higher one reaches them.
	PoisonedEpoch int64
	// Newer is the epoch of a sealed copy that is above the record's, or zero. The record has to rise
	// above it before it can be replaced.
	Newer int64
	// Released is the epoch of the term that was revoked here and that all readers have
	// released since, or zero.
	Released int64
	// Failing says why the last copy could not be written, if none was written since, and
	// Failure says it in words. A syncer that has something to write goes on trying.
	Failing reason.Reason
	Failure string
	// Marked says that the copy carries the mark of this hub, Unmarked that it is sealed with
	// the key of this hub and carries no hub's mark: see Publisher.Depart.
	Marked, Unmarked bool
	// Problem says what is in the way, if anything; Message says it in words.
	Problem reason.Reason
	Message string
}

// withoutMessages is what of the facts is news when it changes.
func (f SyncStatus) withoutMessages() SyncStatus {
	f.Message, f.Failure = "", ""
	return f
}

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

type action int

const (
	idle action = iota
	read
	create
	update
	remove
)

// nextStep is the next request of a syncer, or how long it has nothing to do.
type step struct {
	action       action
	lease        *coordinationv1.Lease // what to create, update or remove
	reading      lease.Reading         // a promise that this request carries
	promised     time.Duration         // how long that promise is; zero: none
	minRenewTime time.Time             // the Fresh that this request is to satisfy
	observations int                   // how much the watch had told when this was decided
	decided      time.Duration         // boot reading of the decision
	after        time.Duration         // idle: when to look again; zero: only events matter

	revokes       int64  // the epoch that this request ends; zero: none
	before        known  // what was known when this was decided
	newestVersion string // the highest version that the member had shown by then
}

// recheck is how often a Lease that stands in the way is looked at again: it carries
// no label of ours, so no watch tells when it goes.
const recheck = 2 * time.Second

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

// next names the next request. may says that the tenure still has the right to stamp
// at now; answered, that the member has just answered something.
//
// The facts change with what is certain, when there is nothing to do, or by an answer:
// a request under way leaves them as they are.
func (l *leaseSyncer) next(now lease.Reading, may, answered bool) step {
	l.notePoisoned(now)
	l.noteMark()
	before := l.status
	l.status.InPlace, l.status.Newer, l.status.Problem, l.status.Message = false, 0, "", ""
	s := l.decide(now, may, answered)
	if s.action != idle {
		l.status.InPlace, l.status.Newer, l.status.Problem, l.status.Message = before.InPlace, before.Newer, before.Problem, before.Message
		s.minRenewTime, s.observations, s.before, s.decided = l.want.MinRenewTime, l.observations, l.known, now.Boot
	}
	return s
}

func (l *leaseSyncer) decide(now lease.Reading, may, answered bool) step {
	switch {
	case l.relinquished:
		return l.relinquish(may)
	case l.want.Role == lease.Hold:
		return l.hold(now, may)
	case !may:
		return step{after: pauseSilent} // a renewal of the tenure that is late tells nobody
	case !l.known.read || l.lookAgain != 0 && now.Boot >= l.lookAgain:
		l.lookAgain = 0
		return step{action: read}
	case l.blocked():
		if l.lookAgain == 0 {
			l.lookAgain = now.Boot + recheck
		}
		return step{after: l.lookAgain - now.Boot}
	case l.newerThanRecord(now):
		return step{}
	case l.backsOff(now):
		l.status.Problem, l.status.Message = l.status.Failing, l.status.Failure
		return step{after: l.retryAt - now.Boot}
	}
	switch l.want.Role {
	case lease.Absent:
		if l.known.lease != nil {
			return step{action: remove, lease: l.known.lease}
		}
	case lease.Follow:
		return l.follow(now)
	case lease.Lead:
		return l.lead(now, answered)
	case lease.Revoke:
		return l.revoke(now)
	}
	l.status.InPlace = true
	return step{}
}

// newerThanRecord reports whether the copy is sealed and newer than the record, and says so. It raises the record: it was read at
// the start of the tenure, or left of a namespace that was forgotten while its member was away, or a tenure that
// overlaps with this one wrote it. Until that is persisted there is nothing to write. An epoch that no hub can have
// given yet is believed by nobody, and replaced.
func (l *leaseSyncer) newerThanRecord(now lease.Reading) bool {
	c := l.known.content
	if l.want.Role == lease.Absent || !l.known.sealed || c.Epoch <= l.want.Term.Epoch || !lease.PlausibleEpoch(now.Wall, c.Epoch) {
		return false
	}
	l.status.Newer = c.Epoch
	l.status.Problem, l.status.Message = reason.LeaseLost, "the copy is newer than the record"
	return true
}

// hold changes nothing, unless the copy was edited to promise more than was sent. Somebody else's copy is told of all
// the same, so that when it goes, that has to be found out.
func (l *leaseSyncer) hold(now lease.Reading, may bool) step {
	switch {
	case l.known.read:
		if !l.blocked() && may && l.want.Term.Epoch != 0 && l.promisesMore(now) {
			return l.undoExtension(now)
		}
	case l.known.lease == nil || l.known.ours:
	case may:
		return step{action: read}
	default:
		return step{after: pauseSilent}
	}
	return step{}
}

// notePoisoned takes note of an edit that readers believe, because they know no seal: a higher
// epoch, unless it is absurd, or a later deadline of the term that leads here.
func (l *leaseSyncer) notePoisoned(now lease.Reading) {
	c, want := l.known.content, l.want.Term
	if l.known.sealed || l.known.lease == nil || !l.known.labelled || want.Epoch == 0 || !lease.PlausibleEpoch(now.Wall, c.Epoch) {
		return
	}
	if c.Epoch > want.Epoch || c.Epoch == want.Epoch && l.promisesMore(now) {
		l.status.PoisonedEpoch = max(l.status.PoisonedEpoch, c.Epoch)
	}
}

// promisesMore reports whether the copy was edited to let its readers act for longer than what this tenure has sent. What
// earlier ones have sent is not known here, so that every edit of a live copy of theirs counts.
func (l *leaseSyncer) promisesMore(now lease.Reading) bool {
	c := l.known.content
	if l.known.lease == nil || l.known.sealed || !l.known.labelled || !c.LeadsHere() || !c.Live(now.Wall) {
		return false
	}
	if c.RenewTime.After(now.Wall.Add(l.timings.Skew)) {
		return false // a stamp of the future, which no reader believes
	}
	return c.Epoch != l.sentEpoch || c.Deadline().After(l.sent.Deadline())
}

// undoExtension puts the copy that was stamped last, or nobody, in the place of one that was edited to promise more. For D
// from now on readers may not have seen that, so this counts as a promise, though it makes none.
func (l *leaseSyncer) undoExtension(now lease.Reading) step {
	term := l.sent
	if c := l.known.content; c.Epoch != l.sentEpoch || !term.Live(now.Wall) {
		term = l.want.Term
		term.Holder, term.RenewTime = "", now.Wall
	}
	s := l.write(term)
	s.reading, s.promised = now, l.want.Term.Duration
	return s
}

// blocked reports whether something stands in the way that is never overwritten. What
// this syncer wrote, and what the seal shows to be its own, is not in the way, whoever has
// edited it since.
func (l *leaseSyncer) blocked() bool {
	obj, c := l.known.lease, l.known.content
	if obj == nil || l.known.ours {
		return false
	}
	name := l.namespace + "/" + l.name
	switch edited := obj.UID == l.ownUID && !l.known.sealed; {
	case !wire.MadeByHub(obj) && !edited:
		l.status.Problem = reason.ForeignLease
		l.status.Message = "Lease " + name + " was made by somebody else: delete it, or use another leaseName"
	case c.Hub != "" && c.Hub != l.self.hub:
		l.status.Problem = reason.OtherHub
		l.status.Message = "Lease " + name + " was written by the hub " + c.Hub + ": stop that hub, or delete the Lease if it is gone"
	case c.Cluster != "" && c.Cluster != l.self.cluster && !edited:
		l.status.Problem = reason.WrongCluster
		l.status.Message = "Lease " + name + " belongs to the cluster " + c.Cluster + ": check where the kubeconfigs of both lead to"
	default:
		return false
	}
	return true
}

// follow sees to it that the copy names somebody else.
func (l *leaseSyncer) follow(now lease.Reading) step {
	c := l.known.content
	if l.marked() && l.known.labelled && c.SameTerm(l.want.Term) && c.Duration == l.want.Term.Duration && !c.RenewTime.Before(l.want.MinRenewTime.Truncate(time.Microsecond)) {
		l.status.InPlace, l.status.Refused = true, false
		l.noteSuccess() // also if the answer was lost
		return l.awaitWatch(now)
	}
	if wait := l.want.MinRenewTime.Truncate(time.Microsecond).Sub(now.Wall); wait > 0 {
		return step{after: min(wait, pauseRefused)} // no stamp of now is as fresh as that
	}
	term := l.want.Term
	term.RenewTime = now.Wall
	return l.write(term)
}

// awaitWatch has a copy that is in place read again while no watch has shown it: one
// that went before a watch knew of it, deleted or by a restore, goes without an event.
func (l *leaseSyncer) awaitWatch(now lease.Reading) step {
	if l.known.watched {
		l.lookAgain = 0
		return step{}
	}
	if l.lookAgain == 0 {
		l.lookAgain = now.Boot + recheck
	}
	return step{after: l.lookAgain - now.Boot}
}

// lead sees to it that the copy names this member and is renewed.
func (l *leaseSyncer) lead(now lease.Reading, answered bool) step {
	c := l.known.content
	valid := l.known.sealed && c.SameTerm(l.want.Term) && c.Live(now.Wall)
	switch {
	case valid:
		l.status.InPlace = l.known.labelled && l.marked()
		if wait := l.due(c).Sub(now.Wall); wait > 0 && l.status.InPlace && !l.inFuture(c, now) {
			l.noteSuccess() // also if the answer was lost
			// Not for longer than r: the wall clock may be put right before that.
			return step{after: min(wait, l.timings.Renew)}
		}
	case l.promisesMore(now):
		return l.undoExtension(now)
	case l.sentEpoch == l.want.Term.Epoch && l.sent.Live(now.Wall):
		return l.write(l.sent) // put right as it was stamped last: nothing new is promised
	case l.sentEpoch == l.want.Term.Epoch || !l.want.First:
		return l.loseTerm(now)
	}
	if !answered {
		return step{action: read}
	}
	term := l.want.Term
	term.RenewTime = now.Wall
	s := l.write(term)
	if s.writes() {
		s.reading, s.promised = now, term.Duration
		l.sentEpoch, l.sent = term.Epoch, term
	}
	return s
}

// write puts a copy with this term in the place of what is known. A copy
// with a higher epoch was poisoned, see newer, and the guard lets no epoch fall: it is removed
// first.
func (l *leaseSyncer) write(term lease.Term) step {
	c := lease.Content{
		Term: term, Namespace: l.namespace, Name: l.name,
		Cluster: l.self.cluster, ClusterUID: l.self.uid, Hub: l.self.hub,
	}
	if l.relinquished {
		c.Hub = ""
	}
	s := step{action: create, lease: &coordinationv1.Lease{}}
	if old := l.known.lease; old != nil {
		if l.known.content.Epoch > c.Epoch {
			return step{action: remove, lease: old}
		}
		s = step{action: update, lease: old.DeepCopy()}
	}
	if err := wire.Write(l.self.key, c, s.lease); err != nil {
		l.status.Problem, l.status.Message = reason.Unwritable, err.Error()
		return step{}
	}
	return s
}
