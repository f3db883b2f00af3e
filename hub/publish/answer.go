package publish

import (
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
	conflict                 // not done: what is known of the copy is out of date
	refused                  // not done: the member says no
	ambiguous                // nobody knows: no answer, or one that does not say
)

// violation tells what the error of a request says. Whatever is not certainly a refusal
// leaves open whether the request was, or will still be, carried out.
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

// pause is how long a syncer waits before it tries again after a refusal, and shorter
// after silence: a link that heals should be noticed at once.
const (
	pauseRefused = time.Second
	pauseSilent  = 100 * time.Millisecond
)

// handleAnswer takes in the answer to a step and returns how long to wait before the next:
// zero for none.
func (l *leaseSyncer) handleAnswer(s step, obj *coordinationv1.Lease, err error) time.Duration {
	if s.action == read && apierrors.IsNotFound(err) {
		obj, err = nil, nil
	}
	v, problem := outcomeOf(err), reason.Unreachable
	switch {
	case s.action == create && apierrors.IsNotFound(err):
		v, problem = refused, reason.NamespaceMissing
	case v == refused:
		problem = reason.Forbidden
	}
	switch v {
	case answered:
		l.applyAnswer(s, obj)
		return l.checkStored(s)
	case conflict:
		l.invalidate()
		if l.conflicts++; l.conflicts > 1 {
			return pauseSilent // somebody else is as busy with this copy
		}
		return 0
	case refused:
	case ambiguous:
		l.invalidate() // a read settles what became of it
	}
	l.status.Problem, l.status.Message = problem, err.Error()
	proves := !s.minRenewTime.IsZero() && s.minRenewTime.Equal(l.want.MinRenewTime) && l.want.Role == lease.Follow
	if proves {
		l.status.Refused = true
	}
	pause := pauseSilent
	if v == refused {
		pause = pauseRefused
	}
	if s.writes() || proves {
		return l.noteFailure(problem, err.Error(), pause)
	}
	return pause
}

// applyAnswer takes in what a request found or left behind; nil for nothing. If the watch has
// told of something else since, a read must say which is the newer.
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
