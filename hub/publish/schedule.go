package publish

import (
	"hash/fnv"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// due returns when to renew a live Lease: at most r after its renewTime. Due times are r apart, and the namespace's
// hash shifts them. So terms that began together, or that a tenure took over together, spread out. Renewals come
// evenly, and most find that the member has just answered another request.
func (l *leaseSyncer) due(content lease.Content) time.Time {
	h := fnv.New64a()
	_, _ = h.Write([]byte(l.namespace))
	every := max(1, l.timings.Renew.Microseconds()) // no finer than a renewTime is stored
	shift := int64(h.Sum64() % uint64(every))
	latest := content.RenewTime.UnixMicro() + every
	return time.UnixMicro(latest - (latest+shift)%every)
}

// inFuture reports whether a live Lease has had a renewTime in the future for D, by the clock that does not step.
// Until then the hub's clock may have been set back for a moment, and the Lease may be right. After D, what that
// renewTime promised is over. Readers that ignored it wait for a present one.
func (l *leaseSyncer) inFuture(c lease.Content, now lease.Reading) bool {
	if !c.RenewTime.After(now.Wall.Add(l.timings.Skew)) {
		l.futureRenewTime = time.Time{}
		return false
	}
	if !l.futureRenewTime.Equal(c.RenewTime) {
		l.futureRenewTime, l.futureSince = c.RenewTime, now.Boot
	}
	return now.Boot-l.futureSince >= c.Duration
}
