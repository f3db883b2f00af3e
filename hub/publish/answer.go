package publish

import (
	"cmp"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
)

// outcome classifies the error of a request.
type outcome int

const (
	answered  outcome = iota // done
	conflict                 // not done: the known Lease is out of date
	refused                  // not done: the member rejects it
	ambiguous                // unknown: no answer, or an answer that does not show it
)

// outcomeOf classifies the error of a request. Unless the error is certainly a rejection, the request may have been
// applied, or may be applied later.
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

// problemOf returns the status's reason for a failed request. Rejected credentials concern the whole member: its
// health shows if that lasts too long, and new credentials often come in a moment.
func problemOf(err error) reason.Reason {
	if outcomeOf(err) == refused && !apierrors.IsUnauthorized(err) {
		return reason.Forbidden
	}
	return reason.Unreachable
}

// A syncer pauses after a rejection before it tries again. After silence the pause is shorter, so that it notices a
// recovered link at once.
const (
	pauseRefused = time.Second
	pauseSilent  = 100 * time.Millisecond
)

// handleAnswer passes an answer to its syncer, and reports whether the syncer goes on at once.
func (p *Publisher) handleAnswer(key types.NamespacedName, s step, obj *coordinationv1.Lease, err error) bool {
	if err == nil && obj != nil {
		p.Readers.see(obj.ResourceVersion, s.showsOlderState(p.Key, obj))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.syncer(key)
	pause := l.handleAnswer(s, obj, err)
	if l.noteRevocation(s, err, p.Clock.Now()) {
		p.Readers.ask(key, s.revokes, l.timings.LongestPromise)
	}
	if pause > 0 {
		p.Queue.AddAfter(key, pause)
	}
	return pause == 0
}

// handleAnswer records the answer to a step, and returns how long to wait before the next one. Zero means no wait.
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
		l.known.invalidate()
		if l.conflicts++; l.conflicts > 1 {
			return pauseSilent // another client keeps writing this Lease
		}
		return 0
	case ambiguous:
		l.known.invalidate() // a read must show its outcome
	}
	return l.noteProblem(s, v, problem, err)
}

// noteProblem records a failed request, and returns how long to wait before the next step.
func (l *leaseSyncer) noteProblem(s step, v outcome, problem reason.Reason, err error) time.Duration {
	pause := pauseSilent
	if v == refused && problem != reason.Unreachable {
		pause = pauseRefused
	}
	l.status.Problem, l.status.Message = problem, err.Error()
	if problem == reason.Forbidden && l.want.Role == assign.Lead {
		if l.refusedSince == 0 {
			l.refusedSince = cmp.Or(l.writtenAt, s.decided) // from the last write in the term
		}
		if s.decided < l.refusedSince+l.timings.Patience {
			l.status.Problem = reason.Unreachable // the hub may be about to repair its role
		}
	}
	proves := !s.minRenewTime.IsZero() && s.minRenewTime.Equal(l.want.MinRenewTime) && l.want.Role == assign.Follow
	if proves {
		l.status.Refused = true
	}
	if s.writes() || proves {
		return l.noteFailure(problem, err.Error(), pause)
	}
	return pause
}

// applyAnswer records the object that a request found or stored, or nil for none. If the watch has shown another
// one since, a read must show which is newer.
func (l *leaseSyncer) applyAnswer(s step, obj *coordinationv1.Lease) {
	if s.writes() {
		l.ownUID, l.conflicts = obj.UID, 0
	}
	k := l.known
	switch {
	case s.observations == l.observations:
		l.setKnown(obj)
	case k.read && k.lease != nil && obj != nil && k.lease.UID == obj.UID &&
		k.lease.ResourceVersion == obj.ResourceVersion:
		// The watch was faster.
	default:
		l.known.invalidate()
	}
}
