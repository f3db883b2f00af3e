package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// errNotRunning is what a control of a process returns when there is none.
var errNotRunning = errors.New("it is not running")

// process is one program of a server. Its methods may be called from any goroutine, but Start only
// while it is not running.
type process struct {
	server string // for messages
	path   string
	args   []string
	log    string
	nest   *nest

	mu  sync.Mutex
	cmd *exec.Cmd
	end chan struct{} // closed when the run of cmd has ended
}

func (p *process) name() string { return filepath.Base(p.path) }

// start runs the program; its output is appended to the log.
func (p *process) start() error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%s of %s: open its log: %w", p.name(), p.server, err)
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = attributes()
	end := make(chan struct{})
	err = p.nest.start(cmd, func() {
		_ = cmd.Wait() // how it ended is in its log
		_ = out.Close()
		close(end)
	})
	if err != nil {
		_ = out.Close()
		return fmt.Errorf("%s of %s does not start: %w", p.name(), p.server, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.end = cmd, end
	return nil
}

// running returns the process and the channel that is closed at its end, nil if it is not running.
func (p *process) running() (*os.Process, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil, nil
	}
	select {
	case <-p.end:
		return nil, nil
	default:
		return p.cmd.Process, p.end
	}
}

// pid is 0 while the process is not running.
func (p *process) pid() int {
	if process, _ := p.running(); process != nil {
		return process.Pid
	}
	return 0
}

// pause stops the process where it stands and returns when all its threads have stopped.
func (p *process) pause() error {
	process, end := p.running()
	if process == nil {
		return fmt.Errorf("pause %s of %s: %w", p.name(), p.server, errNotRunning)
	}
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause %s of %s: %w", p.name(), p.server, err)
	}
	if err := awaitStopped(process.Pid, end); err != nil {
		return fmt.Errorf("pause %s of %s: %w", p.name(), p.server, err)
	}
	return nil
}

// resume lets a paused process go on; a running one does not notice.
func (p *process) resume() error {
	process, _ := p.running()
	if process == nil {
		return fmt.Errorf("resume %s of %s: %w", p.name(), p.server, errNotRunning)
	}
	if err := process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("resume %s of %s: %w", p.name(), p.server, err)
	}
	return nil
}

// kill ends the process at once, paused or not, and returns when it is gone. Ending one that is
// not running does nothing.
func (p *process) kill() error {
	process, end := p.running()
	if process == nil {
		return nil
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s of %s: %w", p.name(), p.server, err)
	}
	<-end // SIGKILL cannot be refused
	return nil
}

// await polls until ready returns nil. It fails when the process ends or ctx does, and says what
// was missing and what the program said last.
func (p *process) await(ctx context.Context, what string, ready func(context.Context) error) error {
	_, end := p.running()
	ticker := time.NewTicker(25 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if end == nil {
			return fmt.Errorf("%s of %s ended before %s%s", p.name(), p.server, what, p.tail())
		}
		select {
		case <-ticker.C:
		case <-end:
			return fmt.Errorf("%s of %s ended before %s%s", p.name(), p.server, what, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s of %s: waiting until %s: %w (last answer: %w)%s",
				p.name(), p.server, what, context.Cause(ctx), err, p.tail())
		}
	}
}

// tail is the end of the log, as the last part of a message.
func (p *process) tail() string {
	const lines, size = 15, 6 << 10
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
	return "; the end of its log:\n\t" + strings.Join(last[max(0, len(last)-lines):], "\n\t")
}
