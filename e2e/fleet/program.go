package fleet

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/leasecast/leasecast/e2e/process"
)

// probeTimeout bounds one request to a server that is starting.
const probeTimeout = 2 * time.Second

// program is one program of a server. Its methods may be called from any goroutine.
type program struct {
	name, path, log string
	args            []string

	mu     sync.Mutex
	run    *process.Process // the last one; nil before the first start
	closed bool             // the fleet has been stopped
}

// start runs the program and returns when ready returns nil. It fails when the program or ctx ends before.
func (p *program) start(ctx context.Context, what string, ready func(context.Context) error) error {
	run, err := p.launch()
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, 25*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if last = ready(ctx); last != nil && !run.Running() {
			return false, process.ErrEnded
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: waiting until %s: %w (last answer: %w)%s", p.name, what, err, last, run.Tail())
	}
	return nil
}

func (p *program) launch() (*process.Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("start %s: the fleet has been stopped", p.name)
	}
	run, err := process.Start(p.name, p.log, p.path, p.args...)
	if err == nil {
		p.run = run
	}
	return run, err
}

// last returns the last run of the program. It was started.
func (p *program) last() *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// pid is 0 while the program does not run.
func (p *program) pid() int {
	if run := p.last(); run.Running() {
		return run.PID()
	}
	return 0
}

// close kills the program and prevents further starts.
func (p *program) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.run == nil {
		return nil
	}
	return p.run.Kill()
}
