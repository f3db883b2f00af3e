// Package permit is what a reader process of the fault drills logs: a line for each answer by which it might act.
package permit

import "time"

// Line is an answer of the reader's rule: yes. All instants are readings of the boot clock.
type Line struct {
	Namespace string `json:"ns"`
	Epoch     int64  `json:"epoch"`
	// The question was asked after Asked and the answer had come at Answered.
	Asked    time.Duration `json:"asked"`
	Answered time.Duration `json:"answered"`
	// Left is what the reader had left by the answer. It counts from an instant after Asked.
	Left time.Duration `json:"left"`
}

// Deadline is when the reader has to stop at the latest.
func (l Line) Deadline() time.Duration { return l.Asked + l.Left }
