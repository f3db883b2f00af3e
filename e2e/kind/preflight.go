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

func noEngine(err error) error {
	return fmt.Errorf("no Docker engine answers: install and start Docker; on a Debian without systemd "+
		"e2e/kind/engine.sh start does: %w", err)
}

// engine describes the Docker engine.
func engine(ctx context.Context) (machine, error) {
	m := machine{os: runtime.GOOS}
	raw, err := docker(ctx, "info", "--format", "{{json .}}")
	if err != nil {
		return m, noEngine(err)
	}
	if m.name, err = os.Hostname(); err != nil {
		return m, err
	}
	var info struct {
		Name            string
		CgroupVersion   string
		SecurityOptions []string
		ServerErrors    []string
	}
	if err := json.Unmarshal([]byte(raw), &info); err != nil {
		return m, fmt.Errorf("docker info: %w", err)
	}
	if len(info.ServerErrors) > 0 {
		return m, noEngine(errors.New(strings.Join(info.ServerErrors, "; ")))
	}
	m.engine, m.cgroupVersion, m.securityOptions = info.Name, info.CgroupVersion, info.SecurityOptions
	return m, nil
}

// stock returns nil if kind's own node image can be used here.
func stock(ctx context.Context, p *place) error {
	m, err := engine(ctx)
	switch {
	case err != nil:
		return err
	case m.cgroupVersion == "1":
		return errors.New("kind's own node image does not start on cgroup v1")
	case !p.pullable(ctx):
		return errors.New("kind's own node image cannot be pulled")
	}
	return nil
}

// preflight looks at the machine, and names everything that is missing at once.
func preflight(ctx context.Context, p *place) (machine, error) {
	m, err := engine(ctx)
	if err != nil {
		return m, err
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return m, errors.Join(m.lacks(), err)
	}
	instances, err := proc.SysctlInts("fs.inotify.max_user_instances")
	if err != nil {
		return m, err
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return m, err
	}
	m.inotifyInstances, m.freeMiB = instances[0], int(ptr.Deref(memory.MemAvailable, 0)/1024)
	for _, c := range all {
		if _, err := docker(ctx, "container", "inspect", c.node()); err == nil {
			m.nodes++
		}
	}
	_, err = docker(ctx, "image", "inspect", os.Getenv("NODE_IMAGE"))
	m.ownImage = err == nil
	if m.cgroupVersion != "1" && m.nodes < len(all) {
		m.stockImage = p.pullable(ctx)
	}
	return m, m.lacks()
}

// ready returns in one line why up cannot make all clusters anew.
func ready(ctx context.Context, p *place) error {
	_, err := preflight(ctx, p)
	for _, c := range all {
		if folder := madeFor(ctx, c); folder != "" {
			err = errors.Join(err, fmt.Errorf("%s is there already, with act logs in %s: run make kind-down in that checkout",
				c.inKind(), folder))
			break // one is enough
		}
	}
	if err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// pullable pulls the node image that this version of kind asks for.
func (p *place) pullable(ctx context.Context) bool {
	image, err := stockImage(ctx)
	if err != nil {
		return false
	}
	if _, err := docker(ctx, "image", "inspect", image); err == nil {
		return true
	}
	p.say("pulling %s", image)
	_, err = docker(ctx, "pull", "--quiet", image)
	return err == nil
}

// stockImage is named in kind's module.
func stockImage(ctx context.Context) (string, error) {
	version := os.Getenv("KIND_VERSION")
	raw, err := execute(ctx, nil, "go", "mod", "download", "-json", "sigs.k8s.io/kind@"+version)
	if err != nil {
		return "", err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(raw), &module); err != nil {
		return "", err
	}
	source, err := os.ReadFile(module.Dir + "/pkg/apis/config/defaults/image.go")
	if err != nil {
		return "", err
	}
	image := regexp.MustCompile(`const Image = "(.*)"`).FindSubmatch(source)
	if image == nil {
		return "", fmt.Errorf("kind %s names no image", version)
	}
	return string(image[1]), nil
}
