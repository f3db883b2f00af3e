package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

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
	owner, err := process.Start("the owner", filepath.Join(t.TempDir(), "log"), os.Args[0])
	check(t, err)
	t.Cleanup(func() { check(t, owner.Kill()) })
	var dir string
	var pids [3]int
	await(t, "the owner's fleet is up", func(context.Context) (bool, error) {
		text, err := os.ReadFile(owner.Log())
		if err != nil || !bytes.HasSuffix(text, []byte("\n")) {
			return false, errors.Join(err, owner.Check())
		}
		_, err = fmt.Sscan(string(text), &dir, &pids[0], &pids[1], &pids[2])
		return true, err
	})
	exists := func() bool {
		t.Helper()
		next, err := newWorkDir() // removes leftovers
		check(t, err)
		check(t, next.remove())
		_, err = os.Stat(dir)
		return err == nil
	}
	if !exists() {
		t.Fatal("the folder of a living owner was removed")
	}
	check(t, owner.Kill())
	for _, pid := range pids {
		await(t, fmt.Sprintf("process %d is gone", pid), func(context.Context) (bool, error) {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return errors.Is(err, os.ErrNotExist) || bytes.Contains(stat, []byte(") Z ")), nil // dead, if not reaped
		})
	}
	if exists() {
		t.Error("the folder of a dead owner was not removed")
	}
}
