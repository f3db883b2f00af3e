package publish

import (
	"time"

	"github.com/leasecast/leasecast/api/reason"
)

// Timings are those durations of a policy that a syncer needs.
type Timings struct {
	// Renew is r, Timeout is τ, Skew is ε.
	Renew, Timeout, Skew time.Duration
	// Stop is the stop time of fenced locks.
	Stop time.Duration
	// LongestPromise is the longest D of any Lease here + ε. What happened in the member counts for so long.
	LongestPromise time.Duration
	// Patience is for how long renewals may be refused before that is held against the leader. It is that of silence: an
	// API server that has just started, or whose etcd was restored, refuses everybody for a while.
	Patience time.Duration
}

// SyncStatus is what a syncer knows of its Lease, for the controller.
type SyncStatus struct {
	// InPlace says that the Lease is as it has to be.
	InPlace bool
	// Lost says that a leader's Lease is not live and cannot be repaired within its term.
	Lost bool
	// MinRenewTime is that of the assignment which InPlace or Refused is about.
	MinRenewTime time.Time
	// Refused says that the last attempt to write a Lease with that renewTime failed.
	Refused bool
	// PoisonedEpoch is the highest epoch of an edit that readers of the member may have believed. They refuse
	// lower epochs from then on, and within this one they keep to the edit. Only a higher epoch reaches them.
	PoisonedEpoch int64
	// Newer is the epoch of a sealed Lease that is above the record's, or zero. The record has to rise above
	// it before the Lease can be replaced.
	Newer int64
	// Released is the epoch of the term that was revoked here, once all readers have released it, or zero.
	Released int64
	// Failing says why the last write failed, until one succeeds. Failure says it in words. A syncer that has
	// something to write keeps trying.
	Failing reason.Reason
	Failure string
	// Marked says that the Lease carries the mark of this hub. Unmarked says that it is sealed with the key
	// of this hub and carries no mark. See Publisher.Relinquish.
	Marked, Unmarked bool
	// Problem says what is in the way, or is empty. Message says it in words.
	Problem reason.Reason
	Message string
}

// withoutMessages is the part whose changes the controller has to know.
func (f SyncStatus) withoutMessages() SyncStatus {
	f.Message, f.Failure = "", ""
	return f
}
