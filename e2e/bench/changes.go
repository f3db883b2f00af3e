package main

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/lines"
)

// change is a change of what a candidate or reader may do in one namespace.
type change struct {
	Namespace string `json:"namespace"`
	// Leads: from this instant on it may act. Otherwise somebody else may, or nobody.
	Leads bool `json:"leads"`
	// At is the boot clock.
	At time.Duration `json:"at"`
}

// changeWriter writes the changes of one process, a JSON line each. It is safe for concurrent use.
type changeWriter struct {
	out *lines.Writer
	mu  sync.Mutex
	err error // the first failure
}

// tell reads the clock and writes. A change that cannot be written is missing in the figures' samples,
// which fails the measurement.
func (w *changeWriter) tell(namespace string, leads bool) {
	err := w.out.Write(change{namespace, leads, harness.Now().Boot})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *changeWriter) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// readChanges reads what a process has written so far, in order. A last line that is still being written, or that
// will never be finished because the process was killed, is left out.
func readChanges(path string) ([]change, error) {
	var changes []change
	err := lines.Follow(path).News(func(line []byte) error {
		var c change
		if err := json.Unmarshal(line, &c); err != nil {
			return err
		}
		changes = append(changes, c)
		return nil
	})
	return changes, err
}

// latest is the last change in each namespace.
func latest(changes []change) map[string]change {
	last := map[string]change{}
	for _, c := range changes {
		last[c.Namespace] = c
	}
	return last
}

// successions tells for each namespace how long after the fault somebody began to lead, and how many of the namespaces
// wait for that. changes are those of all that may take over.
func successions(changes []change, namespaces []string, fault time.Duration) (took []time.Duration, missing int) {
	first := map[string]time.Duration{}
	for _, c := range changes {
		if at, known := first[c.Namespace]; c.Leads && c.At > fault && (!known || c.At < at) {
			first[c.Namespace] = c.At
		}
	}
	for _, namespace := range namespaces {
		at, ok := first[namespace]
		if !ok {
			missing++
			continue
		}
		took = append(took, at-fault)
	}
	return took, missing
}
