package publish

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

type action int

// step is the next request of a syncer, or how long it is idle.
type step struct {
	action       action
	lease        *coordinationv1.Lease // what to create, update or remove
	reading      lease.Reading         // the renewTime of a promise in this request
	promised     time.Duration         // how long the request lets its holder act; zero: it promises nothing
	minRenewTime time.Time             // the MinRenewTime that this request is to satisfy
	observations int                   // leaseSyncer.observations at the decision
	decided      time.Duration         // boot reading of the decision
	after        time.Duration         // idle: when to decide again; zero: only events matter

	revokes       int64  // the epoch that this request ends, or zero
	before        known  // what was known at the decision
	newestVersion string // the highest version that the member had shown at the decision
}

// nextStep returns the next request of a syncer. One reading of the clocks decides whether the tenure still lasts,
// and is the renewTime. The promise is recorded before the request is sent.
func (p *Publisher) nextStep(key types.NamespacedName) (s step, timeout time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Clock.Now()
	p.silence.admit(key, now, func(answered bool) (asks bool) {
		l := p.syncer(key)
		s, timeout = l.next(now, p.MayWrite(now), answered), l.timings.Timeout
		s.newestVersion = p.Readers.newestVersion()
		if s.promised > 0 {
			p.Promises.add(types.NamespacedName{Namespace: p.Fleet, Name: key.Namespace},
				l.want.Term.Epoch, s.reading, s.promised, l.timings.Skew, l.timings.Stop)
		}
		return s.action != idle
	})
	if s.after > 0 {
		p.Queue.AddAfter(key, s.after)
	}
	return s, timeout
}

// recheck is how often a Lease that no watch has shown is read again.
const recheck = 2 * time.Second

// followerWaits is how long a follower's Lease waits for the leaders' Leases.
const followerWaits = 500 * time.Millisecond

const (
	idle action = iota
	read
	create
	update
	remove
)

// next returns the next request. may: the tenure has the right to write at now. answered: the member has just
// answered a request.
//
// A request in flight leaves the status unchanged. The status changes by an answer, or when there is nothing to do.
func (l *leaseSyncer) next(now lease.Reading, may, answered bool) step {
	l.notePoisoned(now)
	if l.known.read {
		l.status.Marked = l.known.marked
	}
	before := l.status
	l.status.InPlace, l.status.Newer, l.status.Problem, l.status.Message = false, 0, "", ""
	s := l.decide(now, may, answered)
	if s.action != idle {
		l.status.InPlace, l.status.Newer = before.InPlace, before.Newer
		l.status.Problem, l.status.Message = before.Problem, before.Message
		s.minRenewTime, s.observations, s.before, s.decided = l.want.MinRenewTime, l.observations, l.known, now.Boot
	}
	return s
}

func (l *leaseSyncer) decide(now lease.Reading, may, answered bool) step {
	switch {
	case l.relinquished:
		return l.relinquish(may)
	case l.want.Role == assign.Hold:
		return l.hold(now, may)
	case !may:
		return step{after: pauseSilent} // a late renewal of the tenure sends no event
	case !l.known.read || l.lookAgain != 0 && now.Boot >= l.lookAgain:
		l.lookAgain = 0
		return step{action: read}
	case l.blocked():
		return l.awaitWatch(now)
	case l.want.Role != assign.Absent && l.known.newerThan(l.want.Term.Epoch, now):
		l.status.Newer = l.known.content.Epoch
		l.status.Problem, l.status.Message = reason.LeaseLost, "the Lease is newer than the record"
		return step{}
	case now.Boot < l.retryAt && l.want.Role != assign.Absent: // the member changes what is written
		l.status.Problem, l.status.Message = l.status.Failing, l.status.Failure
		return step{after: l.retryAt - now.Boot}
	}
	switch l.want.Role {
	case assign.Absent:
		if l.known.lease != nil {
			return step{action: remove, lease: l.known.lease}
		}
	case assign.Follow:
		return l.follow(now)
	case assign.Lead:
		return l.lead(now, answered)
	case assign.Revoke:
		return l.revoke(now)
	}
	l.status.InPlace = true
	return step{}
}

// newerThan reports whether the Lease is sealed and newer than the record, which has this epoch. Such a Lease was read
// at the start of the tenure, or written by an overlapping tenure. Or it was left in a member that was away when its
// namespace was forgotten. The controller raises the record above it. Until that is persisted, nothing is written. A
// Lease with an epoch that no hub can have granted yet is ignored by readers, and replaced.
func (k *known) newerThan(epoch int64, now lease.Reading) bool {
	return k.sealed && k.content.Epoch > epoch && lease.PlausibleEpoch(now.Wall, k.content.Epoch)
}

// hold changes nothing, unless an edit of the Lease promises more than was sent. It also rereads a Lease that
// another client made, to notice its deletion. If the Lease of a live term could not be written, hold retries by a
// write that changes nothing. The term may go on if its leader can be written again.
func (l *leaseSyncer) hold(now lease.Reading, may bool) step {
	tries := may && l.status.Failing != "" && l.sent.Epoch == l.want.Term.Epoch && l.sent.Live(now.Wall)
	switch {
	case l.known.read:
		switch {
		case l.blocked() || !may || l.want.Term.Epoch == 0:
		case l.known.promisesMore(now, l.timings.Skew, l.sent):
			return l.undoExtension(now)
		case tries && l.known.ours:
			return step{action: update, lease: l.known.lease.DeepCopy()}
		}
	case tries:
		return step{action: read}
	case l.known.lease == nil || l.known.ours:
	case may:
		return step{action: read}
	default:
		return step{after: pauseSilent}
	}
	return step{}
}

