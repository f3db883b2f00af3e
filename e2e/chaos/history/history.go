// Package history is what a reader process of the fault drills tells about itself: a line when it calls the register
// and a line when that returns. The line of a write also says by what right it was made.
package history

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/leasecast/leasecast/e2e/chaos/register"
	"github.com/leasecast/leasecast/e2e/lines"
)

// Line is one line of a history, as JSON. All instants are readings of the boot clock.
type Line struct {
	// ID tells the calls of one process apart. A line with a Result belongs to the one without of the same ID.
	ID int64 `json:"id"`
	// At is when the line was made: before the call begins, or after it returned.
	At        time.Duration `json:"at"`
	Namespace string        `json:"ns,omitempty"`
	// Right is nil for a read.
	Right *Right `json:"right,omitempty"`
	// Result is one of those below, and empty in the line before the call.
	Result string `json:"result,omitempty"`
	// State is what is written, or what was read.
	register.State
}

// Right is an answer of the reader's rule: yes.
type Right struct {
	// The question was asked after Asked and had been answered at Told.
	Asked time.Duration `json:"asked"`
	Told  time.Duration `json:"told"`
	// Left is what the reader was told to have left. It counts from an instant after Asked.
	Left time.Duration `json:"left"`
}

// Results.
const (
	OK      = "ok"
	Refused = "refused"
	Unknown = "unknown" // an error, or a process that died: it may or may not have happened
)

// Call is a call of the register by a process.
type Call struct {
	Line // the line before it
	// Returned is when it had returned; Pending while that is not known, as of a process that was killed.
	Returned time.Duration
	// Result is Unknown while Returned is Pending.
	Result string
	// Read is what was read.
	Read register.State
}

// Pending is later than everything.
const Pending = time.Duration(1<<63 - 1)

// File follows the history of one process. It is not safe for concurrent use.
type File struct {
	file *lines.File
	open map[int64]int // by the ID of a call: its place in calls
	// calls are in the order of their first lines
	calls []Call
}

// Follow follows a file, which need not exist yet.
func Follow(path string) *File { return &File{file: lines.Follow(path), open: map[int64]int{}} }

// Calls returns the calls so far which had not returned before the instant; it forgets the others. A last line that is
// still being written is left for the next time.
func (f *File) Calls(since time.Duration) ([]Call, error) {
	if err := f.file.News(f.take); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	kept := f.calls[:0]
	clear(f.open)
	for _, c := range f.calls {
		if c.Returned >= since {
			if c.Returned == Pending {
				f.open[c.ID] = len(kept)
			}
			kept = append(kept, c)
		}
	}
	f.calls = kept
	return append([]Call(nil), kept...), nil
}

func (f *File) take(raw []byte) error {
	var line Line
	if err := json.Unmarshal(raw, &line); err != nil {
		return err
	}
	i, open := f.open[line.ID]
	switch {
	case line.Result == "" && !open:
		f.open[line.ID] = len(f.calls)
		f.calls = append(f.calls, Call{Line: line, Returned: Pending, Result: Unknown})
	case line.Result != "" && open:
		c := &f.calls[i]
		c.Returned, c.Result, c.Read = line.At, line.Result, line.State
		delete(f.open, line.ID)
	default:
		return fmt.Errorf("line %d, result %q, has no partner", line.ID, line.Result)
	}
	return nil
}
