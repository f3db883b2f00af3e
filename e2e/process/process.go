// Package process starts, pauses, stops, kills and restarts programs beside a test or a drill. On Linux none of them
// outlives its owner.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

	bidden atomic.Bool // Stop or Kill was called
}

// Start starts a program whose output is appended to the file log. It is killed when its owner dies.
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
		// For the kernel the parent is the thread that started the child. This one lives as long as the
		// child does, so that the child is killed when its owner dies and not before.
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

// InOrder reports whether the process ended with exit status 0. Call it after [Process.Ended].
func (p *Process) InOrder() bool { return p.how == nil }

// How says how the process ended. Call it after [Process.Ended].
func (p *Process) How() string {
	if p.InOrder() {
		return "without an error"
	}
	return p.how.Error()
}

// Check returns an error with the end of the log if the process has ended, but for Stop and Kill.
func (p *Process) Check() error {
	if p.bidden.Load() {
		return nil
	}
	select {
	case <-p.end:
		return fmt.Errorf("%s: %w (%s)%s", p.name, ErrEnded, p.How(), p.Tail())
	default:
		return nil
	}
}

// Pause stops the process (SIGSTOP) and returns when it has stopped.
func (p *Process) Pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause %s: %w", p.name, err)
	}
	if err := awaitStopped(p.PID(), p.end); err != nil {
		return fmt.Errorf("pause %s: %w", p.name, err)
	}
	return nil
}

// Resume lets a paused process go on; a running one does not notice.
func (p *Process) Resume() error {
	if err := p.signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("resume %s: %w", p.name, err)
	}
	return nil
}

// Kill ends the process at once, as a crash does, and returns when it is gone.
func (p *Process) Kill() error {
	p.bidden.Store(true)
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, ErrEnded) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.end // SIGKILL cannot be refused
	return nil
}

// Stop asks the process to end (SIGTERM), paused or not, and returns when it is gone. One that does
// not end in time is killed, and that is an error. Stopping one that has ended does nothing.
func (p *Process) Stop() error {
	p.bidden.Store(true)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := p.signal(s); errors.Is(err, ErrEnded) {
			return nil
		} else if err != nil {
			return errors.Join(fmt.Errorf("stop %s: %w", p.name, err), p.Kill())
		}
	}
	patience := time.NewTimer(stopPatience)
	defer patience.Stop()
	select {
	case <-p.end:
		return nil
	case <-patience.C:
		err := fmt.Errorf("%s did not stop within %s and was killed%s", p.name, stopPatience, p.Tail())
		return errors.Join(err, p.Kill())
	}
}

func (p *Process) signal(s syscall.Signal) error {
	select {
	case <-p.end:
		return ErrEnded
	default:
	}
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return ErrEnded
	}
	return err
}

// Tail is the end of the log, as the last part of a message; empty if nothing is there.
func (p *Process) Tail() string {
	const lines, size = 12, 8 << 10
	file, err := os.Open(p.log)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > size {
		_, _ = file.Seek(-size, io.SeekEnd) // at worst the tail is longer
	}
	text, err := io.ReadAll(file)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return ""
	}
	last := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "; the end of " + p.log + ":\n\t" + strings.Join(last[max(0, len(last)-lines):], "\n\t")
}
