package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// startLimit bounds what comes before the tests of a package that share a fleet.
const startLimit = 3 * time.Minute

// NewWith starts a fleet for a test and stops it when the test is over. A fleet that does not start fails the test.
func NewWith(t testing.TB, o Options) *Fleet {
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

// FreeAddress is an address of loopback for a program to listen at. See [ReservePort].
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := ReservePort()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// Main is the TestMain of a package whose tests share a fleet. It starts the fleet, calls prepare with a folder that is
// removed with the fleet, runs the tests, and stops the fleet. It returns the exit status.
func Main(m interface{ Run() int }, members []string, prepare func(ctx context.Context, f *Fleet,
	dir string) error) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	f, err := Start(ctx, Options{Members: members})
	if err == nil {
		dir := filepath.Join(f.dir.path, "test")
		if err = os.Mkdir(dir, 0o700); err == nil {
			err = prepare(ctx, f, dir)
		}
		if err == nil {
			code = m.Run()
		}
		err = errors.Join(err, f.Stop())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
