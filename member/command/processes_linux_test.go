package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/member/internal/fed"
)

// asGate is the first argument of this program as a gate.
const asGate = "as-gate"

// Bounds of tests with processes. The tests in bubbles check that SIGKILL comes at its instant.
const (
	realStopAhead = 4 * time.Second  // of terms that last three times as long
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

// beGate runs a program by the Leases from file descriptor 3, each a line: holder, epoch, seconds, renewTime. It closes
// descriptor 4 when it has begun.
func beGate(program []string) int {
	system := &clock.System{}
	terms := fed.New(system, time.Second)
	go func() {
		for lines := bufio.NewScanner(os.NewFile(3, "leases")); lines.Scan(); {
			var holder string
			var epoch, renewed int64
			var seconds int
			if _, err := fmt.Sscan(lines.Text(), &holder, &epoch, &seconds, &renewed); err != nil {
				panic(err)
			}
			now, duration := lease.Reading{Wall: time.Unix(0, renewed)}, time.Duration(seconds)*time.Second
			l, err := leaseOf(now, strings.Trim(holder, "-"), epoch, duration)
			if err != nil {
				panic(err)
			}
			terms.Observe(l)
		}
	}()
	if err := os.NewFile(4, "there").Close(); err != nil {
		panic(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	groups, err := newGroups(program)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return startCode(err)
	}
	r := newRunner(terms, Options{
		Namespace: ns, Command: program, StopAhead: realStopAhead, Signals: signals, Clock: system,
		Logger: funcr.New(func(_, args string) { fmt.Fprintln(os.Stderr, args) }, funcr.Options{LogTimestamp: true}),
	}, groups)
	code, err := r.run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// realGate is a gate in a process of its own.
type realGate struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    safeBuffer
	leases io.Writer
}

func startGate(t *testing.T, program ...string) *realGate {
	t.Helper()
	return startProcess(t, append([]string{self(t), asGate}, program...)...)
}

// self is the path of this program.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startProcess starts what becomes a gate.
func startProcess(t *testing.T, program ...string) *realGate {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	there, isThere, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	g := &realGate{t: t, cmd: exec.Command(program[0], program[1:]...), leases: out}
	g.cmd.ExtraFiles, g.cmd.Stderr = []*os.File{in, isThere}, &g.log
	g.cmd.WaitDelay = time.Second // what outlives the gate, and must not, holds its output open
	if err := errors.Join(g.cmd.Start(), in.Close(), isThere.Close()); err != nil {
		t.Fatal(err)
	}
	_, _ = there.Read(make([]byte, 1)) // until it is closed
	_ = there.Close()
	t.Cleanup(func() {
		_ = g.cmd.Process.Kill()
		_ = g.cmd.Wait()
		_ = out.Close()
		for _, dir := range program { // whatever the gate does wrong, nothing is left
			text, _ := os.ReadFile(filepath.Join(dir, "pids"))
			for field := range strings.FieldsSeq(string(text)) {
				if pid, err := strconv.Atoi(field); err == nil && alive(dir, pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
		if t.Failed() {
			t.Log(g.log.String())
		}
	})
	return g
}

// lease sends the gate a Lease, and returns its deadline.
func (g *realGate) lease(holder string, epoch int64, duration time.Duration) (deadline time.Time) {
	g.t.Helper()
	now := time.Now()
	if _, err := fmt.Fprintln(g.leases, holder, epoch, int(duration.Seconds()), now.UnixNano()); err != nil {
		g.t.Fatal(err)
	}
	return now.Add(duration)
}

// awaitLog returns when the gate has logged a text.
func (g *realGate) awaitLog(text string) {
	g.t.Helper()
	for began := time.Now(); !strings.Contains(g.log.String(), text); <-time.After(pollEvery) {
		if time.Since(began) > patience {
			g.t.Fatalf("the gate has not logged %q", text)
		}
	}
}

// renewing renews a Lease, as a hub does, until a file has so many lines. It returns them, and the last deadline.
func (g *realGate) renewing(duration time.Duration, file string, atLeast int) (numbers []int, deadline time.Time) {
	g.t.Helper()
	for began := time.Now(); time.Since(began) < patience; <-time.After(pollEvery) {
		if now := time.Now(); deadline.Sub(now) < duration-killAhead(duration, realStopAhead)/2 {
			deadline = g.lease(us, 1, duration)
		}
		if numbers = read(file); len(numbers) >= atLeast {
			return numbers, deadline
		}
	}
	g.t.Fatalf("%s has less than %d lines", file, atLeast)
	return nil, deadline
}

// code waits for the gate to end.
func (g *realGate) code() int {
	late := time.AfterFunc(patience, func() { _ = g.cmd.Process.Kill() })
	defer late.Stop()
	_ = g.cmd.Wait()
	return g.cmd.ProcessState.ExitCode()
}

// watchdogOf is the process that leads a process's group.
func watchdogOf(t *testing.T, pid int) int {
	t.Helper()
	group, err := syscall.Getpgid(pid)
	if err != nil {
		t.Fatal(err)
	}
	return group
}

// stubborn writes its number into the file pids, and the time into acts again and again, whatever signal it gets.
const stubborn = `trap '' TERM HUP INT; echo $$ >>"$0/pids"; while :; do date +%s%N >>"$0/acts"; sleep 0.02; done`

// family is two of these.
const family = `(exec sh -c "$1" "$0") & exec sh -c "$1" "$0"`

// lines returns what is in a file, once it has so many lines.
func lines(t *testing.T, file string, atLeast int) []int {
	t.Helper()
	for began := time.Now(); time.Since(began) < patience; <-time.After(pollEvery) {
		if numbers := read(file); len(numbers) >= atLeast {
			return numbers
		}
	}
	t.Fatalf("%s has less than %d lines", file, atLeast)
	return nil
}

// read returns the numbers in a file, none if it is not there.
func read(file string) (numbers []int) {
	text, _ := os.ReadFile(file)
	for field := range strings.FieldsSeq(string(text)) {
		number, _ := strconv.Atoi(field)
		numbers = append(numbers, number)
	}
	return numbers
}

// await returns when these processes are gone, or after a moment. It returns how long it has waited.
func await(dir string, pids []int) time.Duration {
	began := time.Now()
	for _, pid := range pids {
		for alive(dir, pid) && time.Since(began) < moment {
			<-time.After(pollEvery)
		}
	}
	return time.Since(began)
}

// alive reports whether a process with this argument is there, such as its folder. Its number may be another's by now.
func alive(dir string, pid int) bool {
	arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // a zombie has none
	return err == nil && strings.Contains(string(arguments), dir)
}

func TestNoProcessOfTheGroupActsPastTheDeadline(t *testing.T) {
	const tooEarly = realStopAhead - 500*time.Millisecond // when SIGTERM comes, which these programs ignore, they act on
	send := func(s syscall.Signal, pid int) error { return syscall.Kill(pid, s) }
	cases := map[string]struct {
		fault  func(gate, watchdog int) error
		atOnce bool // the group is killed long before the deadline
	}{
		"nothing fails":          {func(int, int) error { return nil }, false},
		"the gate is paused":     {func(gate, _ int) error { return send(syscall.SIGSTOP, gate) }, false},
		"the gate is killed":     {func(gate, _ int) error { return send(syscall.SIGKILL, gate) }, true},
		"the watchdog is paused": {func(_, watchdog int) error { return send(syscall.SIGSTOP, watchdog) }, false},
		"the watchdog is killed": {func(_, watchdog int) error { return send(syscall.SIGKILL, watchdog) }, true},
		"the watchdog gets signals": {func(_, watchdog int) error {
			return errors.Join(send(syscall.SIGTERM, watchdog), send(syscall.SIGINT, watchdog), send(syscall.SIGHUP, watchdog))
		}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			g := startGate(t, "sh", "-c", family, dir, stubborn)
			duration := 3 * realStopAhead
			if tc.atOnce {
				duration = time.Minute
			}
			pids, deadline := g.renewing(duration, filepath.Join(dir, "pids"), 2)
			if tc.atOnce {
				lines(t, filepath.Join(dir, "acts"), 1) // it has not ended before its first act
			}
			if err := tc.fault(g.cmd.Process.Pid, watchdogOf(t, pids[0])); err != nil {
				t.Fatal(err)
			}
			if tc.atOnce {
				await(dir, pids)
			} else {
				<-time.After(time.Until(deadline))
			}
			for _, pid := range pids {
				if alive(dir, pid) {
					t.Errorf("process %d lives past the deadline", pid)
				}
			}
			acts := lines(t, filepath.Join(dir, "acts"), 1)
			before := len(acts)
			if last := time.Unix(0, int64(acts[before-1])); !tc.atOnce && deadline.Sub(last) > tooEarly {
				t.Errorf("the last act came %v before the deadline: the group was killed too early", deadline.Sub(last))
			}
			<-time.After(300 * time.Millisecond)
			if acts = lines(t, filepath.Join(dir, "acts"), 1); len(acts) > before {
				t.Errorf("%d acts past the deadline", len(acts)-before)
			}
			if err := send(syscall.SIGCONT, g.cmd.Process.Pid); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Error(err)
			}
		})
	}
}

// A gate and a program that were paused together: the program is killed as soon as one of its keepers runs.
func TestAllThatWerePausedTogetherAreKilledWhenTheyWake(t *testing.T) {
	dir := t.TempDir()
	g := startGate(t, "sh", "-c", family, dir, stubborn)
	pids, deadline := g.renewing(3*realStopAhead, filepath.Join(dir, "pids"), 2)
	group := watchdogOf(t, pids[0])
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		// The group first: a gate that has woken kills it, and then nobody is left to signal.
		if err := errors.Join(syscall.Kill(-group, s), syscall.Kill(g.cmd.Process.Pid, s)); err != nil {
			t.Fatal(err)
		}
		if s == syscall.SIGSTOP {
			<-time.After(time.Until(deadline) + time.Second)
		}
	}
	took := await(dir, pids)
	t.Logf("all were killed %v after they woke", took)
	if took >= moment { // without a kill they live forever
		t.Errorf("some were killed only %v after they woke, want a moment", took)
	}
}

func TestTheExitCodeOfTheGate(t *testing.T) {
	t.Setenv(EpochVariable, "of another gate")
	t.Setenv("LEASECAST_FUTURE", "of another gate")
	notExecutable := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(notExecutable, []byte("\x7fELF is what it is not"), 0o700); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		program []string
		want    int
	}{
		"the program's":         {[]string{"sh", "-c", "exit 7"}, 7},
		"the epoch of its term": {[]string{"sh", "-c", "exit $LEASECAST_EPOCH"}, 1},
		"no variable of another gate is left": {
			[]string{"sh", "-c", `tr '\0' '\n' </proc/$$/environ | grep -q "of another gate" && exit 3; exit 4`}, 4},
		"128 and the signal that ended it": {[]string{"sh", "-c", "kill -KILL $$"}, 137},
		"the program is missing":           {[]string{"no-such-program"}, NotFound},
		"it cannot be started":             {[]string{notExecutable}, CannotExec},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := startGate(t, tc.program...)
			if tc.want != NotFound {
				g.lease(us, 1, time.Minute)
			}
			if got := g.code(); got != tc.want {
				t.Errorf("exit code %d, want %d", got, tc.want)
			}
		})
	}
}

