package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/process"
)

// ownerVariable makes the test binary a program that owns a fleet and waits until it is killed.
const ownerVariable = "LEASECAST_FLEET_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		own()
	}
	os.Exit(m.Run())
}

func own() {
	f, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	pids := f.Hub().PIDs()
	fmt.Println(f.dir.path, pids.Etcd, pids.APIServer, pids.ControllerManager)
	select {}
}

func TestOwnerIsKilled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv(ownerVariable, "yes")
	owner := musttest.Get(process.Start("the owner", filepath.Join(t.TempDir(), "log"), os.Args[0]))(t)
	t.Cleanup(func() { musttest.Do(t, owner.Kill()) })
	var dir string
	var pids [3]int
	musttest.Eventually(t, patience, "the owner's fleet is up", func(context.Context) error {
		musttest.Do(t, owner.Check())
		text := must.Get(os.ReadFile(owner.Log()))
		must.FailIf(!bytes.HasSuffix(text, []byte("\n")), "it has not said so")
		_, err := fmt.Sscan(string(text), &dir, &pids[0], &pids[1], &pids[2])
		return err
	})
	exists := func() bool {
		t.Helper()
		musttest.Do(t, musttest.Get(newWorkDir())(t).remove()) // removes leftovers
		_, err := os.Stat(dir)
		return err == nil
	}
	if !exists() {
		t.Fatal("the folder of a living owner was removed")
	}
	musttest.Do(t, owner.Kill())
	for _, pid := range pids {
		musttest.Eventually(t, patience, fmt.Sprintf("process %d is gone", pid), func(context.Context) error {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			gone := errors.Is(err, os.ErrNotExist) || bytes.Contains(stat, []byte(") Z ")) // dead, if not reaped
			return must.ErrorIf(!gone, "it is there")
		})
	}
	if exists() {
		t.Error("the folder of a dead owner was not removed")
	}
}
