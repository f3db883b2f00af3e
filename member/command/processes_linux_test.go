package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/member/internal/fed"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

// asGate is the first argument of this program as a gate.
const asGate = "as-gate"

// Bounds of tests with processes. The tests in bubbles check that SIGKILL comes at its instant.
const (
	realStopAhead = 4 * time.Second // of terms that last three times as long
	short         = 3 * realStopAhead
	moment        = 10 * time.Second // in which a busy machine does what takes milliseconds
	patience      = time.Minute      // for what takes seconds there
	pollEvery     = 5 * time.Millisecond
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == Watchdog:
		RunWatchdog()
	case len(os.Args) > 2 && os.Args[1] == asGate:
		os.Exit(beGate(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// beGate runs a program by the Leases from file descriptor 3. It closes descriptor 4 when it has begun.
func beGate(program []string) int {
	system := &clock.System{}
	terms := fed.New(system, time.Second)
	go func() {
		for leases := json.NewDecoder(os.NewFile(3, "leases")); ; {
			l := &coordinationv1.Lease{}
			if leases.Decode(l) != nil {
				return
			}
			terms.Observe(l)
		}
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	if err := os.NewFile(4, "begun").Close(); err != nil {
		panic(err)
	}
	code, err := Run(context.Background(), terms, Options{
		Namespace: ns, Command: program, StopAhead: realStopAhead, Signals: signals,
		Logger: funcr.New(func(_, args string) { fmt.Fprintln(os.Stderr, args) }, funcr.Options{LogTimestamp: true}),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// realGate is a gate in a process of its own.
type realGate struct {
	t      *testing.T
	dir    string // of its program's files
	cmd    *exec.Cmd
	leases io.Writer
}

// startScript starts a gate whose program is a script. The script gets the gate's folder and stubborn as $0 and $1.
func startScript(t *testing.T, script string) *realGate {
	t.Helper()
	dir := t.TempDir()
	return startGate(t, dir, os.Args[0], asGate, "sh", "-c", script, dir, stubborn)
}

// startGate starts what becomes a gate.
func startGate(t *testing.T, dir string, program ...string) *realGate {
	t.Helper()
	in, out, err := os.Pipe()
	begun, begins, wrong := os.Pipe()
	logs, bad := os.Create(filepath.Join(t.TempDir(), "log"))
	musttest.Do(t, errors.Join(err, wrong, bad))
	g := &realGate{t: t, dir: dir, cmd: exec.Command(program[0], program[1:]...), leases: out}
	g.cmd.ExtraFiles, g.cmd.Stderr = []*os.File{in, begins}, logs
	musttest.Do(t, errors.Join(g.cmd.Start(), in.Close(), begins.Close()))
	_, _ = begun.Read(make([]byte, 1)) // until it is closed
	_ = begun.Close()
	t.Cleanup(func() {
		_ = g.cmd.Process.Kill()
		_ = g.cmd.Wait()
		_, _ = out.Close(), logs.Close()
		for _, pid := range g.read("pids") { // whatever the gate does wrong, nothing is left
			if alive(dir, pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if t.Failed() {
			t.Log(g.log())
		}
	})
	return g
}

// log returns what the gate has logged so far.
func (g *realGate) log() string {
	text, err := os.ReadFile(g.cmd.Stderr.(*os.File).Name())
	if err != nil {
		g.t.Error(err)
	}
	return string(text)
}

// lease sends the gate a Lease, and returns its deadline.
func (g *realGate) lease(holder string, epoch int64, duration time.Duration) (deadline time.Time) {
	g.t.Helper()
	now := time.Now()
	l := leaseOf(g.t, lease.Reading{Wall: now}, holder, epoch, duration)
	musttest.Do(g.t, json.NewEncoder(g.leases).Encode(l))
	return now.Truncate(time.Microsecond).Add(duration)
}

// signal sends the gate a signal, unless it has ended.
func (g *realGate) signal(s syscall.Signal) {
	g.t.Helper()
	if err := g.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		g.t.Error(err)
	}
}

// send sends a process signals.
func (g *realGate) send(pid int, all ...syscall.Signal) {
	g.t.Helper()
	for _, s := range all {
		if err := syscall.Kill(pid, s); err != nil {
			g.t.Error(err)
		}
	}
}

// await returns when a condition holds.
func (g *realGate) await(what string, condition func() bool) {
	g.t.Helper()
	for began := time.Now(); !condition(); <-time.After(pollEvery) {
		if time.Since(began) > patience {
			g.t.Fatal("waited in vain for " + what)
		}
	}
}

// awaitLog returns when the gate has logged a text.
func (g *realGate) awaitLog(text string) {
	g.t.Helper()
	g.await(text, func() bool { return strings.Contains(g.log(), text) })
}

// read returns the numbers in a file of the program, none if it is not there.
func (g *realGate) read(file string) (numbers []int) {
	text, _ := os.ReadFile(filepath.Join(g.dir, file))
	for field := range strings.FieldsSeq(string(text)) {
		number, _ := strconv.Atoi(field)
		numbers = append(numbers, number)
	}
	return numbers
}

// numbers returns the numbers in a file of the program, once there are so many.
func (g *realGate) numbers(file string, atLeast int) (numbers []int) {
	g.t.Helper()
	g.await("numbers in "+file, func() bool { numbers = g.read(file); return len(numbers) >= atLeast })
	return numbers
}

// renewing renews a Lease, as a hub does, until the program has so many processes. It returns them, and the last
// deadline.
func (g *realGate) renewing(duration time.Duration, atLeast int) (pids []int, deadline time.Time) {
	g.t.Helper()
	g.await("processes", func() bool {
		if time.Until(deadline) < duration-killAhead(duration, realStopAhead)/2 {
			deadline = g.lease(us, 1, duration)
		}
		pids = g.read("pids")
		return len(pids) >= atLeast
	})
	return pids, deadline
}

// code waits for the gate to end.
func (g *realGate) code() int {
	late := time.AfterFunc(patience, func() { _ = g.cmd.Process.Kill() })
	defer late.Stop()
	_ = g.cmd.Wait()
	return g.cmd.ProcessState.ExitCode()
}

// expectGone fails the test if one of these processes is there at the deadline.
func (g *realGate) expectGone(pids []int, deadline time.Time) {
	g.t.Helper()
	for _, pid := range pids {
		for alive(g.dir, pid) && time.Now().Before(deadline) {
			<-time.After(pollEvery)
		}
		if alive(g.dir, pid) {
			g.t.Errorf("process %d lives past its time", pid)
		}
	}
}

// alive reports whether a process with this argument is there, such as its folder. Its number may be another's by now.
func alive(argument string, pid int) bool {
	arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // a zombie has none
	return err == nil && strings.Contains(string(arguments), argument)
}

const (
	// stubborn writes its number into the file pids, and the time into acts again and again, whatever signal it gets.
	stubborn = `trap '' TERM HUP INT; echo $$ >>"$0/pids"; while :; do date +%s%N >>"$0/acts"; sleep 0.1; done`
	// family is two of these.
	family = `(exec sh -c "$1" "$0") & exec sh -c "$1" "$0"`
	// daemonizes starts stubborn as a daemon: in a session of its own, and adopted because its parent has ended. Then it
	// stays. The daemon has a child that is not stubborn's own.
	daemonizes = `(setsid sh -c '(exec sh -c "$1" "$0") & exec sh -c "$1" "$0"' "$0" "$1" </dev/null >/dev/null ` +
		`2>&1 &); while :; do sleep 0.1; done`
)

// Whatever fails, no process of a program acts longer than its term. A daemon leaves the group. The gate adopts it, so
// it has to end with its term like all others.
func TestProcesses_ActNoLongerThanTheirTerm(t *testing.T) {
	const long, tooEarly = time.Minute, realStopAhead - 500*time.Millisecond // SIGTERM comes then, which these ignore
	type fault = func(g *realGate, watchdog int, deadline time.Time) (gone time.Time)
	until := func(happens func(g *realGate, watchdog int)) fault {
		return func(g *realGate, watchdog int, deadline time.Time) time.Time { happens(g, watchdog); return deadline }
	}
	soon := func(happens func(g *realGate, watchdog int)) fault { // long before the deadline
		return func(g *realGate, watchdog int, _ time.Time) time.Time {
			happens(g, watchdog)
			return time.Now().Add(moment)
		}
	}
	gate := func(s syscall.Signal) func(g *realGate, _ int) { return func(g *realGate, _ int) { g.signal(s) } }
	guard := func(all ...syscall.Signal) func(g *realGate, watchdog int) {
		return func(g *realGate, watchdog int) { g.send(watchdog, all...) }
	}
	// The gate kills a daemon first, and then the children that it leaves. It logs when all are gone.
	ended := func(happens func(g *realGate, watchdog int)) fault {
		return func(g *realGate, watchdog int, _ time.Time) time.Time {
			began := time.Now()
			happens(g, watchdog)
			g.awaitLog("The program has ended") // the term is released then
			if took := time.Since(began); took > moment {
				g.t.Errorf("the program has ended after %v, want %v at most", took, moment)
			}
			return time.Now()
		}
	}
	leads := func(holder string) func(g *realGate, _ int) {
		return func(g *realGate, _ int) { g.lease(holder, 2, long) }
	}
	for name, row := range map[string]struct {
		script   string
		duration time.Duration
		fault    fault
	}{
		"nothing fails":             {family, short, until(func(*realGate, int) {})},
		"the gate is paused":        {family, short, until(gate(syscall.SIGSTOP))},
		"the gate is killed":        {family, long, soon(gate(syscall.SIGKILL))},
		"the watchdog is paused":    {family, short, until(guard(syscall.SIGSTOP))},
		"the watchdog is killed":    {family, long, soon(guard(syscall.SIGKILL))},
		"the watchdog gets signals": {family, short, until(guard(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP))},
		// They are killed as soon as one of their keepers runs.
		"all are paused together": {family, short, func(g *realGate, watchdog int, deadline time.Time) time.Time {
			for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
				g.send(-watchdog, s) // first: a gate that has woken kills the group, and then nobody is left to signal
				if g.signal(s); s == syscall.SIGSTOP {
					<-time.After(time.Until(deadline) + time.Second)
				}
			}
			return time.Now().Add(moment)
		}},
		"a daemon, another cluster leads": {daemonizes, long, ended(leads(them))},
		"a daemon, the term is revoked":   {daemonizes, long, ended(leads(""))},
		"a daemon, the gate gets SIGTERM": {daemonizes, long, ended(gate(syscall.SIGTERM))},
		"a daemon, the gate is paused":    {daemonizes, short, until(gate(syscall.SIGSTOP))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startScript(t, row.script)
			pids, deadline := g.renewing(row.duration, 2)
			g.numbers("acts", 1) // it has not ended before its first act
			leader, err := syscall.Getpgid(pids[0])
			if err != nil || alive(Watchdog, leader) != (row.script == family) {
				t.Fatalf("process %d leads the group, and is the watchdog = %v (%v)", leader, alive(Watchdog, leader), err)
			}
			killed := row.fault(g, leader, deadline)
			g.expectGone(pids, killed)
			gone, acts := time.Now(), g.numbers("acts", 1)
			if last := time.Unix(0, int64(acts[len(acts)-1])); killed.Equal(deadline) && deadline.Sub(last) > tooEarly {
				t.Errorf("the last act came %v before the deadline: the processes were killed too early", deadline.Sub(last))
			}
			<-time.After(300 * time.Millisecond)
			acts = g.numbers("acts", 1) // a write that was under way may have ended since
			if last := time.Unix(0, int64(acts[len(acts)-1])); last.After(gone) {
				t.Errorf("an act came %v after the end", last.Sub(gone))
			}
			g.signal(syscall.SIGCONT)
		})
	}
}

func TestRun_ExitCode(t *testing.T) {
	t.Setenv(EpochVariable, "of another gate")
	t.Setenv("LEASECAST_FUTURE", "of another gate")
	notExecutable := filepath.Join(t.TempDir(), "text")
	musttest.Do(t, os.WriteFile(notExecutable, []byte("\x7fELF is what it is not"), 0o700))
	noBit := filepath.Join(t.TempDir(), "script")
	musttest.Do(t, os.WriteFile(noBit, []byte("#!/bin/sh\n"), 0o600))
	const variables = `tr '\0' '\n' </proc/$$/environ | grep -q "of another gate" && exit 3; exit 4`
	for name, row := range map[string]struct {
		program []string
		want    int
		early   bool // the gate ends before it reads a Lease
	}{
		"the program's":                       {[]string{"sh", "-c", "exit 7"}, 7, false},
		"the epoch of its term":               {[]string{"sh", "-c", "exit $LEASECAST_EPOCH"}, 1, false},
		"no variable of another gate is left": {[]string{"sh", "-c", variables}, 4, false},
		"128 and the signal that ended it":    {[]string{"sh", "-c", "kill -KILL $$"}, 137, false},
		"the program is missing":              {[]string{"no-such-program"}, NotFound, true},
		"it cannot be started":                {[]string{notExecutable}, CannotExec, false},
		"it may not be executed":              {[]string{noBit}, CannotExec, true},
		"it is a folder":                      {[]string{t.TempDir()}, CannotExec, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGate(t, t.TempDir(), append([]string{os.Args[0], asGate}, row.program...)...)
			if !row.early {
				g.lease(us, 1, time.Minute)
			}
			if got := g.code(); got != row.want {
				t.Errorf("exit code %d, want %d", got, row.want)
			}
		})
	}
}

// What ran before the gate, as in a script that ends with exec leasecast-gate, is no part of the program.
func TestRun_KeepsChildrenFromBeforeIt(t *testing.T) {
	dir := t.TempDir()
	const script = `(exec sh -c "$2" "$1" >/dev/null 2>&1 3>&- 4>&-) & shift 2; exec "$@"`
	g := startGate(t, dir, "sh", "-c", script, "sh", dir, stubborn,
		os.Args[0], asGate, "sh", "-c", "while :; do sleep 0.1; done")
	before := g.numbers("pids", 1)[0]
	ran := musttest.Get(readStat(before))(t)
	g.await("a later tick of the kernel: a process of the same one might be the program's", func() bool {
		return uint64((&clock.System{}).Now().Boot/(10*time.Millisecond)) > ran.started
	})
	g.lease(us, 1, time.Minute)
	g.awaitLog("Runs the program")
	g.lease(them, 2, time.Minute)
	g.awaitLog("The program has ended")
	if !alive(dir, before) {
		t.Error("the gate has killed a process that it did not start")
	}
}

// A watchdog whose gate was killed before it watches has another parent by then. That is this test, which has a child.
func TestWatchdog_WithoutItsGateKillsNoOtherProcess(t *testing.T) {
	dir := t.TempDir()
	read, unread, err := os.Pipe()
	musttest.Do(t, errors.Join(err, read.Close()))
	watchdog := exec.Command("sh", "-c", `read go && exec "$0" "$1"`, os.Args[0], Watchdog) // starts before its sibling
	watchdog.SysProcAttr, watchdog.Stdout = &syscall.SysProcAttr{Setpgid: true}, unread
	begin, err := watchdog.StdinPipe()
	musttest.Do(t, errors.Join(err, watchdog.Start(), unread.Close()))
	sibling := exec.Command("sh", "-c", "while :; do sleep 0.1; done", dir)
	musttest.Do(t, sibling.Start())
	t.Cleanup(func() { _, _ = sibling.Process.Kill(), sibling.Wait() })
	_, err = io.WriteString(begin, "go\n")
	musttest.Do(t, errors.Join(err, begin.Close()))
	_ = watchdog.Wait() // it kills itself
	if status := watchdog.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("the watchdog ends with %v, want SIGKILL", watchdog.ProcessState)
	}
	if !alive(dir, sibling.Process.Pid) {
		t.Error("the watchdog has killed a process that its gate did not start")
	}
}
