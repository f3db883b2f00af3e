package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/e2e/must"
)

// machine is the result of preflight.
type machine struct {
	os               string // of this machine
	name, engine     string // of this machine, and of the one that the engine runs on
	cgroupVersion    string // of the engine
	securityOptions  []string
	inotifyInstances int
	freeMiB          int // memory
	nodes            int // of ours that are there
	// ownImage: make kind-node-image has made its image. stockImage: kind's own is there or can be pulled.
	ownImage, stockImage bool
}

const (
	// A node's systemd, kubelet and containerd each take some; the default of 128 is used up by the fifth node.
	wantInotifyInstances = 512
	// A cluster takes less than 500 MiB, with what runs in it.
	wantMiBPerNode = 700
)

// lacks names what is missing, each with what to do about it.
func (m machine) lacks() error {
	var errs []error
	lack := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if m.os != "linux" {
		lack("this machine runs %s: act logs are read on a clock that clusters and drill share, so use Linux", m.os)
	}
	if m.engine != m.name {
		lack("the Docker engine runs on %s, and this is %s: unset DOCKER_HOST, or run docker context use default", m.engine,
			m.name)
	}
	if m.cgroupVersion == "1" && !slices.ContainsFunc(m.securityOptions,
		func(o string) bool { return strings.HasPrefix(o, "name=cgroupns") }) {
		lack("Docker runs on cgroup v1 without namespaces: start it with --default-cgroupns-mode private, or boot with " +
			"cgroup v2")
	}
	if slices.Contains(m.securityOptions, "name=rootless") {
		lack("Docker runs rootless: faults need a root Docker; select it by docker context use")
	}
	if m.inotifyInstances < wantInotifyInstances {
		lack("fs.inotify.max_user_instances is %d: run sysctl fs.inotify.max_user_instances=%d as root", m.inotifyInstances,
			wantInotifyInstances)
	}
	if want := (len(all) - m.nodes) * wantMiBPerNode; m.freeMiB < want {
		lack("%d MiB of memory are free, and the clusters that are not there yet take %d: end something", m.freeMiB, want)
	}
	switch {
	case m.ownImage || m.nodes == len(all):
	case m.cgroupVersion == "1":
		lack("kind's own node image does not start on cgroup v1: boot with cgroup v2, or run make kind-node-image")
	case !m.stockImage:
		lack("there is no node image, and kindest/node cannot be pulled: run make kind-node-image")
	}
	return errors.Join(errs...)
}

// image is the one to make nodes from. Empty: kind's own, wherever that can be had.
func (m machine) image() string {
	if m.ownImage && (!m.stockImage || m.cgroupVersion == "1") {
		return os.Getenv("NODE_IMAGE")
	}
	return ""
}

func needEngine(ctx context.Context) {
	_, err := docker(ctx, "version")
	must.Do(err, noEngine)
}

const noEngine = "no Docker engine answers: install and start Docker; on a Debian without systemd e2e/kind/engine.sh " +
	"start does"

// engine describes the Docker engine.
func engine(ctx context.Context) machine {
	m := machine{os: runtime.GOOS, name: must.Get(os.Hostname())}
	raw, err := docker(ctx, "info", "--format", "{{json .}}")
	must.Do(err, noEngine)
	var info struct {
		Name            string
		CgroupVersion   string
		SecurityOptions []string
		ServerErrors    []string
	}
	must.Do(json.Unmarshal([]byte(raw), &info), "docker info")
	if len(info.ServerErrors) > 0 {
		must.Fail(noEngine+": %s", strings.Join(info.ServerErrors, "; "))
	}
	m.engine, m.cgroupVersion, m.securityOptions = info.Name, info.CgroupVersion, info.SecurityOptions
	return m
}

// stock succeeds if kind's own node image can be used here.
func stock(ctx context.Context, p *place) {
	if engine(ctx).cgroupVersion == "1" {
		must.Fail("kind's own node image does not start on cgroup v1")
	}
	if !p.pullable(ctx) {
		must.Fail("kind's own node image cannot be pulled")
	}
}

// preflight looks at the machine, and returns an error that names everything that is missing.
func preflight(ctx context.Context, p *place) (m machine, err error) {
	err = must.Try(func() {
		m = engine(ctx)
		if m.os == "linux" {
			proc := must.Get(procfs.NewDefaultFS())
			m.inotifyInstances = must.Get(proc.SysctlInts("fs.inotify.max_user_instances"))[0]
			m.freeMiB = int(ptr.Deref(must.Get(proc.Meminfo()).MemAvailable, 0) / 1024)
		}
		for _, c := range all {
			if _, err := docker(ctx, "container", "inspect", c.node()); err == nil {
				m.nodes++
			}
		}
		_, err := docker(ctx, "image", "inspect", os.Getenv("NODE_IMAGE"))
		m.ownImage = err == nil
		m.stockImage = m.cgroupVersion != "1" && m.nodes < len(all) && p.pullable(ctx)
		must.Do(m.lacks())
	})
	return m, err
}

// ready fails with one line that names why up cannot make all clusters.
func ready(ctx context.Context, p *place) {
	_, err := preflight(ctx, p)
	for _, c := range all {
		if folder := madeFor(ctx, c); folder != "" {
			err = errors.Join(err, fmt.Errorf("%s is there already, with act logs in %s: run make kind-down in that checkout",
				c.inKind(), folder))
			break // one is enough
		}
	}
	if err != nil {
		must.Fail("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// pullable pulls the node image that this version of kind asks for, which is named in its module.
func (p *place) pullable(ctx context.Context) bool {
	return must.Try(func() {
		raw := must.Get(execute(ctx, nil, "go", "mod", "download", "-json", "sigs.k8s.io/kind@"+os.Getenv("KIND_VERSION")))
		var module struct{ Dir string }
		must.Do(json.Unmarshal([]byte(raw), &module))
		source := must.Get(os.ReadFile(module.Dir + "/pkg/apis/config/defaults/image.go"))
		image := regexp.MustCompile(`const Image = "(.*)"`).FindSubmatch(source)
		if image == nil {
			must.Fail("kind names no image")
		}
		if _, err := docker(ctx, "image", "inspect", string(image[1])); err != nil {
			p.say("pulling %s", image[1])
			must.Get(docker(ctx, "pull", "--quiet", string(image[1])))
		}
	}) == nil
}
