package publish

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
)

// Timings are the durations of a policy that a syncer needs.
type Timings struct {
	// Renew is r, Timeout is τ, Skew is ε.
	Renew, Timeout, Skew time.Duration
	// Stop is the stop time of fenced locks.
	Stop time.Duration
	// LongestPromise is the longest D of any Lease here + ε. Events in the member count for that long.
	LongestPromise time.Duration
	// Patience is how long a leader may be rejected before that counts against the leader. It equals the limit for
	// silence: an API server that has just started, or whose etcd was restored, rejects everything for a while.
	Patience time.Duration
}

// SyncStatus is the state of a syncer's Lease, for the controller.
type SyncStatus struct {
	// InPlace: the Lease is as it has to be.
	InPlace bool
	// Lost: a leader's Lease is not live and cannot be repaired within its term.
	Lost bool
	// MinRenewTime is the assignment's MinRenewTime that InPlace or Refused refers to.
	MinRenewTime time.Time
	// Refused: the last attempt to write a Lease with that renewTime failed.
	Refused bool
	// PoisonedEpoch is the highest epoch of an edit that readers of the member may have accepted. They reject lower
	// epochs from then on, and within this one they keep to the edit. Only a higher epoch reaches them.
	PoisonedEpoch int64
	// Newer is the epoch of a sealed Lease that is above the record's, or zero. The record has to rise above it
	// before the Lease can be replaced.
	Newer int64
	// Released is the epoch of the term that was revoked here, once all readers have released it, or zero. Readers
	// keep it, and syncers never set it.
	Released int64
	// Failing is why the last write failed, until one succeeds. Failure explains it. A syncer that has something to
	// write keeps trying.
	Failing reason.Reason
	Failure string
	// Marked: the Lease carries this hub's mark. See Publisher.Relinquish.
	Marked bool
	// Problem is what is in the way, or empty. Message explains it.
	Problem reason.Reason
	Message string
}

// reported is the status that the controller was last called for, without its messages.
type reported SyncStatus

// changes reports whether a status differs from the reported one, and takes its place. If so, the caller must call the
// controller.
func (r *reported) changes(f SyncStatus) bool {
	before := *r
	*r = reported(f.withoutMessages())
	return *r != before
}

// restart takes a status that the controller need not be called for, except for its mark.
func (r *reported) restart(f SyncStatus) {
	f.Marked = r.Marked
	*r = reported(f.withoutMessages())
}

// withoutMessages returns the part whose changes the controller must be called for.
func (f SyncStatus) withoutMessages() SyncStatus {
	f.Message, f.Failure = "", ""
	return f
}

// reportChange calls the controller if the status of a Lease has changed.
func (p *Publisher) reportChange(key types.NamespacedName) {
	p.mu.Lock()
	l := p.syncers.find(key)
	changed := l != nil && l.reported.changes(l.status)
	p.mu.Unlock()
	if changed {
		p.Changed(key.Namespace)
	}
}
