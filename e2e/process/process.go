// Package process starts, pauses, stops, kills and restarts programs beside a test or a drill. On Linux none of them
// outlives its owner.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// stopPatience is how long a process may take for an orderly end before it is killed.
const stopPatience = 15 * time.Second

// ErrEnded is what a control of a process returns when it has ended.
var ErrEnded = errors.New("it has ended")

// Process is one run of a program. Its methods may be called from any goroutine.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	end  chan struct{} // closed when the process has ended
	how  error         // how it ended; read only after end is closed

	expected atomic.Bool // Stop or Kill was called
}

// Start starts a program whose output is appended to the file log.
func Start(name, log, path string, args ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: open its log: %w", name, err)
	}
	p := &Process{name: name, log: log, cmd: exec.Command(path, args...), end: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = attributes()
	started := make(chan error, 1)
	go func() {
		defer close(p.end)
		// The kernel kills the child when the thread that started it ends. This one lives as long as the child.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.how = p.cmd.Wait()
		}
		_ = out.Close()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s does not start: %w", name, err)
	}
	return p, nil
}

// Name is the name of the process in messages.
func (p *Process) Name() string { return p.name }

// PID is the process identifier. It means nothing after [Process.Ended].
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is the file that the process writes to.
func (p *Process) Log() string { return p.log }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.end }

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.end:
		return false
	default:
		return true
	}
}

// InOrder reports whether the process ended with exit status 0. Call it after [Process.Ended].
func (p *Process) InOrder() bool { return p.how == nil }

// How describes how the process ended. Call it after [Process.Ended].
func (p *Process) How() string {
	if p.InOrder() {
		return "without an error"
	}
	return p.how.Error()
}

// Check returns an error with the end of the log if the process has ended without Stop or Kill.
func (p *Process) Check() error {
	if p.expected.Load() || p.Running() {
		return nil
	}
	return fmt.Errorf("%s: %w (%s)%s", p.name, ErrEnded, p.How(), p.Tail())
}

// Pause stops the process (SIGSTOP) and returns when it has stopped.
func (p *Process) Pause() error {
	err := p.signal(syscall.SIGSTOP)
	if err == nil {
		err = awaitStopped(p.PID())
	}
	if err != nil {
		return fmt.Errorf("pause %s: %w", p.name, err)
	}
	return nil
}

// Resume continues a paused process. It has no effect on a running one.
func (p *Process) Resume() error {
	if err := p.signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("resume %s: %w", p.name, err)
	}
	return nil
}

// Kill ends the process at once, as a crash does, and returns when it is gone.
func (p *Process) Kill() error {
	p.expected.Store(true)
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, ErrEnded) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.end // SIGKILL cannot be refused
	return nil
}

// Stop asks the process to end (SIGTERM), paused or not, and returns when it is gone. A process that does not end in
// time is killed, and that is an error.
func (p *Process) Stop() error {
	p.expected.Store(true)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := p.signal(s); errors.Is(err, ErrEnded) {
			return nil
		} else if err != nil {
			return errors.Join(fmt.Errorf("stop %s: %w", p.name, err), p.Kill())
		}
	}
	select {
	case <-p.end:
		return nil
	case <-time.After(stopPatience):
		err := fmt.Errorf("%s did not stop within %s and was killed%s", p.name, stopPatience, p.Tail())
		return errors.Join(err, p.Kill())
	}
}

func (p *Process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return ErrEnded
}

// Tail is the end of the log, as the last part of a message; empty if the log is.
func (p *Process) Tail() string {
	const most = 12
	text, err := os.ReadFile(p.log)
	if err != nil || len(text) == 0 {
		return ""
	}
	last := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "; the end of " + p.log + ":\n\t" + strings.Join(last[max(0, len(last)-most):], "\n\t")
}