// follow makes the Lease name another cluster, or no holder.
func (l *leaseSyncer) follow(now lease.Reading) step {
	c := l.known.content
	allowed := l.timings.Skew == 0 || c.Skew == l.timings.Skew // zero: there is no policy
	if l.known.marked && l.known.labelled && c.SameTerm(l.want.Term) && c.Duration == l.want.Term.Duration && allowed &&
		!c.RenewTime.Before(l.want.MinRenewTime.Truncate(time.Microsecond)) {
		l.status.InPlace, l.status.Refused = true, false
		l.noteSuccess() // also if the answer was lost
		return l.awaitWatch(now)
	}
	if wait := l.want.MinRenewTime.Truncate(time.Microsecond).Sub(now.Wall); wait > 0 {
		return step{after: min(wait, pauseRefused)} // the wall clock is earlier than that
	}
	if wait := l.yields(now); wait > 0 {
		return step{after: wait}
	}
	term := l.want.Term
	term.RenewTime = now.Wall
	return l.write(term)
}

// yields returns how long a follower's Lease waits if it only names another leader. Readers do not act by it. When
// many namespaces change their leaders at once, the new leaders' Leases come first.
func (l *leaseSyncer) yields(now lease.Reading) time.Duration {
	c := l.known.content
	if !l.known.marked || c.LeadsHere() || c.Epoch >= l.want.Term.Epoch || !l.want.MinRenewTime.IsZero() {
		return 0
	}
	if l.following == 0 {
		l.following = now.Boot
	}
	return l.following + followerWaits - now.Boot
}

// awaitWatch rereads a Lease that is in place or in the way until a watch has shown it. If the Lease is deleted, or
// lost by a restore, before that, no event comes. A Lease without the hub's label is never shown.
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

// lead makes the Lease name this member, and renews it.
func (l *leaseSyncer) lead(now lease.Reading, answered bool) step {
	c := l.known.content
	valid := l.known.sealed && c.SameTerm(l.want.Term) && c.Live(now.Wall)
	switch {
	case valid:
		l.status.InPlace = l.known.labelled && l.known.marked && c.OpenLocks == l.want.OpenLocks
		wait := due(l.key.Namespace, l.timings.Renew, c.RenewTime).Sub(now.Wall)
		if wait > 0 && l.status.InPlace && !l.future.lasts(c.Term, l.timings.Skew, now) {
			l.noteSuccess() // also if the answer was lost
			// At most r: the wall clock may be corrected before that.
			return step{after: min(wait, l.timings.Renew)}
		}
		if l.renewalFailed(now) {
			// Until it is stored, nothing more is promised. It counts with the present ε and stop time.
			s := l.write(l.sent)
			s.reading, s.promised = lease.Reading{Wall: l.sent.RenewTime, Boot: l.sentBoot}, l.sent.Duration
			return s
		}
	case l.known.promisesMore(now, l.timings.Skew, l.sent):
		return l.undoExtension(now)
	case l.sent.Epoch == l.want.Term.Epoch && l.sent.Live(now.Wall):
		return l.write(l.sent) // repaired with the renewTime that was last sent: this promises nothing new
	case l.sent.Epoch == l.want.Term.Epoch || !l.want.First:
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
		l.sent, l.sentBoot = term, now.Boot
	}
	return s
}

// renewalFailed reports whether the last renewal failed, and has to be sent again. Readers would refuse one that was
// sent while the wall clock was ahead.
func (l *leaseSyncer) renewalFailed(now lease.Reading) bool {
	stored, sent := l.known.content.RenewTime, l.sent.RenewTime.Truncate(time.Microsecond)
	return l.status.Failing != "" && l.sent.Epoch == l.want.Term.Epoch && l.sent.Live(now.Wall) &&
		stored.Before(sent) && !sent.After(now.Wall)
}

// write replaces the known Lease by one with this term. A Lease with a higher epoch was edited (see
// newerThan). The guard lets no epoch fall, so that Lease is removed first.
func (l *leaseSyncer) write(term lease.Term) step {
	c := lease.Content{
		Term: term, Namespace: l.key.Namespace, Name: l.key.Name,
		Cluster: l.self.cluster, ClusterUID: l.self.uid, Hub: l.self.hub, Skew: l.timings.Skew,
		OpenLocks: l.want.OpenLocks,
	}
	if l.relinquished {
		c.Hub, c.OpenLocks = "", l.known.content.OpenLocks
	}
	s := step{action: create, lease: &coordinationv1.Lease{}}
	if earlier := l.known.lease; earlier != nil {
		if l.known.content.Epoch > c.Epoch {
			return step{action: remove, lease: earlier}
		}
		s = step{action: update, lease: earlier.DeepCopy()}
	}
	if err := seal.Write(l.self.key, c, s.lease); err != nil {
		l.status.Problem, l.status.Message = reason.Unwritable, err.Error()
		return step{}
	}
	return s
}
