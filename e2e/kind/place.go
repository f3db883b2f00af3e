package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
)

// place is the machine, with the programs and the folders that are used on it.
type place struct {
	root  string // of the repository
	out   string // for kubeconfigs and logs
	began time.Time

	kind, kubectl, kustomize  string
	capi                      string // folder of Cluster API's programs
	nodeImage                 string // what make kind-node-image makes
	hubImage, hubImageArchive string
}

func newPlace() (*place, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	p := &place{root: root, out: filepath.Join(root, outDir, "kind"), began: time.Now()}
	for variable, into := range map[string]*string{
		"KIND": &p.kind, harness.KustomizeVariable: &p.kustomize, "NODE_IMAGE": &p.nodeImage,
		fleet.AssetsVariable: &p.kubectl,
		"CAPI_ASSETS":        &p.capi, "HUB_IMAGE": &p.hubImage, "HUB_ARCHIVE": &p.hubImageArchive,
	} {
		if *into = os.Getenv(variable); *into == "" {
			return nil, fmt.Errorf("%s is not set: make sets it, so use make kind-up, kind-drill or kind-down", variable)
		}
	}
	p.kubectl = filepath.Join(p.kubectl, "kubectl")
	// The clusters are in a network of their own, so that nobody else's are disturbed.
	return p, errors.Join(os.Setenv("KIND_EXPERIMENTAL_DOCKER_NETWORK", network), os.MkdirAll(p.out, 0o755))
}

// say tells how far things are.
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

// on runs a command in a cluster's node.
func (c cluster) on(ctx context.Context, script string) (string, error) {
	return docker(ctx, "exec", c.node(), "sh", "-euc", script)
}

// kubectl runs kubectl as the cluster's administrator.
func (p *place) kubectlOn(ctx context.Context, c cluster, stdin []byte, args ...string) (string, error) {
	return execute(ctx, stdin, p.kubectl, append([]string{"--kubeconfig=" + p.kubeconfig(c)}, args...)...)
}

func (p *place) kubeconfig(c cluster) string { return filepath.Join(p.out, c.name+".kubeconfig") }

// acts is the folder for the act logs of a member's guestbooks.
func (p *place) acts(c cluster) string { return filepath.Join(p.out, "acts", c.name) }
