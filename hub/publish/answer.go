package publish

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// verdict is what an error says of a request.
type verdict int

const (
	answered  verdict = iota // done
	conflict                 // not done: what is known of the copy is out of date
	refused                  // not done: the member says no
	ambiguous                // nobody knows: no answer, or one that does not say
)

// judge tells what the error of a request says. Whatever is not certainly a refusal
// leaves open whether the request was, or will still be, carried out.
func judge(err error) verdict {
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

// pause is how long a lane waits before it tries again after a refusal, and shorter
// after silence: a link that heals should be noticed at once.
const (
	pauseRefused = time.Second
	pauseSilent  = 100 * time.Millisecond
)

// settle takes in the answer to a step and returns how long to wait before the next:
// zero for none.
func (l *lane) settle(s step, obj *coordinationv1.Lease, err error) time.Duration {
	v := judge(err)
	if s.action == read && apierrors.IsNotFound(err) {
		l.know(nil)
		return 0
	}
	switch v {
	case answered:
		switch {
		case s.action == remove:
			l.know(nil)
		case l.known.lease != nil && l.known.lease.ResourceVersion == obj.ResourceVersion:
			// The watch was faster.
		default:
			l.know(obj)
		}
		if s.action == create || s.action == update {
			l.made = obj.UID
		}
		return 0
	case conflict:
		l.doubt()
		return 0
	case refused:
		l.facts.Problem = reason.Forbidden
	case ambiguous:
		l.facts.Problem = reason.Unreachable
		l.doubt() // a read settles what became of it
	}
	l.facts.Message = err.Error()
	if l.want.Role == lease.Follow && !l.want.Fresh.IsZero() {
		l.facts.Refused = true
	}
	if v == refused {
		return pauseRefused
	}
	return pauseSilent
}
