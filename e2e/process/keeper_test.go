package process_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

// kept is a shell script that a Keeper keeps running.
type kept struct {
	*process.Keeper
	mu    sync.Mutex
	waits []time.Duration
	stop  func() // returns when nothing is started any more
}

// keep keeps the script of each run; the last one serves all further runs. An empty script cannot be started.
func keep(t *testing.T, o process.KeepOptions, scripts ...string) *kept {
	t.Helper()
	k := &kept{}
	dir := t.TempDir()
	start := func(run int) (*process.Process, error) {
		script := scripts[min(run, len(scripts))-1]
		if script == "" {
			return nil, errors.New("no script")
		}
		return process.Start(fmt.Sprintf("run-%d", run), filepath.Join(dir, fmt.Sprint(run)), "/bin/sh", "-c", script)
	}
	o.Ended = func(_ *process.Process, wait time.Duration) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.waits = append(k.waits, wait)
	}
	first, err := start(1)
	harness.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	k.Keeper = process.Keep(ctx, "script", first, start, o)
	k.stop = func() { cancel(); <-k.Done() }
	t.Cleanup(func() {
		k.stop()
		if err := k.Current().Kill(); err != nil {
			t.Error(err)
		}
	})
	return k
}

const runs = "while :; do sleep 1; done"

// quick are waits that a test can wait for.
var quick = process.Backoff{First: 10 * time.Millisecond, Most: 40 * time.Millisecond, Reset: time.Hour}

func (k *kept) awaitRun(t *testing.T, run int) {
	t.Helper()
	await(t, fmt.Sprintf("run %d", run), func() bool { return k.Current().Name() == fmt.Sprintf("run-%d", run) })
}

func TestAProgramThatKeepsEndingStartsAgainLessAndLessOften(t *testing.T) {
	k := keep(t, process.KeepOptions{Backoff: quick, MayEnd: true}, "exit 1", "exit 1", "exit 1", "exit 1", runs)
	k.awaitRun(t, 5)
	k.mu.Lock()
	defer k.mu.Unlock()
	if got, want := fmt.Sprint(k.waits), "[10ms 20ms 40ms 40ms]"; got != want {
		t.Errorf("waits %s, want %s", got, want)
	}
	if k.Ends() != 4 {
		t.Errorf("%d ends, want 4", k.Ends())
	}
	if err := k.Check(); err != nil {
		t.Errorf("check of a program that may end: %v", err)
	}
}

func TestARunThatLastedBeginsTheWaitsAnew(t *testing.T) {
	o := process.KeepOptions{Backoff: process.Backoff{First: 10 * time.Millisecond, Most: time.Hour, Reset: 1},
		MayEnd: true}
	k := keep(t, o, "exit 1", "exit 1", "exit 1", runs)
	k.awaitRun(t, 4)
	k.mu.Lock()
	defer k.mu.Unlock()
	if got, want := fmt.Sprint(k.waits), "[10ms 10ms 10ms]"; got != want {
		t.Errorf("waits %s, want %s", got, want)
	}
}

func TestCheckOfAKeeperTellsWhatMustNotBe(t *testing.T) {
	for name, c := range map[string]struct {
		mayEnd  bool
		scripts []string
		want    string
	}{
		"an end of a program that may not end": {scripts: []string{"exit 3", runs}, want: "exit status 3"},
		"a crash of a program that may end": {mayEnd: true, scripts: []string{"echo panic: oh; exit 2", runs},
			want: "panic: oh"},
		"a start that fails": {mayEnd: true, scripts: []string{"exit 1", "", runs}, want: "no script"},
	} {
		t.Run(name, func(t *testing.T) {
			k := keep(t, process.KeepOptions{Backoff: quick, MayEnd: c.mayEnd}, c.scripts...)
			k.awaitRun(t, len(c.scripts)) // also after a start that failed
			if err := k.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("check: %v, want %q", err, c.want)
			}
		})
	}
}

func TestAKilledProcessIsNoFaultAndItsPlaceStaysEmptyAsLongAsAsked(t *testing.T) {
	k := keep(t, process.KeepOptions{Backoff: quick}, runs)
	begin := time.Now()
	alive, err := k.Kill(t.Context(), 200*time.Millisecond)
	if !alive || err != nil {
		t.Fatalf("alive %v, %v", alive, err)
	}
	k.awaitRun(t, 2)
	if took := time.Since(begin); took < 200*time.Millisecond {
		t.Errorf("the next run began after %v", took)
	}
	if err := k.Check(); err != nil || k.Ends() != 0 {
		t.Errorf("check: %v, %d ends", err, k.Ends())
	}
}

func TestNothingStartsAfterTheEnd(t *testing.T) {
	k := keep(t, process.KeepOptions{Backoff: quick}, runs)
	k.stop()
	if err := k.Current().Check(); err != nil {
		t.Errorf("the last process is its caller's: %v", err)
	}
	harness.Must(t, k.Current().Kill())
	if k.Current().Name() != "run-1" {
		t.Errorf("%s was started", k.Current().Name())
	}
}
