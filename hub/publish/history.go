package publish

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

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

// see records a version that the member has just shown. If it is of an older state, the registrations may be older than
// what their readers do: all answers of readers are forgotten.
func (r *Readers) see(version string, olderState bool) {
	r.mu.Lock()
	if olderState {
		r.history = history{newestVersion: version, since: r.Clock.Now().Boot}
		clear(r.acks.questions)
	}
	r.history.observe(version)
	r.mu.Unlock()
	if olderState {
		r.Log.Info("The cluster shows an older state than before, as after a restore of its etcd: "+
			"for a while terms there end by their deadlines only",
			"reason", reason.OlderState)
	}
}

// newestVersion returns the highest version that the member has shown.
func (r *Readers) newestVersion() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.history.newestVersion
}