// The program decides what a signal to the gate means. What it leaves behind does not outlive the gate.
func TestTheGateEndsAfterAllOfItsProgram(t *testing.T) {
	dir := t.TempDir()
	const heeds = `trap 'exit 9' TERM; (exec sh -c "$1" "$0") & while :; do sleep 0.02; done`
	g := startGate(t, "sh", "-c", heeds, dir, stubborn)
	g.lease(us, 1, time.Minute)
	orphan := lines(t, filepath.Join(dir, "pids"), 1)[0]
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := g.code(); code != 9 {
		t.Errorf("exit code %d, want that of the program, 9", code)
	}
	if alive(dir, orphan) {
		t.Error("a child of the program outlives the gate")
	}
}

// daemonizes starts stubborn as a daemon: in a session of its own, and adopted because its parent has ended. Then it
// stays. The daemon has a child that is not stubborn's own.
const daemonizes = `(setsid sh -c '(exec sh -c "$1" "$0") & exec sh -c "$1" "$0"' "$0" "$1" </dev/null >/dev/null ` +
	`2>&1 &); while :; do sleep 0.02; done`

// A daemon leaves the group. The gate adopts it, so it has to end with its term like all others.
func TestNoDaemonOfTheProgramActsPastTheTerm(t *testing.T) {
	cases := map[string]struct {
		happens func(t *testing.T, g *realGate, pids []int) (deadline time.Time)
		want    string // in the log, once all are gone
	}{
		"another cluster leads": {func(_ *testing.T, g *realGate, _ []int) time.Time {
			g.lease(them, 2, time.Minute)
			return time.Now().Add(moment)
		}, "The program has ended"},
		"the term is revoked": {func(_ *testing.T, g *realGate, _ []int) time.Time {
			g.lease("-", 2, time.Minute)
			return time.Now().Add(moment)
		}, "The program has ended"},
		"the gate gets SIGTERM": {func(t *testing.T, g *realGate, _ []int) time.Time {
			if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			return time.Now().Add(moment)
		}, "The program has ended"},
		"the gate is paused": {func(t *testing.T, g *realGate, _ []int) time.Time {
			deadline := g.lease(us, 1, 3*realStopAhead)
			if err := g.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			return deadline
		}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			g := startGate(t, "sh", "-c", daemonizes, dir, stubborn)
			duration := time.Minute
			if tc.want == "" {
				duration = 3 * realStopAhead
			}
			pids, _ := g.renewing(duration, filepath.Join(dir, "pids"), 2)
			for _, pid := range pids {
				if group := watchdogOf(t, pid); alive(Watchdog, group) {
					t.Fatalf("process %d is no daemon: a watchdog leads its group", pid)
				}
			}
			deadline := tc.happens(t, g, pids)
			for time.Now().Before(deadline) && slices.ContainsFunc(pids, func(pid int) bool { return alive(dir, pid) }) {
				<-time.After(pollEvery)
			}
			for _, pid := range pids {
				if alive(dir, pid) {
					t.Errorf("daemon %d lives past the term", pid)
				}
			}
			if err := g.cmd.Process.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Error(err)
			}
		})
	}
}

