// Package musttest is package must for tests: an error fails the test at once.
package musttest

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/must"
)

// Do fails the test at once if there is an error. It shows the lines of test files that led to the call.
func Do(t testing.TB, err error) {
	if err == nil {
		return
	}
	t.Helper()
	var way strings.Builder
	calls := make([]uintptr, 64)
	frames := runtime.CallersFrames(calls[:runtime.Callers(2, calls)])
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if strings.HasSuffix(frame.File, "_test.go") {
			fmt.Fprintf(&way, "\n\tat %s:%d", filepath.Base(frame.File), frame.Line)
		}
	}
	t.Fatalf("%v%s", err, way.String())
}

// Get returns a value unless there is an error: Get(f())(t).
func Get[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return value
	}
}

// Eventually is [must.Await] for a test.
func Eventually(t testing.TB, limit time.Duration, what string, condition func(context.Context) error) {
	t.Helper()
	Do(t, must.Await(t.Context(), limit, what, condition))
}

// stopLimit bounds how long what Start runs may take to stop.
const stopLimit = 30 * time.Second

// Start runs something until the test is over, or until stop, which returns when that has ended. An error of it fails
// the test, and so does a stop that takes longer than stopLimit.
func Start(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			Do(t, err)
		case <-time.After(stopLimit):
			t.Errorf("it does not stop within %v", stopLimit)
		}
	})
	t.Cleanup(stop)
	return stop
}
