package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/e2e/harness"
)

// network is the Docker network of our clusters.
const network = "leasecast"

// subnets are tried one after the other: one may be in use on this machine.
var subnets = []string{"172.30.0.0/24", "172.29.250.0/24", "10.213.0.0/24", "192.168.213.0/24"}

// actsInNode is where a node has the folder for act logs. That of the hub stays empty: it tells whose cluster it is.
const actsInNode = "/var/lib/leasecast-acts"

// cluster is one of ours. Its name is that of the Cluster, of the file in kind-configs, and of the files in out.
type cluster struct {
	name     string
	priority int // zero for the hub
}

var (
	hub     = cluster{name: "hub"}
	members = []cluster{{"east", 100}, {"west", 50}, {"south", 10}}
	all     = append([]cluster{hub}, members...)
)

// inKind is the name that kind knows.
func (c cluster) inKind() string { return "leasecast-" + c.name }

// node is the container of its only node.
func (c cluster) node() string { return c.inKind() + "-control-plane" }

// On cgroup v1 systemd does not manage the groups of Pods, and the kubelet starts only if it is told to.
const (
	kubeletOnCgroupV1    = "kind: KubeletConfiguration\nfailCgroupV1: false\ncgroupDriver: cgroupfs\ncgroupRoot: /\n"
	containerdOnCgroupV1 = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n  SystemdCgroup " +
		"= false\n"
)

// config is the file in kind-configs with what this machine needs besides: a folder for act logs, and a kubelet that
// accepts cgroup v1 where the machine has that.
func config(raw []byte, acts string, cgroupV1 bool) ([]byte, error) {
	object := map[string]any{}
	if err := yaml.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	nodes, _ := object["nodes"].([]any)
	if len(nodes) != 1 {
		return nil, fmt.Errorf("want one node, has %d", len(nodes))
	}
	node, ok := nodes[0].(map[string]any)
	if !ok {
		return nil, errors.New("its node is no object")
	}
	mounts, _ := node["extraMounts"].([]any)
	node["extraMounts"] = append(mounts, map[string]any{"hostPath": acts, "containerPath": actsInNode})
	if cgroupV1 {
		for key, patch := range map[string]string{"kubeadmConfigPatches": kubeletOnCgroupV1,
			"containerdConfigPatches": containerdOnCgroupV1} {
			patches, _ := object[key].([]any)
			object[key] = append(patches, patch)
		}
	}
	return yaml.Marshal(object)
}