// Until the last daemon of a term is gone no other term begins.
func TestNoTermBeginsBesideADaemonOfAnEarlierOne(t *testing.T) {
	dir := t.TempDir()
	g := startGate(t, "sh", "-c", daemonizes, dir, stubborn)
	g.lease(us, 1, time.Minute)
	first := lines(t, filepath.Join(dir, "pids"), 2)
	g.lease(them, 2, time.Minute)
	g.lease(us, 3, time.Minute)
	all := lines(t, filepath.Join(dir, "pids"), 4)
	for _, pid := range all[:2] {
		if alive(dir, pid) {
			t.Errorf("daemon %d of the first term lives in the second", pid)
		}
	}
	if !slices.Equal(first, all[:2]) {
		t.Errorf("daemons %v, then %v", first, all)
	}
}

// What ran before the gate, as in a script that ends with exec leasecast-gate, is no part of the program.
func TestAChildFromBeforeTheGateLivesOn(t *testing.T) {
	dir := t.TempDir()
	const script = `(exec sh -c "$2" "$1" >/dev/null 2>&1 3>&- 4>&-) & shift 2; exec "$@"`
	g := startProcess(t, "sh", "-c", script, "sh", dir, stubborn,
		self(t), asGate, "sh", "-c", "while :; do sleep 0.02; done")
	before := lines(t, filepath.Join(dir, "pids"), 1)[0]
	g.lease(us, 1, time.Minute)
	g.awaitLog("Runs the program")
	g.lease(them, 2, time.Minute)
	g.awaitLog("The program has ended")
	if !alive(dir, before) {
		t.Error("the gate has killed a process that it did not start")
	}
}

// A revoked term: the program is asked to end, and is killed when it does not.
func TestARevokedProgramIsKilledLongBeforeTheDeadline(t *testing.T) {
	dir := t.TempDir()
	g := startGate(t, "sh", "-c", family, dir, stubborn)
	g.lease(us, 1, time.Minute)
	pids := lines(t, filepath.Join(dir, "pids"), 2)
	g.lease("-", 2, time.Minute)
	if took := await(dir, pids); took < realStopAhead-500*time.Millisecond || took >= moment {
		t.Errorf("the program was killed %v after the revocation, want %v", took, realStopAhead)
	}
}
