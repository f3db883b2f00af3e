package fleet

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// TestFleet uses one fleet for all that leaves it whole, and stops it.
func TestFleet(t *testing.T) {
	f := NewWith(t, Options{Members: []string{"east", "west"}, Audit: true})
	t.Run("an API server that restarts keeps data, address and PKI", func(t *testing.T) { restart(t, f.Member("east")) })
	t.Run("reads and writes are logged", func(t *testing.T) { audit(t, f.Member("east")) })
	t.Run("a restored server has the data and versions of the snapshot", func(t *testing.T) {
		restore(t, f.Member("west"))
	})
	t.Run("Stop leaves no process and no file", func(t *testing.T) { stop(t, f) })
}

func restart(t *testing.T, s *Server) {
	config, err := s.ServiceAccountConfig(t.Context(), "default", "survivor", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
	})
	check(t, err)
	c, err := client.New(s.ViaProxy(config), client.Options{})
	check(t, err)
	system := client.ObjectKey{Name: metav1.NamespaceSystem}
	before, after := &corev1.Namespace{}, &corev1.Namespace{}
	check(t, c.Get(t.Context(), system, before))
	pids := s.PIDs()
	check(t, s.Kill())
	if err := s.client.Get(t.Context(), system, after); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("want connections refused after Kill, got %v", err)
	}
	restarted := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine; the server must not
		restarted <- s.Restart(t.Context())
	}()
	check(t, <-restarted)
	if now := s.PIDs(); now.APIServer == 0 || now.APIServer == pids.APIServer || now.Etcd != pids.Etcd {
		t.Errorf("want a new API server and the same etcd, had %+v, got %+v", pids, now)
	}
	check(t, c.Get(t.Context(), system, after))
	if before.UID != after.UID {
		t.Errorf("kube-system changed from %s to %s", before.UID, after.UID)
	}
}

func audit(t *testing.T, s *Server) {
	all, err := s.Requests()
	check(t, err)
	if reads := slices.DeleteFunc(slices.Clone(all), Request.Writes); len(reads) == 0 || len(reads) == len(all) {
		t.Errorf("%d requests are logged, %d of them reads", len(all), len(reads))
	}
}

// restore also shows that a snapshot can be restored twice.
func restore(t *testing.T, s *Server) {
	create := func(name string) *corev1.ConfigMap {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		check(t, s.client.Create(t.Context(), object))
		return object
	}
	kept := create("kept")
	snapshot, err := s.Snapshot(t.Context())
	check(t, err)
	for range 2 {
		for i := range 200 { // more than a start of the server writes itself
			create("lost-" + strconv.Itoa(i))
		}
		lost := create("lost")
		check(t, s.Restore(t.Context(), snapshot))
		got, list := &corev1.ConfigMap{}, &corev1.ConfigMapList{}
		check(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(kept), got))
		if got.UID != kept.UID || got.ResourceVersion != kept.ResourceVersion {
			t.Errorf("the snapshot held %v, the server has %v", kept, got)
		}
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(lost), got); !apierrors.IsNotFound(err) {
			t.Errorf("an object that the snapshot does not hold: %v", err)
		}
		check(t, s.client.List(t.Context(), list))
		if version(t, list.ResourceVersion) >= version(t, lost.ResourceVersion) {
			t.Errorf("resourceVersion is %s, want less than %s", list.ResourceVersion, lost.ResourceVersion)
		}
	}
	check(t, snapshot.Discard())
}

func version(t *testing.T, resourceVersion string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	check(t, err)
	return n
}

func stop(t *testing.T, f *Fleet) {
	east := f.Member("east")
	check(t, errors.Join(east.Pause(), east.PauseEtcd(), f.Hub().Kill()))
	pids := []int{east.PIDs().Etcd, east.PIDs().APIServer, f.Hub().PIDs().Etcd}
	check(t, f.Stop())
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
	check(t, os.Symlink(filepath.Join(assets, "etcd"), filepath.Join(broken, "etcd")))
	script := "#!/bin/sh\necho the dog ate my flags >&2\nexit 1\n"
	check(t, os.WriteFile(filepath.Join(broken, "kube-apiserver"), []byte(script), 0o700))
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
		check(t, os.WriteFile(filepath.Join(dir, "kube-apiserver"), nil, 0o600))
	}
	for i, want := range []string{HubAssetsVariable, AssetsVariable, LastMemberAssetsVariable} {
		got, err := assetsOf(i, 2)
		check(t, err)
		if got != os.Getenv(want) {
			t.Errorf("server %d has its programs from %s, want %s", i, got, want)
		}
	}
}

func TestFreeAddressIsReserved(t *testing.T) {
	address := FreeAddress(t)
	for range 2 { // the program may restart
		listener, err := net.Listen("tcp", address)
		check(t, err)
		check(t, listener.Close())
	}
	if runtime.GOOS != "linux" {
		return
	}
	// A program that asks for any free port does not share.
	exclusive := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			check(t, syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0))
		})
	}}
	if listener, err := exclusive.Listen(t.Context(), "tcp", address); err == nil {
		_ = listener.Close()
		t.Errorf("%s is free for others", address)
	}
}

func await(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, condition); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// check fails the test at once on an error.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
