package fleet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
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
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=yes")
	owner.SysProcAttr = attributes() // it must not outlive this test either
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	keeper := newNest()
	defer keeper.close()
	if err := keeper.start(owner, func() {}); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the owner says nothing: %v", err)
	}
	var dir string
	var pids [3]int
	if _, err := fmt.Sscan(line, &dir, &pids[0], &pids[1], &pids[2]); err != nil {
		t.Fatalf("the owner says %q: %v", line, err)
	}
	if leftover(t); !exists(dir) {
		t.Fatal("the folder of a living owner was removed")
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // it was killed, and says so
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
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.remove(); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
