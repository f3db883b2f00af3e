package publish

import (
	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
)

// revoke replaces a live leader's Lease by one that names nobody, so that readers stop at once. Where the
// Lease is not as expected, nobody can be told to stop, and the term ends at its deadline.
func (l *leaseSyncer) revoke(now lease.Reading) step {
	c := l.known.content
	switch {
	case l.known.sealed && c.SameTerm(l.want.Term):
		l.status.InPlace = true
		return step{}
	case l.promisesMore(now):
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

// noteUnanswered notes a request without an answer, which may still be carried out. An update or removal then
// fails by its preconditions, but a creation does not. The caller holds mu.
func (p *Publisher) noteUnanswered(l *leaseSyncer, s step) {
	if s.action != create {
		return
	}
	if c, _ := wire.Read(s.lease); c.LeadsHere() {
		l.createPendingUntil = max(l.createPendingUntil, p.Clock.Now().Boot+l.timings.LongestPromise)
	}
}
