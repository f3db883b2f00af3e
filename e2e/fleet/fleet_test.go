package fleet

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// patience bounds every wait of these tests.
const patience = 30 * time.Second

func TestStopLeavesNoProcessAndNoFile(t *testing.T) {
	f := NewWith(t, Options{Members: []string{"east"}})
	east := f.Member("east")
	musttest.Do(t, errors.Join(east.Pause(), east.PauseEtcd(), f.Hub().Kill()))
	pids := []int{east.PIDs().Etcd, east.PIDs().APIServer, f.Hub().PIDs().Etcd}
	musttest.Do(t, f.Stop())
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d still exists: %v", pid, err)
		}
	}
	if _, err := os.Stat(f.dir.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the fleet still exists: %v", err)
	}
	if err := east.Restart(t.Context()); err == nil {
		t.Error("a server of a stopped fleet was restarted")
	}
}

func TestStartFails(t *testing.T) {
	assets, broken := os.Getenv(AssetsVariable), t.TempDir()
	musttest.Do(t, os.Symlink(filepath.Join(assets, "etcd"), filepath.Join(broken, "etcd")))
	script := "#!/bin/sh\necho the dog ate my flags >&2\nexit 1\n"
	musttest.Do(t, os.WriteFile(filepath.Join(broken, "kube-apiserver"), []byte(script), 0o700))
	for name, test := range map[string]struct {
		assets string
		want   []string
	}{
		"no folder of binaries": {"", []string{AssetsVariable, "make k8s"}},
		"a server ends at once": {broken, []string{"kube-apiserver of hub", "it has ended", "the dog ate my flags"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(AssetsVariable, test.assets)
			t.Setenv("TMPDIR", t.TempDir())
			f, err := Start(t.Context(), Options{})
			if err == nil {
				_ = f.Stop()
				t.Fatal("the fleet started")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("want the error to mention %q: %v", want, err)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); len(left) > 0 {
				t.Errorf("files were left: %v", left)
			}
		})
	}
}

func TestHubAndLastMemberMayHaveAnotherVersion(t *testing.T) {
	for _, variable := range []string{AssetsVariable, HubAssetsVariable, LastMemberAssetsVariable} {
		dir := t.TempDir()
		t.Setenv(variable, dir)
		musttest.Do(t, os.WriteFile(filepath.Join(dir, "kube-apiserver"), nil, 0o600))
	}
	for i, want := range []string{HubAssetsVariable, AssetsVariable, LastMemberAssetsVariable} {
		got := musttest.Get(assetsOf(i, 2))(t)
		if got != os.Getenv(want) {
			t.Errorf("server %d has its programs from %s, want %s", i, got, want)
		}
	}
}

func TestFreeAddressIsReserved(t *testing.T) {
	address := FreeAddress(t)
	for range 2 { // the program may restart
		musttest.Do(t, musttest.Get(net.Listen("tcp", address))(t).Close())
	}
	if runtime.GOOS != "linux" {
		return
	}
	// A program that asks for any free port does not share.
	exclusive := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			musttest.Do(t, syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0))
		})
	}}
	if listener, err := exclusive.Listen(t.Context(), "tcp", address); err == nil {
		_ = listener.Close()
		t.Errorf("%s is free for others", address)
	}
}
