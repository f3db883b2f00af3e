package publish

import (
	"hash/fnv"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// instants is how many instants in r have renewals, at least: they are no more than answeredWithin / 2 apart. Renewals
// of one instant share wake-ups of the hub, of its connections and of its watches.
const instants = 100

// due returns when to renew a live Lease of a namespace: at most r after its renewTime. Due times are r apart, and the
// namespace's hash shifts them. So terms that began together, or that a tenure took over together, spread out.
// Renewals come evenly, and most find that the member has just answered another request.
func due(namespace string, r time.Duration, renewTime time.Time) time.Time {
	h := fnv.New64a()
	_, _ = h.Write([]byte(namespace))
	every := max(1, r.Microseconds()) // no finer than a renewTime is stored
	n := max(instants, every/(answeredWithin/2).Microseconds())
	shift := int64(h.Sum64()%uint64(n)) * every / n
	latest := renewTime.UnixMicro() + every
	return time.UnixMicro(latest - (latest+shift)%every)
}

// future is a renewTime in the future that was read, and the boot reading when it was first found to be there.
type future struct {
	renewTime time.Time
	since     time.Duration
}

// lasts reports whether a live Lease has had a renewTime in the future for D, by the clock that does not step. Until
// then the hub's clock may have been set back for a moment, and the Lease may be right. After D, what that renewTime
// promised is over. Readers that ignored it wait for a present one.
func (f *future) lasts(t lease.Term, skew time.Duration, now lease.Reading) bool {
	if !t.RenewTime.After(now.Wall.Add(skew)) {
		f.renewTime = time.Time{}
		return false
	}
	if !f.renewTime.Equal(t.RenewTime) {
		f.renewTime, f.since = t.RenewTime, now.Boot
	}
	return now.Boot-f.since >= t.Duration
}
