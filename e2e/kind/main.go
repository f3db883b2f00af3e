// Command kind runs the hub and its members on kind, installed as users install them, and breaks them. Use it through
// make; see kind-configs/README.md.
//
//	go run ./e2e/kind up                  clusters, hub, guestbooks; reuses what runs
//	go run ./e2e/kind -rounds 20 drill    breaks them; writes out/kind-drill.json
//	go run ./e2e/kind down                deletes the clusters that up has made
//	go run ./e2e/kind stock               succeeds if kind's own node image can be used on this machine
//	go run ./e2e/kind ready               succeeds if up can make all clusters; else one line has the reason
//
// The drill exits with 1 if two clusters ever acted at once, or if something does not come back.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

func main() {
	rounds := flag.Int("rounds", len(faults), "how many faults the drill makes, one after the other")
	flag.Parse()
	harness.Quiet()
	must.Run("kind", func(ctx context.Context) { run(ctx, *rounds, flag.Args()) })
}

func run(ctx context.Context, rounds int, args []string) {
	command := map[string]func(context.Context, *place){
		"up": up, "down": down, "stock": stock, "ready": ready,
		"drill": func(ctx context.Context, p *place) { drill(ctx, p, rounds) },
	}[strings.Join(args, " ")]
	must.FailIf(command == nil || rounds < 1,
		"want one of up, drill, down, stock, ready, and at least one round; got %q, %d", args, rounds)
	command(ctx, newPlace())
}

// place is the machine, with the folders that are used on it.
type place struct {
	root  string // of the repository
	out   string // for kubeconfigs and logs
	began time.Time
}

func newPlace() *place {
	for _, variable := range []string{"KIND", harness.KustomizeVariable, "NODE_IMAGE", fleet.AssetsVariable, "CAPI_ASSETS",
		"HUB_IMAGE", "HUB_ARCHIVE"} {
		must.FailIf(os.Getenv(variable) == "",
			"%s is not set: make sets it, so use make kind-up, kind-drill or kind-down", variable)
	}
	root := must.Get(os.Getwd())
	p := &place{root: root, out: filepath.Join(root, "out", "kind"), began: time.Now()}
	must.Do(os.MkdirAll(p.out, 0o755))
	// The clusters are in a network of their own, so that no others are disturbed.
	must.Do(os.Setenv("KIND_EXPERIMENTAL_DOCKER_NETWORK", network))
	return p
}

// say reports progress.
func (p *place) say(format string, args ...any) {
	fmt.Printf("%4d s  %s\n", int(time.Since(p.began).Seconds()), fmt.Sprintf(format, args...))
}

// execute runs a program and returns what it printed.
func execute(ctx context.Context, stdin []byte, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(errs.String())
		if said == "" {
			said = strings.TrimSpace(out.String())
		}
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, said)
	}
	return strings.TrimSpace(out.String()), nil
}

func docker(ctx context.Context, args ...string) (string, error) {
	return execute(ctx, nil, "docker", args...)
}

func kind(ctx context.Context, stdin []byte, args ...string) (string, error) {
	return execute(ctx, stdin, os.Getenv("KIND"), args...)
}

// on runs a command in a cluster's node.
func (c cluster) on(ctx context.Context, script string) (string, error) {
	return docker(ctx, "exec", c.node(), "sh", "-euc", script)
}

func kubectlProgram() string { return filepath.Join(os.Getenv(fleet.AssetsVariable), "kubectl") }

// kubectl runs kubectl as the cluster's administrator.
func (p *place) kubectl(ctx context.Context, c cluster, args ...string) (string, error) {
	return p.kubectlWith(ctx, c, nil, args...)
}

func (p *place) kubectlWith(ctx context.Context, c cluster, stdin []byte, args ...string) (string, error) {
	return execute(ctx, stdin, kubectlProgram(), append([]string{"--kubeconfig=" + p.kubeconfig(c)}, args...)...)
}

// apply applies a manifest, or the kustomization in a folder.
func (p *place) apply(ctx context.Context, c cluster, manifest []byte, folder ...string) error {
	from := []string{"-f", "-"}
	if manifest == nil {
		from = []string{"-k", filepath.Join(folder...)}
	}
	_, err := p.kubectlWith(ctx, c, manifest, append([]string{"apply", "--server-side", "--force-conflicts"}, from...)...)
	return err
}

// rolledOut returns when a Deployment is available as it was changed last.
func (p *place) rolledOut(ctx context.Context, c cluster, namespace, deployment string) error {
	_, err := p.kubectl(ctx, c, "-n", namespace, "rollout", "status", "--timeout=180s", "deployment/"+deployment)
	if err != nil {
		pods, _ := p.kubectl(ctx, c, "-n", namespace, "get", "pods", "-o", "wide")
		err = fmt.Errorf("%s: %w\n%s", c.inKind(), err, pods)
	}
	return err
}

func (p *place) kubeconfig(c cluster) string { return filepath.Join(p.out, c.name+".kubeconfig") }

// acts is the folder for the act logs of a member's guestbooks.
func (p *place) acts(c cluster) string { return filepath.Join(p.out, "acts", c.name) }

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
	must.FailIf(len(info.ServerErrors) > 0, noEngine+": %s", strings.Join(info.ServerErrors, "; "))
	m.engine, m.cgroupVersion, m.securityOptions = info.Name, info.CgroupVersion, info.SecurityOptions
	return m
}

// stock succeeds if kind's own node image can be used here.
func stock(ctx context.Context, p *place) {
	must.FailIf(engine(ctx).cgroupVersion == "1", "kind's own node image does not start on cgroup v1")
	must.FailIf(!p.pullable(ctx), "kind's own node image cannot be pulled")
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
		must.FailIf(image == nil, "kind names no image")
		if _, err := docker(ctx, "image", "inspect", string(image[1])); err != nil {
			p.say("pulling %s", image[1])
			must.Get(docker(ctx, "pull", "--quiet", string(image[1])))
		}
	}) == nil
}
