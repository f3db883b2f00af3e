package process_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/process"
)

const runs = "while :; do sleep 1; done"

// keep keeps the script of each run; the last one serves all further runs. An empty script cannot be started.
func keep(t *testing.T, o process.KeepOptions, scripts ...string) *process.Keeper {
	dir := t.TempDir()
	start := func(run int) (*process.Process, error) {
		script := scripts[min(run, len(scripts))-1]
		if script == "" {
			return nil, errors.New("no script")
		}
		return process.Start(fmt.Sprintf("run-%d", run), filepath.Join(dir, fmt.Sprint(run)), "/bin/sh", "-c", script)
	}
	first := musttest.Get(start(1))(t)
	ctx, cancel := context.WithCancel(context.Background())
	k := process.Keep(ctx, "script", first, start, o)
	t.Cleanup(func() {
		cancel()
		<-k.Done()
		musttest.Do(t, k.Current().Kill())
	})
	return k
}

func awaitRun(t *testing.T, k *process.Keeper, run int) {
	await(t, fmt.Sprintf("run %d", run), func() bool { return k.Current().Name() == fmt.Sprintf("run-%d", run) })
}

func TestKeeperReportsAnUnexpectedEnd(t *testing.T) {
	for name, c := range map[string]struct {
		mayEnd  bool
		scripts []string
		want    string
	}{
		"the program may not end":                 {false, []string{"exit 3", runs}, "exit status 3"},
		"the program may end, but its log panics": {true, []string{"echo panic: oh; exit 2", runs}, "panic: oh"},
		"the program may end, but does not start": {true, []string{"exit 1", "", runs}, "no script"},
	} {
		t.Run(name, func(t *testing.T) {
			k := keep(t, process.KeepOptions{MayEnd: c.mayEnd}, c.scripts...)
			awaitRun(t, k, len(c.scripts)) // also after a start that failed
			if err := k.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("check: %v, want %q", err, c.want)
			}
		})
	}
}

func TestKillDelaysTheNextStart(t *testing.T) {
	k := keep(t, process.KeepOptions{}, runs)
	begin := time.Now()
	alive, err := k.Kill(t.Context(), 200*time.Millisecond)
	if !alive || err != nil {
		t.Fatalf("alive %v, %v", alive, err)
	}
	awaitRun(t, k, 2)
	if took := time.Since(begin); took < 200*time.Millisecond {
		t.Errorf("the next run began after %v", took)
	}
	musttest.Do(t, k.Check())
}
