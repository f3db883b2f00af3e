package process_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/process"
)

// shell runs a script as a Process that ends with the test.
func shell(t *testing.T, script string) *process.Process {
	p := musttest.Get(process.Start("shell", filepath.Join(t.TempDir(), "log"), "/bin/sh", "-c", script))(t)
	t.Cleanup(func() { musttest.Do(t, p.Kill()) })
	return p
}

func await(t *testing.T, what string, condition func() bool) {
	musttest.Eventually(t, 30*time.Second, what, func(context.Context) error {
		if !condition() {
			return errors.New("not yet")
		}
		return nil
	})
}

func TestCheckReportsAnUnexpectedEnd(t *testing.T) {
	p := shell(t, "echo that was it; exit 3")
	<-p.Ended()
	err := p.Check()
	if !errors.Is(err, process.ErrEnded) || !strings.Contains(err.Error(), "exit status 3") ||
		!strings.Contains(err.Error(), "that was it") {
		t.Errorf("check: %v, want how it ended and the end of its log", err)
	}
	if err := p.Pause(); !errors.Is(err, process.ErrEnded) {
		t.Errorf("pause after the end: %v, want an error", err)
	}
	musttest.Do(t, p.Stop())
}

func TestStopEndsAPausedProcessInOrder(t *testing.T) {
	p := shell(t, `trap 'echo in order; exit 0' TERM; echo up; while :; do sleep 0.02; done`)
	await(t, "it is up", func() bool { return strings.Contains(p.Tail(), "up") })
	musttest.Do(t, p.Pause())
	musttest.Do(t, p.Stop())
	musttest.Do(t, p.Check())
	if !strings.Contains(p.Tail(), "in order") {
		t.Errorf("it did not handle the signal%s", p.Tail())
	}
}

func TestPauseHoldsAProcessUntilResume(t *testing.T) {
	p := shell(t, `while :; do echo tick; sleep 0.01; done`)
	ticks := func() int64 {
		info := musttest.Get(os.Stat(p.Log()))(t)
		return info.Size()
	}
	await(t, "it ticks", func() bool { return ticks() > 0 })
	musttest.Do(t, p.Pause())
	before := ticks()
	musttest.Do(t, must.Stay(t.Context(), 200*time.Millisecond, "it is paused", func(context.Context) error {
		if ticks() != before {
			return errors.New("it ticks")
		}
		return nil
	}))
	musttest.Do(t, p.Resume())
	await(t, "it ticks again", func() bool { return ticks() > before })
}
