package publish

import (
	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
)

// revoke puts nobody in the place of the leader whose term is to end, if its copy is as
// it should be and still live. Where that is not so nobody can be told to stop, and the
// term ends by its deadline.
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

// noteUnanswered notes a request that may still be carried out, at any time. Updates and removals
// then fail by their preconditions; what creates a copy does not. The caller holds mu.
func (p *Publisher) noteUnanswered(l *leaseSyncer, s step) {
	if s.action != create {
		return
	}
	if c, _ := wire.Read(s.lease); c.LeadsHere() {
		l.createPendingUntil = max(l.createPendingUntil, p.Clock.Now().Boot+l.timings.LongestPromise)
	}
}
