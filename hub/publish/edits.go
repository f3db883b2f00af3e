package publish

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
)

// notePoisoned records an edit that readers accept, because they do not check seals. That is a higher epoch, unless
// it is absurd, or a later deadline of the term that leads here.
func (l *leaseSyncer) notePoisoned(now lease.Reading) {
	c, want := l.known.content, l.want.Term
	if l.known.sealed || !l.known.labelled || want.Epoch == 0 || !lease.PlausibleEpoch(now.Wall, c.Epoch) {
		return
	}
	if c.Epoch > want.Epoch || c.Epoch == want.Epoch && l.known.promisesMore(now, l.timings.Skew, l.sent) {
		l.status.PoisonedEpoch = max(l.status.PoisonedEpoch, c.Epoch)
	}
}

// promisesMore reports whether an edit of the Lease has its readers act for longer than this tenure has sent last.
// What earlier tenures promised is not known here, so every edit of a live Lease from them counts.
func (k *known) promisesMore(now lease.Reading, skew time.Duration, sent lease.Term) bool {
	c := k.content
	if k.sealed || !k.labelled || !c.LeadsHere() || !c.Live(now.Wall) {
		return false
	}
	if c.RenewTime.After(now.Wall.Add(skew)) {
		return false // a renewTime in the future, which readers ignore
	}
	return c.Epoch != sent.Epoch || c.Deadline().After(sent.Deadline())
}

// undoExtension replaces a Lease that was edited to promise more. It writes the Lease that was sent last, or one
// without a holder. For D from now on, readers may not have seen the repair. So it counts as a promise, although it
// makes none.
func (l *leaseSyncer) undoExtension(now lease.Reading) step {
	term := l.sent
	if c := l.known.content; c.Epoch != term.Epoch || !term.Live(now.Wall) {
		term = l.want.Term
		term.Holder, term.RenewTime = "", now.Wall
	}
	s := l.write(term)
	s.reading, s.promised = now, l.want.Term.Duration
	return s
}

// blocked reports whether a Lease that is never overwritten is in the way. A Lease that this syncer wrote, or whose
// seal shows that, is not in the way, even if it was edited since.
func (l *leaseSyncer) blocked() bool {
	obj, c := l.known.lease, l.known.content
	if obj == nil || l.known.ours {
		return false
	}
	name := l.key.String()
	switch edited := obj.UID == l.ownUID && !l.known.sealed; {
	case !wire.MadeByHub(obj) && !edited:
		l.status.Problem = reason.ForeignLease
		l.status.Message = "Lease " + name + " was made by somebody else: delete it, or use another leaseName"
	case c.Hub != "" && c.Hub != l.self.hub:
		l.status.Problem = reason.OtherHub
		l.status.Message = "Lease " + name + " was written by the hub " + c.Hub +
			": stop that hub, or delete the Lease if it is gone"
	case c.Cluster != "" && c.Cluster != l.self.cluster && !edited:
		l.status.Problem = reason.WrongCluster
		l.status.Message = "Lease " + name + " belongs to the cluster " + c.Cluster +
			": check where the kubeconfigs of both lead to"
	default:
		return false
	}
	return true
}
