package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	utilclock "k8s.io/utils/clock"

	"github.com/leasecast/leasecast/api/lease/clock"
)

const (
	// readyWithin is how long the watchdog may take until it watches.
	readyWithin = 10 * time.Second
	// sentWithin bounds the write of a deadline to the watchdog, which may be busy.
	sentWithin = time.Second
)

// newGroups returns a function that starts groups. It makes this process the subreaper, which waits for all its
// children and for their orphans.
func newGroups(command []string) (start func(until instant, epoch int64) (group, error), err error) {
	if len(command) == 0 {
		return nil, fmt.Errorf("%w: no command is given", errNotFound)
	}
	path, err := exec.LookPath(command[0])
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR):
		return nil, fmt.Errorf("%w: %w", errCannotExec, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNotFound, err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	children, err := newReaper()
	if err != nil {
		return nil, err
	}
	return func(until instant, epoch int64) (group, error) {
		g := &processes{children: children, started: math.MaxUint64}
		if err := g.guard(self, until); err != nil {
			g.end()
			return nil, fmt.Errorf("start the watchdog: %w", err)
		}
		files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
		if g.program, err = children.start(path, command, environment(epoch), files, g.watchdog.pid); err != nil {
			g.end()
			return nil, fmt.Errorf("%w: %w", errCannotExec, err)
		}
		return g, nil
	}, nil
}

// processes are a process group. The watchdog leads it, so that one signal kills both. While the watchdog is there, no
// other group can get its number.
type processes struct {
	children          *reaper
	watchdog, program *child
	limits            *os.File // the pipe that the watchdog reads deadlines from
	started           uint64   // start of the watchdog, as in stat: before all processes of the program
}

// environment is the environment of a program. Variables that another gate has set are dropped.
func environment(epoch int64) []string {
	return append(inherited(), fmt.Sprintf("%s=%d", EpochVariable, epoch))
}

// inherited is the environment of this process without the variables of a gate.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, variablePrefix) })
}

// guard starts the watchdog, and returns when the watchdog has the deadline and ignores signals.
func (g *processes) guard(self string, until instant) error {
	in, limits, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	g.limits = limits
	ready, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = ready.Close() }()
	g.watchdog, err = g.children.start(self, []string{self, Watchdog}, inherited(), []*os.File{in, out, os.Stderr}, 0)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	watchdog, err := readStat(g.watchdog.pid)
	if err != nil {
		return err
	}
	g.started = watchdog.started
	if err := g.limit(until); err != nil {
		return err
	}
	if err := ready.SetReadDeadline(utilclock.RealClock{}.Now().Add(readyWithin)); err != nil {
		return err
	}
	_, err = ready.Read(make([]byte, 1))
	return err
}

func (g *processes) limit(until instant) error {
	if err := g.limits.SetWriteDeadline(utilclock.RealClock{}.Now().Add(sentWithin)); err != nil {
		return err
	}
	return send(g.limits, until)
}

func (g *processes) signal(s syscall.Signal) { _ = syscall.Kill(-g.watchdog.pid, s) } // an empty group is no error

func (g *processes) exited() <-chan struct{}    { return g.program.ended }
func (g *processes) unguarded() <-chan struct{} { return g.watchdog.ended }

// code returns the exit code as a shell would report it.
func (g *processes) code() int {
	if g.program.status.Signaled() {
		return 128 + int(g.program.status.Signal())
	}
	return g.program.status.ExitStatus()
}

func (g *processes) end() {
	defer func() { _ = g.limits.Close() }()
	if g.watchdog == nil {
		return
	}
	g.signal(syscall.SIGKILL)
	g.children.killSince(g.started)
	if g.program != nil {
		<-g.program.ended
	}
}

// killChildrenOf kills what the program has left to a gate that is paused, until none is left. It takes at most twice
// leastKillAhead, because the group must be killed before the deadline, too. A term of 2 s leaves that, unless
// StopAhead is shorter than 400 ms. A gate that is dead has no children.
func killChildrenOf(gate int) {
	own, err := readStat(os.Getpid())
	if err != nil {
		return
	}
	system := &clock.System{}
	until := after(system.Now(), 2*leastKillAhead)
	for ; !until.come(system.Now()); <-(utilclock.RealClock{}).After(soonest) {
		children, err := childrenOf(gate, own.started)
		children = slices.DeleteFunc(children, func(c stat) bool { return c.zombie || c.pid == own.pid })
		if err != nil || len(children) == 0 {
			return
		}
		for _, c := range children {
			killChildOf(gate, c.pid)
		}
	}
}

// RunWatchdog is the gate's second process. It kills the process group that it leads when the deadline comes, or when
// the gate is gone. It does not return.
func RunWatchdog() {
	if syscall.Getpgrp() != os.Getpid() {
		fmt.Fprintln(os.Stderr, "leasecast-gate watchdog is started by leasecast-gate only")
		os.Exit(Failed)
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	gate := os.Getppid()
	limits := make(chan instant)
	go receive(os.Stdin, limits)
	if _, err := io.WriteString(os.Stdout, "\n"); err == nil {
		_ = os.Stdout.Close()
		watch(&clock.System{}, limits)
		killChildrenOf(gate) // the gate has read the line, so gate is its pid
	}
	_ = syscall.Kill(0, syscall.SIGKILL)
	os.Exit(Failed) // never reached: it has killed itself
}
