package publish

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// writes reports whether the step creates or updates a Lease.
func (s step) writes() bool { return s.action == create || s.action == update }

// noteFailure records that a Lease could not be written, or could not be read in order to write it. It returns the
// pause before the next try. The first pauses are short, so that a recovered link is noticed at once. After
// fastRetries failures in a row they are longer.
func (l *leaseSyncer) noteFailure(why reason.Reason, words string, pause time.Duration) time.Duration {
	l.status.Failing, l.status.Failure = why, words
	if l.failedWrites++; l.failedWrites > fastRetries {
		return pauseRefused
	}
	return pause
}

// noteSuccess records that a Lease was written.
func (l *leaseSyncer) noteSuccess() {
	l.failedWrites, l.retryAt, l.status.Failing, l.status.Failure = 0, 0, "", ""
}

// checkStored compares what the member stored with what was sent. A mutating webhook in the member, for example,
// may change Leases. Then readers and hubs do not find what they need, and the next write will be changed too. It
// returns how long to wait before that write. The pause doubles each time, up to recheck, and no event shortens it.
func (l *leaseSyncer) checkStored(s step) time.Duration {
	if !s.writes() || !l.known.read || l.known.lease == nil {
		return 0 // if anything was written, a read will show it
	}
	if l.known.sealed && l.known.labelled && l.known.lease.Spec.RenewTime.Equal(s.lease.Spec.RenewTime) {
		l.noteSuccess()
		return 0
	}
	pause := min(pauseSilent<<min(l.failedWrites, 10), recheck)
	l.retryAt = s.decided + pause
	l.noteFailure(reason.Unwritable, "the cluster stored another Lease "+l.key.String()+" than was written: "+
		"find what changes it, as a mutating admission webhook, "+
		"and exempt Leases with the label "+v1alpha1.ManagedLabel, pause)
	l.status.Problem, l.status.Message = l.status.Failing, l.status.Failure
	return pause
}

// fastRetries is how many writes in a row may fail before the pauses become longer.
const fastRetries = 10

// loseTerm records that the leader's term cannot go on. Who leads next depends on whether the member can be written
// at all. If the last write failed, it may have failed in an outage that is over. So the syncer first tries a write
// that changes nothing and promises nothing.
func (l *leaseSyncer) loseTerm(now lease.Reading) step {
	if l.status.Failing == "" || !l.known.ours {
		l.status.Lost = true
		return step{}
	}
	if !l.writeTried {
		l.writeTried = true
		return step{action: update, lease: l.known.lease.DeepCopy()}
	}
	l.writeTried, l.status.Lost = false, true
	l.lookAgain = now.Boot + recheck
	return step{after: recheck}
}
