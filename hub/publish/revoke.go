package publish

import (
	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
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

// noteUnanswered records an unanswered request, which may still be applied. A late update or removal fails by its
// preconditions, but a late creation does not. The caller holds mu.
func (p *Publisher) noteUnanswered(l *leaseSyncer, s step) {
	if s.action != create {
		return
	}
	if c, _ := wire.Read(s.lease); c.LeadsHere() {
		l.createPendingUntil = max(l.createPendingUntil, p.Clock.Now().Boot+l.timings.LongestPromise)
	}
}