// ensureNetwork makes the network with a subnet that we choose: only then can an address be asked for.
func ensureNetwork(ctx context.Context) error {
	if _, err := docker(ctx, "network", "inspect", network); err == nil {
		return nil
	}
	var errs []error
	for _, subnet := range subnets {
		_, err := docker(ctx, "network", "create", "--driver=bridge", "--subnet="+subnet,
			"--opt", "com.docker.network.bridge.enable_ip_masquerade=true", network)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("make the Docker network %s: %w", network, errors.Join(errs...))
}

// ensureCluster returns when the cluster answers: it is made, started or found running.
func (p *place) ensureCluster(ctx context.Context, c cluster, image string, cgroupV1 bool) error {
	if err := os.MkdirAll(p.acts(c), 0o755); err != nil {
		return err
	}
	if err := os.Chmod(p.acts(c), 0o777); err != nil { // for guestbooks, which are nobody
		return err
	}
	reason, err := p.reuse(ctx, c)
	switch {
	case err != nil:
		return err
	case reason == "":
		p.say("%s runs already", c.inKind())
		return nil
	case reason != missing:
		reason, _, _ = strings.Cut(reason, "\n")
		p.say("%s is half-made (%s): deleting it", c.inKind(), reason)
		if _, err := execute(ctx, nil, p.kind, "delete", "cluster", "--name", c.inKind()); err != nil {
			return err
		}
	}
	raw, err := os.ReadFile(filepath.Join(p.root, "kind-configs", c.name+".yaml"))
	if err != nil {
		return err
	}
	full, err := config(raw, p.acts(c), cgroupV1)
	if err != nil {
		return fmt.Errorf("kind-configs/%s.yaml: %w", c.name, err)
	}
	p.say("making %s", c.inKind())
	args := []string{"create", "cluster", "--config", "-", "--kubeconfig", p.kubeconfig(c), "--retain"}
	if image != "" {
		args = append(args, "--image", image)
	}
	if _, err := execute(ctx, full, p.kind, args...); err != nil {
		return fmt.Errorf("%w\nto see more: docker logs %s, and make kind-down to begin anew", err, c.node())
	}
	if _, err := c.on(ctx, "touch "+madeMark); err != nil {
		return err
	}
	return p.answers(ctx, c, 2*time.Minute)
}

// owned returns an error if one of these clusters belongs to another checkout, which is still there.
func (p *place) owned(ctx context.Context, clusters ...cluster) error {
	for _, c := range clusters {
		if folder := madeFor(ctx, c); folder != "" && folder != p.acts(c) {
			return fmt.Errorf("%s belongs to another checkout (its act logs go to %s): make kind-down there", c.inKind(), folder)
		}
	}
	return nil
}

// madeFor is the folder for a cluster's act logs in the checkout that made it; empty if either is not there.
func madeFor(ctx context.Context, c cluster) string {
	folder := logsOf(ctx, c)
	if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return folder
}

// logsOf is the folder that a cluster's act logs go to; empty if there is none.
func logsOf(ctx context.Context, c cluster) string {
	folder, err := docker(ctx, "container", "inspect", "--format",
		`{{range .Mounts}}{{if eq .Destination "`+actsInNode+`"}}{{.Source}}{{end}}{{end}}`, c.node())
	if err != nil {
		return ""
	}
	return folder
}

const missing = "missing"

// madeMark is a file in a node that kind has finished. If kind is aborted, kubeadm goes on in the node: a cluster of
// that kind answers, but Pods are not let on its node.
const madeMark = "/var/lib/leasecast-made"

// reuse returns why a cluster cannot be used as it is; nothing if it answers.
func (p *place) reuse(ctx context.Context, c cluster) (reason string, err error) {
	out, err := docker(ctx, "ps", "--all", "--filter", "label=io.x-k8s.kind.cluster="+c.inKind(), "--format",
		"{{.Names}} {{.State}}")
	if err != nil {
		return "", err
	}
	if out == "" {
		return missing, nil
	}
	name, state, _ := strings.Cut(out, " ")
	if name != c.node() || strings.Contains(out, "\n") {
		return "its containers are " + strings.ReplaceAll(out, "\n", ", "), nil
	}
	if err := p.owned(ctx, c); err != nil {
		return "", err
	}
	if logs := logsOf(ctx, c); logs != p.acts(c) {
		return fmt.Sprintf("its act logs go to %q", logs), nil
	}
	switch state {
	case "paused":
		_, err = docker(ctx, "unpause", c.node())
	case "exited", "created":
		p.say("starting the stopped node of %s", c.inKind())
		_, err = docker(ctx, "start", c.node())
	}
	if err != nil {
		return "its node does not start: " + err.Error(), ctx.Err()
	}
	if _, err := execute(ctx, nil, p.kind, "export", "kubeconfig", "--name", c.inKind(), "--kubeconfig",
		p.kubeconfig(c)); err != nil {
		return err.Error(), ctx.Err()
	}
	if _, err := c.on(ctx, "test -f "+madeMark); err != nil {
		return "kind has not finished it", ctx.Err()
	}
	if err := p.answers(ctx, c, time.Minute); err != nil {
		return err.Error(), ctx.Err()
	}
	return "", nil
}

// answers returns when the cluster's API server is ready, and its node is.
func (p *place) answers(ctx context.Context, c cluster, limit time.Duration) error {
	return harness.Await(ctx, limit, c.inKind()+" answers and its node is ready", func(ctx context.Context) error {
		_, err := p.kubectlOn(ctx, c, nil, "--request-timeout=5s", "wait", "--for=condition=Ready", "--timeout=5s", "node",
			c.node())
		return err
	})
}

// down deletes our clusters, and the network.
func down(ctx context.Context, p *place) error {
	if _, err := docker(ctx, "version"); err != nil {
		return noEngine(err)
	}
	if err := p.owned(ctx, all...); err != nil {
		return err
	}
	out, err := execute(ctx, nil, p.kind, "get", "clusters")
	if err != nil {
		return err
	}
	there := strings.Fields(out)
	for _, c := range all {
		if !slices.Contains(there, c.inKind()) {
			continue
		}
		p.say("deleting %s", c.inKind())
		if _, err := execute(ctx, nil, p.kind, "delete", "cluster", "--name", c.inKind(), "--kubeconfig",
			p.kubeconfig(c)); err != nil {
			return err
		}
	}
	if _, err := docker(ctx, "network", "inspect", network); err == nil {
		if _, err := docker(ctx, "network", "rm", network); err != nil {
			return err
		}
	}
	p.say("nothing of make kind-up is left but %s", p.out)
	return nil
}
