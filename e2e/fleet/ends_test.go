package fleet

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestStop starts fleets for the sake of their end.
func TestStop(t *testing.T) {
	t.Run("ends paused and dead servers alike, and leaves no process and no file", func(t *testing.T) {
		f := New(t, "east")
		east := f.Member("east")
		must(t, errors.Join(east.Pause(), east.PauseEtcd(), f.Hub().Kill()))
		pids := map[string]int{
			"east's etcd": east.PIDs().Etcd, "east's API server": east.PIDs().APIServer, "hub's etcd": f.Hub().PIDs().Etcd,
		}
		must(t, f.Stop())
		for name, pid := range pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("%s, process %d, is still there: %v", name, pid, err)
			}
		}
		if _, err := os.Stat(f.dir.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder of the fleet is still there: %v", err)
		}
		if err := f.Stop(); err != nil {
			t.Errorf("the second Stop fails: %v", err)
		}
		if err := east.Restart(t.Context()); err == nil {
			t.Error("a server of a stopped fleet was restarted")
		}
	})
}

// TestStartFails shows errors that a person can act on.
func TestStartFails(t *testing.T) {
	assets := os.Getenv(AssetsVariable)
	broken := t.TempDir()
	for _, name := range []string{"etcd", "kube-controller-manager"} {
		must(t, os.Symlink(filepath.Join(assets, name), filepath.Join(broken, name)))
	}
	script := "#!/bin/sh\necho the dog ate my flags >&2\nexit 1\n"
	must(t, os.WriteFile(filepath.Join(broken, "kube-apiserver"), []byte(script), 0o700))
	for name, test := range map[string]struct {
		assets  string
		options Options
		want    []string
	}{
		"no folder of binaries named": {want: []string{AssetsVariable, "make k8s"}},
		"a binary is missing":         {assets: t.TempDir(), want: []string{"etcd", "make k8s"}},
		"a server ends at once": {assets: broken, options: Options{Members: []string{"east"}},
			want: []string{"kube-apiserver of", "ended before", "the dog ate my flags"}},
		"a name is no label": {assets: assets, options: Options{Members: []string{"East"}}, want: []string{`"East"`}},
		"a name is used twice": {assets: assets, options: Options{Members: []string{"a", "a"}},
			want: []string{`"a"`, "taken"}},
		"a member is called hub": {assets: assets, options: Options{Members: []string{"hub"}},
			want: []string{`"hub"`, "taken"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(AssetsVariable, test.assets)
			t.Setenv("TMPDIR", t.TempDir())
			f, err := Start(t.Context(), test.options)
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
