package fleet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/leasecast/leasecast/e2e/process"
)

// errNotRunning is what a control of a program returns when it does not run.
var errNotRunning = errors.New("it is not running")

// program is one program of a server. Its methods may be called from any goroutine, but start only
// while it is not running.
type program struct {
	server string // for messages
	path   string
	args   []string
	log    string
	nest   *nest

	mu  sync.Mutex
	run *process.Process // the last one
}

func (p *program) name() string { return filepath.Base(p.path) + " of " + p.server }

// start runs the program; its output is appended to the log.
func (p *program) start() error {
	run, err := p.nest.start(p.name(), p.log, p.path, p.args...)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run = run
	return nil
}

// running returns the process, nil if the program is not running.
func (p *program) running() *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return nil
	}
	select {
	case <-p.run.Ended():
		return nil
	default:
		return p.run
	}
}

// pid is 0 while the program is not running.
func (p *program) pid() int {
	if run := p.running(); run != nil {
		return run.PID()
	}
	return 0
}

// pause stops the program and returns when all its threads have stopped.
func (p *program) pause() error {
	if run := p.running(); run != nil {
		return run.Pause()
	}
	return fmt.Errorf("pause %s: %w", p.name(), errNotRunning)
}

// resume lets a paused program go on; a running one does not notice.
func (p *program) resume() error {
	if run := p.running(); run != nil {
		return run.Resume()
	}
	return fmt.Errorf("resume %s: %w", p.name(), errNotRunning)
}

// kill ends the program at once, paused or not, and returns when it is gone. Ending one that is
// not running does nothing.
func (p *program) kill() error {
	if run := p.running(); run != nil {
		return run.Kill()
	}
	return nil
}

// await polls until ready returns nil. It fails when the program ends or ctx does, and says what
// was missing and what the program said last.
func (p *program) await(ctx context.Context, what string, ready func(context.Context) error) error {
	ticker := time.NewTicker(25 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		run := p.running()
		if run == nil {
			return fmt.Errorf("%s ended before %s%s", p.name(), what, p.last().Tail())
		}
		select {
		case <-ticker.C:
		case <-run.Ended():
		case <-ctx.Done():
			return fmt.Errorf("%s: waiting until %s: %w (last answer: %w)%s", p.name(), what, context.Cause(ctx), err,
				run.Tail())
		}
	}
}

// last is the last run of the program. It was started.
func (p *program) last() *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}
