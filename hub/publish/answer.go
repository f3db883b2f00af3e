package publish

import (
	"cmp"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// outcome is what an error says of a request.
type outcome int

const (
	answered  outcome = iota // done
	conflict                 // not done: what is known of the Lease is out of date
	refused                  // not done: the member refuses it
	ambiguous                // unknown: no answer, or one that does not tell
)

// outcomeOf classifies the error of a request. Unless the error is certainly a refusal, the request may have
// been carried out, or may still be.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return answered
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return conflict
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err),
		apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err):
		return refused
	default:
		return ambiguous
	}
}

// problemOf is what the status says of a request that failed. Credentials that do not count concern the whole member. Its
// health tells when they have not for too long, and new ones are often there in a moment.
func problemOf(err error) reason.Reason {
	if outcomeOf(err) == refused && !apierrors.IsUnauthorized(err) {
		return reason.Forbidden
	}
	return reason.Unreachable
}

// A syncer pauses before it tries again after a refusal. After silence the pause is shorter, so that it
// notices at once when a link heals.
const (
	pauseRefused = time.Second
	pauseSilent  = 100 * time.Millisecond
)

// handleAnswer notes the answer to a step and returns how long to wait before the next one: zero for not at
// all.
func (l *leaseSyncer) handleAnswer(s step, obj *coordinationv1.Lease, err error) time.Duration {
	if s.action == read && apierrors.IsNotFound(err) {
		obj, err = nil, nil
	}
	v, problem := outcomeOf(err), problemOf(err)
	if s.action == create && apierrors.IsNotFound(err) {
		v, problem = refused, reason.NamespaceMissing
	}
	switch v {
	case answered:
		if s.writes() {
			l.refusedSince, l.writtenAt = 0, s.decided
		}
		l.applyAnswer(s, obj)
		return l.checkStored(s)
	case conflict:
		l.invalidate()
		if l.conflicts++; l.conflicts > 1 {
			return pauseSilent // somebody else keeps writing this Lease
		}
		return 0
	case refused:
	case ambiguous:
		l.invalidate() // a read must tell what became of it
	}
	return l.noteProblem(s, v, problem, err)
}

// noteProblem notes a request that failed, and returns how long to wait before the next step.
func (l *leaseSyncer) noteProblem(s step, v outcome, problem reason.Reason, err error) time.Duration {
	pause := pauseSilent
	if v == refused && problem != reason.Unreachable {
		pause = pauseRefused
	}
	l.status.Problem, l.status.Message = problem, err.Error()
	if problem == reason.Forbidden && s.action == update && l.want.Role == lease.Lead && !l.refusedForLong(s.decided) {
		l.status.Problem = reason.Unreachable
	}
	proves := !s.minRenewTime.IsZero() && s.minRenewTime.Equal(l.want.MinRenewTime) && l.want.Role == lease.Follow
	if proves {
		l.status.Refused = true
	}
	if s.writes() || proves {
		return l.noteFailure(problem, err.Error(), pause)
	}
	return pause
}

// refusedForLong notes at a boot reading that a renewal was refused, and reports whether none was written for as long as
// silence would be borne. Like that, it counts from the last one that was written in the term.
func (l *leaseSyncer) refusedForLong(at time.Duration) bool {
	if l.refusedSince == 0 {
		l.refusedSince = cmp.Or(l.writtenAt, at)
	}
	return at >= l.refusedSince+l.timings.Patience
}

// applyAnswer notes the object that a request found or stored, or nil for none. If the watch has shown
// something else since, a read must tell which is the newer.
func (l *leaseSyncer) applyAnswer(s step, obj *coordinationv1.Lease) {
	if s.writes() {
		l.ownUID, l.conflicts = obj.UID, 0
	}
	k := l.known
	switch {
	case s.observations == l.observations:
		l.setKnown(obj)
	case k.read && k.lease != nil && obj != nil && k.lease.UID == obj.UID && k.lease.ResourceVersion == obj.ResourceVersion:
		// The watch was faster.
	default:
		l.invalidate()
	}
}
