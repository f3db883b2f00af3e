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
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

func main() {
	rounds := flag.Int("rounds", len(faults), "how many faults the drill makes, one after the other")
	flag.Parse()
	harness.Quiet()
	harness.Run("kind", func(ctx context.Context) error { return run(ctx, *rounds, flag.Args()) })
}

func run(ctx context.Context, rounds int, args []string) error {
	command := map[string]func(context.Context, *place){
		"up": up, "down": down, "stock": stock, "ready": ready,
		"drill": func(ctx context.Context, p *place) { drill(ctx, p, rounds) },
	}[strings.Join(args, " ")]
	if command == nil || rounds < 1 {
		return fmt.Errorf("want one of up, drill, down, stock, ready, and at least one round; got %q, %d", args, rounds)
	}
	return must.Try(func() { command(ctx, newPlace()) })
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
		if os.Getenv(variable) == "" {
			must.Fail("%s is not set: make sets it, so use make kind-up, kind-drill or kind-down", variable)
		}
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
