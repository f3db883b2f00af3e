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
	// Bound is the longest D that a copy may carry + ε: for how long what happened in the
	// member before still counts.
	Bound time.Duration
}

// SyncStatus are what a syncer knows of its copy, for the controller.
type SyncStatus struct {
	// InPlace says that the copy is as it has to be.
	InPlace bool
	// Lost says that the copy of a leader does not stand and cannot be put right within
	// its term.
	Lost bool
	// Fresh is the Fresh of the assignment that InPlace or Refused speaks of.
	Fresh time.Time
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

// wordless is what of the facts is news when it changes.
func (f SyncStatus) wordless() SyncStatus {
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
	copy     lease.Copy
	sealed   bool
	ours     bool // sealed by this hub for this member, but for an edit of the marks that say so
	labelled bool
	shown    bool // a watch has shown it so: when that changes, it will tell
}

type action int

const (
	idle action = iota
	read
	create
	update
	remove
)

// step is the next request of a syncer, or how long it has nothing to do.
type step struct {
	action  action
	lease   *coordinationv1.Lease // what to create, update or remove
	stamp   lease.Reading         // a promise that this request carries
	promis  time.Duration         // how long that promise is; zero: none
	fresh   time.Time             // the Fresh that this request is to satisfy
	seen    int                   // how much the watch had told when this was decided
	decided time.Duration         // boot reading of the decision
	after   time.Duration         // idle: when to look again; zero: only events matter

	revokes int64  // the epoch that this request ends; zero: none
	before  known  // what was known when this was decided
	newest  string // the highest version that the member had shown by then
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
	made            types.UID // the last Lease that was certainly a copy of ours: an edit of it is ours to repair

	// What was stamped last for want's term, by this tenure.
	stampedEpoch int64
	stamped      lease.Term

	seen         int           // how often the watch told something new
	conflicts    int           // in a row
	failedWrites int           // writes in a row that failed
	retryAt      time.Duration // boot reading until which nothing is written; zero: it may be
	tried        bool          // since the copy was lost, whether it can be written
	future       time.Time     // a stamp of the future that stands
	since        time.Duration // boot reading when it was first found to be one
	loose        time.Duration // boot reading until which a leader's copy may still be made by a request without an answer
	parked       bool          // waits until the member is heard of
	departed     bool          // the mark of this hub goes, and nothing is stamped any more
	lookAgain    time.Duration // boot reading from when on a blocked syncer reads again
	facts        SyncStatus
	told         SyncStatus // what the controller was told last, without the message
}

// news reports whether the controller should look at the facts again, and takes it
// that it will.
func (l *leaseSyncer) news() bool {
	f := l.facts.wordless()
	if f == l.told {
		return false
	}
	l.told = f
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
	if same && a.Fresh.IsZero() {
		a.Fresh = l.want.Fresh
	}
	if !same || !a.Fresh.Equal(l.want.Fresh) {
		l.facts.InPlace, l.facts.Refused, l.facts.Lost, l.facts.Fresh = false, false, false, a.Fresh
		l.facts.Released, l.tried = 0, false
		marked, unmarked := l.told.Marked, l.told.Unmarked
		l.told = l.facts.wordless()
		l.told.Marked, l.told.Unmarked = marked, unmarked
	}
	if l.want, l.timings = a, t; a.Role == lease.Absent {
		l.wrote() // nothing is to be written any more, so nobody would find out that it can be
	}
}

// observe takes in a copy as a watch showed it. The version that is known is no news, if it
// says what is known. An older one may be late or, if the member's etcd was restored, the
// present one: that is for a read to say, and so is which of two objects of one name, or of
// one version, is the newer.
func (l *leaseSyncer) observe(obj *coordinationv1.Lease) {
	k := l.known.lease
	if k != nil && k.UID == obj.UID && k.ResourceVersion == obj.ResourceVersion && says(k, obj) {
		l.known.shown, l.lookAgain = true, 0
		return
	}
	l.seen++
	if k != nil {
		newer, err := resourceversion.CompareResourceVersion(obj.ResourceVersion, k.ResourceVersion)
		if k.UID != obj.UID || err != nil || newer <= 0 {
			l.invalidate()
			return
		}
	}
	l.know(obj)
	l.known.shown, l.lookAgain = true, 0
}

// says reports whether two objects of one version say the same. They do, unless the member's
// etcd was restored: then it gives versions a second time.
func says(a, b *coordinationv1.Lease) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

// gone takes in that a watch no longer shows the copy. The watch shows labelled Leases
// only, so the copy may have lost its label: a read must say.
func (l *leaseSyncer) gone() {
	l.seen++
	l.invalidate()
}

// know takes in a live answer: the copy, or nil for none.
func (l *leaseSyncer) know(obj *coordinationv1.Lease) {
	l.known = known{read: true, lease: obj}
	if obj == nil {
		return
	}
	c, seal := wire.Read(obj)
	l.known.copy, l.known.sealed, l.known.labelled = c, lease.Sealed(l.self.key, c, seal), wire.Labelled(obj)
	if l.known.ours = l.own(c, seal); l.known.ours {
		l.made = obj.UID
	}
}

// own reports whether a seal is that of a copy of this syncer, but for an edit of the
// marks that say so.
func (l *leaseSyncer) own(c lease.Copy, seal string) bool {
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
	l.burn(now)
	l.noteMark()
	before := l.facts
	l.facts.InPlace, l.facts.Newer, l.facts.Problem, l.facts.Message = false, 0, "", ""
	s := l.decide(now, may, answered)
	if s.action != idle {
		l.facts.InPlace, l.facts.Newer, l.facts.Problem, l.facts.Message = before.InPlace, before.Newer, before.Problem, before.Message
		s.fresh, s.seen, s.before, s.decided = l.want.Fresh, l.seen, l.known, now.Boot
	}
	return s
}

func (l *leaseSyncer) decide(now lease.Reading, may, answered bool) step {
	switch {
	case l.departed:
		return l.depart(may)
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
	case l.newer(now):
		return step{}
	case l.rests(now):
		l.facts.Problem, l.facts.Message = l.facts.Failing, l.facts.Failure
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
	l.facts.InPlace = true
	return step{}
}

// newer reports whether the copy is sealed and newer than the record, and says so. It raises the record: it was read at
// the start of the tenure, or left of a namespace that was forgotten while its member was away, or a tenure that
// overlaps with this one wrote it. Until that is persisted there is nothing to write. An epoch that no hub can have
// given yet is believed by nobody, and replaced.
func (l *leaseSyncer) newer(now lease.Reading) bool {
	c := l.known.copy
	if l.want.Role == lease.Absent || !l.known.sealed || c.Epoch <= l.want.Term.Epoch || !lease.PlausibleEpoch(now.Wall, c.Epoch) {
		return false
	}
	l.facts.Newer = c.Epoch
	l.facts.Problem, l.facts.Message = reason.CopyLost, "the copy is newer than the record"
	return true
}

// hold changes nothing, unless the copy was edited to promise more than was sent. Somebody else's copy is told of all
// the same, so that when it goes, that has to be found out.
func (l *leaseSyncer) hold(now lease.Reading, may bool) step {
	switch {
	case l.known.read:
		if !l.blocked() && may && l.want.Term.Epoch != 0 && l.extended(now) {
			return l.shorten(now)
		}
	case l.known.lease == nil || l.known.ours:
	case may:
		return step{action: read}
	default:
		return step{after: pauseSilent}
	}
	return step{}
}

// burn takes note of an edit that readers believe, because they know no seal: a higher
// epoch, unless it is absurd, or a later deadline of the term that leads here.
func (l *leaseSyncer) burn(now lease.Reading) {
	c, want := l.known.copy, l.want.Term
	if l.known.sealed || l.known.lease == nil || !l.known.labelled || want.Epoch == 0 || !lease.PlausibleEpoch(now.Wall, c.Epoch) {
		return
	}
	if c.Epoch > want.Epoch || c.Epoch == want.Epoch && l.extended(now) {
		l.facts.PoisonedEpoch = max(l.facts.PoisonedEpoch, c.Epoch)
	}
}

// extended reports whether the copy was edited to let its readers act for longer than what this tenure has sent. What
// earlier ones have sent is not known here, so that every edit of a live copy of theirs counts.
func (l *leaseSyncer) extended(now lease.Reading) bool {
	c := l.known.copy
	if l.known.lease == nil || l.known.sealed || !l.known.labelled || !c.LeadsHere() || !c.Live(now.Wall) {
		return false
	}
	if c.Renewed.After(now.Wall.Add(l.timings.Skew)) {
		return false // a stamp of the future, which no reader believes
	}
	return c.Epoch != l.stampedEpoch || c.Deadline().After(l.stamped.Deadline())
}

// shorten puts the copy that was stamped last, or nobody, in the place of one that was edited to promise more. For D
// from now on readers may not have seen that, so this counts as a promise, though it makes none.
func (l *leaseSyncer) shorten(now lease.Reading) step {
	term := l.stamped
	if c := l.known.copy; c.Epoch != l.stampedEpoch || !term.Live(now.Wall) {
		term = l.want.Term
		term.Holder, term.Renewed = "", now.Wall
	}
	s := l.write(term)
	s.stamp, s.promis = now, l.want.Term.Duration
	return s
}

// blocked reports whether something stands in the way that is never overwritten. What
// this syncer wrote, and what the seal shows to be its own, is not in the way, whoever has
// edited it since.
func (l *leaseSyncer) blocked() bool {
	obj, c := l.known.lease, l.known.copy
	if obj == nil || l.known.ours {
		return false
	}
	name := l.namespace + "/" + l.name
	switch edited := obj.UID == l.made && !l.known.sealed; {
	case !wire.Ours(obj) && !edited:
		l.facts.Problem = reason.ForeignLease
		l.facts.Message = "Lease " + name + " was made by somebody else: delete it, or use another leaseName"
	case c.Hub != "" && c.Hub != l.self.hub:
		l.facts.Problem = reason.OtherHub
		l.facts.Message = "Lease " + name + " was written by the hub " + c.Hub + ": stop that hub, or delete the Lease if it is gone"
	case c.Cluster != "" && c.Cluster != l.self.cluster && !edited:
		l.facts.Problem = reason.WrongCluster
		l.facts.Message = "Lease " + name + " belongs to the cluster " + c.Cluster + ": check where the kubeconfigs of both lead to"
	default:
		return false
	}
	return true
}

// follow sees to it that the copy names somebody else.
func (l *leaseSyncer) follow(now lease.Reading) step {
	c := l.known.copy
	if l.marked() && l.known.labelled && c.SameTerm(l.want.Term) && c.Duration == l.want.Term.Duration && l.allows(c) && !c.Renewed.Before(l.want.Fresh.Truncate(time.Microsecond)) {
		l.facts.InPlace, l.facts.Refused = true, false
		l.wrote() // also if the answer was lost
		return l.untilSeen(now)
	}
	if wait := l.want.Fresh.Truncate(time.Microsecond).Sub(now.Wall); wait > 0 {
		return step{after: min(wait, pauseRefused)} // no stamp of now is as fresh as that
	}
	term := l.want.Term
	term.Renewed = now.Wall
	return l.write(term)
}

// allows reports whether a copy says the policy's ε, where there is a policy.
func (l *leaseSyncer) allows(c lease.Copy) bool {
	return l.timings.Skew == 0 || c.Skew == l.timings.Skew
}

// untilSeen has a copy that is in place read again while no watch has shown it: one
// that went before a watch knew of it, deleted or by a restore, goes without an event.
func (l *leaseSyncer) untilSeen(now lease.Reading) step {
	if l.known.shown {
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
	c := l.known.copy
	stands := l.known.sealed && c.SameTerm(l.want.Term) && c.Live(now.Wall)
	switch {
	case stands:
		l.facts.InPlace = l.known.labelled && l.marked()
		if wait := l.due(c).Sub(now.Wall); wait > 0 && l.facts.InPlace && !l.ahead(c, now) {
			l.wrote() // also if the answer was lost
			// Not for longer than r: the wall clock may be put right before that.
			return step{after: min(wait, l.timings.Renew)}
		}
	case l.extended(now):
		return l.shorten(now)
	case l.stampedEpoch == l.want.Term.Epoch && l.stamped.Live(now.Wall):
		return l.write(l.stamped) // put right as it was stamped last: nothing new is promised
	case l.stampedEpoch == l.want.Term.Epoch || !l.want.First:
		return l.lost(now)
	}
	if !answered {
		return step{action: read}
	}
	term := l.want.Term
	term.Renewed = now.Wall
	s := l.write(term)
	if s.writes() {
		s.stamp, s.promis = now, term.Duration
		l.stampedEpoch, l.stamped = term.Epoch, term
	}
	return s
}

// write puts a copy with this term in the place of what is known. A copy
// with a higher epoch was poisoned, see newer, and the guard lets no epoch fall: it is removed
// first.
func (l *leaseSyncer) write(term lease.Term) step {
	c := lease.Copy{
		Term: term, Namespace: l.namespace, Name: l.name,
		Cluster: l.self.cluster, ClusterUID: l.self.uid, Hub: l.self.hub, Skew: l.timings.Skew,
	}
	if l.departed {
		c.Hub = ""
	}
	s := step{action: create, lease: &coordinationv1.Lease{}}
	if old := l.known.lease; old != nil {
		if l.known.copy.Epoch > c.Epoch {
			return step{action: remove, lease: old}
		}
		s = step{action: update, lease: old.DeepCopy()}
	}
	if err := wire.Write(l.self.key, c, s.lease); err != nil {
		l.facts.Problem, l.facts.Message = reason.Unwritable, err.Error()
		return step{}
	}
	return s
}
