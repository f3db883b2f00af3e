package publish

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/seal"
)

// history is what a member has shown of its past. Versions and renewTimes of its objects rise, unless its etcd was
// restored to an earlier state.
type history struct {
	newestVersion string        // the highest resource version that the member has shown
	since         time.Duration // boot reading when the member was first read, or when it last showed an older state
}

// observe records a version that the member has just shown.
func (h *history) observe(version string) {
	if version != "" && (h.newestVersion == "" || older(h.newestVersion, version)) {
		h.newestVersion = version
	}
}

// older reports whether version a was certainly assigned before version b.
func older(a, b string) bool {
	n, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && n < 0
}

// showsOlderState reports whether its answer shows an older state than was known when the request was sent. That is
// an older version or, in a sealed Lease, an earlier renewTime. API servers answer an update that changes nothing
// with the version that it was based on.
func (s step) showsOlderState(key seal.Key, obj *coordinationv1.Lease) bool {
	switch k := s.before.lease; {
	case s.action != read:
		return s.newestVersion != "" && older(obj.ResourceVersion, s.newestVersion) &&
			obj.ResourceVersion != s.lease.ResourceVersion
	case k == nil:
		return false
	case older(obj.ResourceVersion, k.ResourceVersion):
		return true // also of another object: one created since has a newer version
	case k.UID != obj.UID:
		return false
	default:
		c, mac := wire.Read(obj)
		return c.SameTerm(s.before.content.Term) && c.RenewTime.Before(s.before.content.RenewTime) &&
			s.before.sealed && key.Sealed(c, mac)
	}
}

// noteState records the version in the answer to a step, and reports whether the answer shows an older state. The
// caller holds mu.
func (p *Publisher) noteState(l *leaseSyncer, s step, obj *coordinationv1.Lease) (olderState bool) {
	if obj == nil {
		return false
	}
	if olderState = s.showsOlderState(l.self.key, obj); olderState {
		p.distrustAcks(obj.ResourceVersion)
	}
	p.history.observe(obj.ResourceVersion)
	return olderState
}

// distrustAcks forgets all acknowledgements, because the member shows an older state. Its registrations may be
// older than what their readers do. The caller holds mu.
func (p *Publisher) distrustAcks(version string) {
	p.history = history{newestVersion: version, since: p.Clock.Now().Boot}
	p.acks.cancelAll()
	for l := range p.syncers.all() {
		l.status.Released = 0
	}
}

func (p *Publisher) logOlderState(olderState bool) {
	if olderState {
		p.Log.Info("The cluster shows an older state than before, as after a restore of its etcd: "+
			"for a while terms there end by their deadlines only",
			"reason", reason.OlderState)
	}
}

// mayMissReaders reports whether readers that the hub does not know may act in the member. That may be after a
// restore of its etcd to a state before they registered. The caller holds mu.
func (p *Publisher) mayMissReaders(now lease.Reading, bound time.Duration) bool {
	return now.Boot < p.history.since+max(bound, p.acks.longestDuration()+p.slack())
}
