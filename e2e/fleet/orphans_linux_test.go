package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/e2e/process"
)

// ownerVariable makes the test binary a program that owns a fleet and waits to be killed.
const ownerVariable = "LEASECAST_FLEET_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		own()
	}
	os.Exit(m.Run())
}

func own() {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	f, err := Start(ctx, Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	pids := f.Hub().PIDs()
	fmt.Println(f.dir.path, pids.Etcd, pids.APIServer, pids.ControllerManager)
	<-ctx.Done() // the test kills it long before
	os.Exit(1)
}

func TestOwnerIsKilled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv(ownerVariable, "yes")
	said := filepath.Join(t.TempDir(), "said")
	owner, err := process.Start("the owner", said, os.Args[0])
	must(t, err)
	t.Cleanup(func() { _ = owner.Kill() }) // it must not outlive this test
	var line string
	await(t, "the owner says what it has started", func(context.Context) error {
		text, err := os.ReadFile(said)
		if first, _, whole := strings.Cut(string(text), "\n"); whole {
			line = first
			return nil
		}
		return errors.Join(owner.Check(), err, errors.New("it says nothing yet"))
	})
	var dir string
	var pids [3]int
	if _, err := fmt.Sscan(line, &dir, &pids[0], &pids[1], &pids[2]); err != nil {
		t.Fatalf("the owner says %q: %v", line, err)
	}
	if leftover(t); !exists(dir) {
		t.Fatal("the folder of a living owner was removed")
	}
	must(t, owner.Kill())
	for _, pid := range pids {
		await(t, fmt.Sprintf("process %d is gone", pid), func(context.Context) error {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if errors.Is(err, os.ErrNotExist) || bytes.Contains(stat, []byte(") Z ")) { // dead, if not buried
				return nil
			}
			return errors.Join(errors.New("it lives"), err)
		})
	}
	if leftover(t); exists(dir) {
		t.Error("the folder of a dead owner was left")
	}
}

// leftover does to the files of dead owners what the start of a fleet does.
func leftover(t *testing.T) {
	t.Helper()
	dir, err := newWorkDir()
	must(t, err)
	must(t, dir.remove())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
