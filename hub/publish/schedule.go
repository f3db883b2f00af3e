package publish

import (
	"hash/fnv"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// due is when a standing copy is to be renewed: no later than r after its stamp, at instants
// r apart that the namespace decides. So terms that began together, or that a tenure took
// over together, do not stay together: renewals come evenly, and most find that the member
// has just answered another.
func (l *leaseSyncer) due(content lease.Content) time.Time {
	h := fnv.New64a()
	_, _ = h.Write([]byte(l.namespace))
	every := max(1, l.timings.Renew.Microseconds()) // no finer than a stamp
	shift := int64(h.Sum64() % uint64(every))
	latest := content.RenewTime.UnixMicro() + every
	return time.UnixMicro(latest - (latest+shift)%every)
}

// inFuture reports whether a standing copy carries a stamp of the future, and did so for D by a clock that does not
// step. Until then it may be the hub's clock that was set back for a moment, and the copy right. From then on
// nobody holds what the stamp has promised, and readers who did not believe it wait for one of now.
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
