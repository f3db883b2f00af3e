package publish

import (
	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/assign"
)

// revoke replaces a live leader's Lease by one without a holder, so that readers stop at once. If the Lease is not
// as expected, the term cannot be revoked and ends at its deadline.
func (l *leaseSyncer) revoke(now lease.Reading) step {
	c := l.known.content
	switch {
	case l.known.sealed && c.SameTerm(l.want.Term):
		l.status.InPlace = true
		return step{}
	case l.known.promisesMore(now, l.timings.Skew, l.sent):
		return l.undoExtension(now)
	case !l.known.sealed || !c.SameTerm(l.want.Revoked) || !c.Live(now.Wall):
		return step{}
	}
	term := l.want.Term
	term.RenewTime = now.Wall
	s := l.write(term)
	s.revokes = l.want.Revoked.Epoch
	return s
}

// noteRevocation reports whether a step has certainly revoked its term for all readers, by its answer. It has not:
//
//   - while a late request may still create a leader's Lease, if this one is deleted;
//   - if readers may have accepted an edit with a higher epoch.
func (l *leaseSyncer) noteRevocation(s step, err error, now lease.Reading) bool {
	if err == nil {
		return l.want.Role == assign.Revoke && l.want.Revoked.Epoch == s.revokes &&
			now.Boot >= l.createPendingUntil && l.status.PoisonedEpoch <= s.revokes
	}
	if s.action != create || outcomeOf(err) != ambiguous {
		return false
	}
	// A late creation is applied, even long after it was sent. A late update or removal fails by its preconditions.
	if c, _ := wire.Read(s.lease); c.LeadsHere() {
		l.createPendingUntil = max(l.createPendingUntil, now.Boot+l.timings.LongestPromise)
	}
	return false
}
