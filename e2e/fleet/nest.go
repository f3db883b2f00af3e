package fleet

import (
	"errors"
	"sync"

	"github.com/leasecast/leasecast/e2e/process"
)

// nest holds the processes of a fleet, to end them all when it is closed.
type nest struct {
	mu      sync.Mutex
	closed  bool
	started []*process.Process
}

// start starts a program, unless the fleet has been stopped.
func (n *nest) start(name, log, path string, args ...string) (*process.Process, error) {
	p, err := process.Start(name, log, path, args...)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	closed := n.closed
	if !closed {
		n.started = append(n.started, p)
	}
	n.mu.Unlock()
	if closed {
		return nil, errors.Join(errors.New("the fleet has been stopped"), p.Kill())
	}
	return p, nil
}

// close kills every process, lets no further one live, and returns when all have ended.
func (n *nest) close() error {
	n.mu.Lock()
	n.closed = true
	started := n.started
	n.mu.Unlock()
	var errs []error
	for _, p := range started {
		errs = append(errs, p.Kill())
	}
	return errors.Join(errs...)
}
