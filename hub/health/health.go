package health

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// Kind of a request.
type Kind int

// The kinds of requests that are judged separately.
const (
	// Read is an authenticated read.
	Read Kind = iota
	// Write is a write on the path that renewals take.
	Write
	kinds
)

// String names the kind in messages.
func (k Kind) String() string {
	if k == Write {
		return "write"
	}
	return "read"
}

// Observation is the outcome of one request to a member.
type Observation struct {
	Kind Kind
	// At is the reading of the clocks just before the request was sent.
	At lease.Reading
	// Took is how long the answer took, or how long the hub waited for it.
	Took time.Duration
	// OK: the request was answered, and granted.
	OK bool
	// Silent: no answer came before the hub stopped waiting, so an answer might have come later.
	Silent bool
	// Reason and Message explain the failure. They are ignored if OK.
	Reason  reason.Reason
	Message string
}

// Thresholds are the policy's part of the judgement.
type Thresholds struct {
	// Timeout is how long an answer may take.
	Timeout time.Duration
	// UnreachableAfter is how long requests of a kind may fail before the member is unhealthy. It counts from the
	// send time of the last one that succeeded.
	UnreachableAfter time.Duration
	// RecoverAfter is how long an unhealthy member must answer without a failure before it is healthy again. It
	// counts from the send time of the first success to the send time of the last one.
	RecoverAfter time.Duration
}

// State is the judgement.
type State int

// The three states of a member.
const (
	Unknown State = iota
	Healthy
	Unhealthy
)

// Verdict is the judgement of a [Track] at one time under one policy.
type Verdict struct {
	State State
	// Since is when the state began. It is zero for Unknown.
	Since lease.Reading
	// Reason is NeverReached or Forbidden if State is Unknown. If it is Unhealthy, Reason is the last failure's
	// reason, or Recovering. It is empty if Healthy.
	Reason reason.Reason
	// Message explains the reason for people. It may be empty.
	Message string
	// Answering: the latest read and the latest write both succeeded. A member can
	// answer while it is still recovering, and stop answering while still healthy.
	Answering bool
	// Next is after how long the state may change without a new observation; judge again then. Zero: only an
	// observation can change it.
	Next time.Duration
}
