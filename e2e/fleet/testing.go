package fleet

import (
	"context"
	"fmt"
	"os"
	"time"
)

// startLimit bounds what comes before the tests of a package that share a fleet.
const startLimit = 3 * time.Minute

// TB is the part of testing.TB that New needs. Naming it here keeps package testing out of the
// programs that use a fleet.
type TB interface {
	Helper()
	Cleanup(func())
	Context() context.Context
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// New starts a fleet for a test and stops it when the test is over. A fleet that does not start
// fails the test.
func New(t TB, members ...string) *Fleet {
	t.Helper()
	return NewWith(t, Options{Members: members})
}

// NewWith is New with options.
func NewWith(t TB, o Options) *Fleet {
	t.Helper()
	o.Progress = func(line string) { t.Logf("%s", line) }
	f, err := Start(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Errorf("stop the fleet: %v", err)
		}
	})
	return f
}

// FreeAddress is one of loopback for a program to listen at. Nobody else is given it before the test is over.
func FreeAddress(t TB) string {
	t.Helper()
	p, err := reservePort(true)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(p.free)
	return p.addr()
}

// Main is the TestMain of a package whose tests share a fleet. It starts the fleet, has prepare make what the
// tests need of it, in a folder that goes away with the fleet, runs the tests, and stops the fleet. It returns what to
// exit with.
func Main(m interface{ Run() int }, members []string, prepare func(ctx context.Context, f *Fleet,
	dir string) error) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	dir, err := os.MkdirTemp("", "leasecast-test-")
	if fail(err); err != nil {
		return code
	}
	defer func() { fail(os.RemoveAll(dir)) }()
	f, err := Start(ctx, Options{Members: members})
	if fail(err); err != nil {
		return code
	}
	defer func() { fail(f.Stop()) }()
	if err := prepare(ctx, f, dir); err != nil {
		fail(err)
		return code
	}
	return m.Run()
}
