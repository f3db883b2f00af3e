package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/must"
)

func fit() machine {
	return machine{os: "linux", name: "here", engine: "here",
		cgroupVersion: "2", securityOptions: []string{"name=seccomp,profile=default", "name=cgroupns"},
		inotifyInstances: 8192, freeMiB: 16000, stockImage: true}
}

func TestPreflightNamesEachMissingThingAndItsFix(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*machine)
		want   []string // none: nothing is missing
	}{
		"nothing is missing": {func(*machine) {}, nil},
		"another system":     {func(m *machine) { m.os = "darwin" }, []string{"runs darwin", "use Linux"}},
		"an engine elsewhere": {func(m *machine) { m.engine = "there" },
			[]string{"runs on there", "this is here", "DOCKER_HOST"}},
		"too few inotify instances": {func(m *machine) { m.inotifyInstances = 128 },
			[]string{"max_user_instances is 128", "sysctl fs.inotify"}},
		"too little memory":    {func(m *machine) { m.freeMiB = 2000 }, []string{"2000 MiB", "take 2800"}},
		"memory for what runs": {func(m *machine) { m.freeMiB, m.nodes = 500, 4 }, nil},
		"rootless": {func(m *machine) { m.securityOptions = []string{"name=rootless", "name=cgroupns"} },
			[]string{"rootless", "docker context"}},
		"no image":                    {func(m *machine) { m.stockImage = false }, []string{"make kind-node-image"}},
		"no image, but all nodes run": {func(m *machine) { m.stockImage, m.nodes = false, 4 }, nil},
		"our image":                   {func(m *machine) { m.stockImage, m.ownImage = false, true }, nil},
		"cgroup v1 with kind's image": {func(m *machine) { m.cgroupVersion = "1" },
			[]string{"does not start on cgroup v1", "make kind-node-image"}},
		"cgroup v1 with our image": {func(m *machine) { m.cgroupVersion, m.ownImage = "1", true }, nil},
		"cgroup v1 without namespaces": {func(m *machine) {
			m.cgroupVersion, m.ownImage, m.securityOptions = "1", true, nil
		}, []string{"--default-cgroupns-mode private"}},
		"two things": {func(m *machine) { m.os, m.inotifyInstances = "darwin", 128 }, []string{"use Linux", "sysctl"}},
	} {
		m := fit()
		c.change(&m)
		err := m.lacks()
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", name, err, want)
			}
		}
	}
}

func TestKindsOwnImageIsUsedWhereItCanBe(t *testing.T) {
	t.Setenv("NODE_IMAGE", "ours")
	for name, c := range map[string]struct {
		m    machine
		want string
	}{
		"kind's":                {machine{cgroupVersion: "2", stockImage: true}, ""},
		"kind's before ours":    {machine{cgroupVersion: "2", stockImage: true, ownImage: true}, ""},
		"ours":                  {machine{cgroupVersion: "2", ownImage: true}, "ours"},
		"ours where it must be": {machine{cgroupVersion: "1", stockImage: true, ownImage: true}, "ours"},
		"none, as all is there": {machine{cgroupVersion: "2"}, ""},
	} {
		if got := c.m.image(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWithoutDockerTheFixIsNamed(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+t.TempDir()+"/none.sock")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, command := range map[string]func(context.Context, *place){
		"up": up, "down": down, "stock": stock, "ready": ready,
		"drill": func(ctx context.Context, p *place) { drill(ctx, p, 1) },
	} {
		t.Chdir(t.TempDir())
		err := must.Try(func() { command(ctx, &place{}) })
		if err == nil || !strings.Contains(err.Error(), "install and start Docker") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
