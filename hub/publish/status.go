package publish

import (
	"time"

	"github.com/leasecast/leasecast/api/reason"
)

// Timings are what a syncer needs of a policy's.
type Timings struct {
	// Renew is r, Timeout is τ, Skew is ε.
	Renew, Timeout, Skew time.Duration
	// LongestPromise is the longest D that a copy may carry + ε: for how long what happened in the
	// member before still counts.
	LongestPromise time.Duration
}

// SyncStatus are what a syncer knows of its copy, for the controller.
type SyncStatus struct {
	// InPlace says that the copy is as it has to be.
	InPlace bool
	// Lost says that the copy of a leader does not stand and cannot be put right within
	// its term.
	Lost bool
	// MinRenewTime is the Fresh of the assignment that InPlace or Refused speaks of.
	MinRenewTime time.Time
	// Refused says that the last attempt to write a fresh copy failed.
	Refused bool
	// PoisonedEpoch is the highest epoch in which readers of the member may have believed an edit
	// that promises what nobody sent. They refuse the epochs below it from then on, and
	// within it they keep to the edit: only a higher one reaches them.
	PoisonedEpoch int64
	// Newer is the epoch of a sealed copy that is above the record's, or zero. The record has to rise
	// above it before it can be replaced.
	Newer int64
	// Released is the epoch of the term that was revoked here and that all readers have
	// released since, or zero.
	Released int64
	// Failing says why the last copy could not be written, if none was written since, and
	// Failure says it in words. A syncer that has something to write goes on trying.
	Failing reason.Reason
	Failure string
	// Marked says that the copy carries the mark of this hub, Unmarked that it is sealed with
	// the key of this hub and carries no hub's mark: see Publisher.Depart.
	Marked, Unmarked bool
	// Problem says what is in the way, if anything; Message says it in words.
	Problem reason.Reason
	Message string
}

// withoutMessages is what of the facts is news when it changes.
func (f SyncStatus) withoutMessages() SyncStatus {
	f.Message, f.Failure = "", ""
	return f
}
