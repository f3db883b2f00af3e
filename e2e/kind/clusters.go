package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

const (
	// network is the Docker network of our clusters.
	network = "leasecast"
	// actsInNode is where a node has the folder for act logs. That of the hub stays empty: it shows whose cluster it is.
	actsInNode = "/var/lib/leasecast-acts"
	// madeMark is a file in a node that kind has finished. If kind is aborted, kubeadm goes on in the node: such a cluster
	// answers, but its node admits no Pods.
	madeMark = "/var/lib/leasecast-made"
	missing  = "missing"
)

// subnets are tried one after the other: one may be in use on this machine.
var subnets = []string{"172.30.0.0/24", "172.29.250.0/24", "10.213.0.0/24", "192.168.213.0/24"}

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

// inKind is the name that kind uses.
func (c cluster) inKind() string { return "leasecast-" + c.name }

// node is the container of its only node.
func (c cluster) node() string { return c.inKind() + "-control-plane" }

// onCgroupV1 is for a machine with cgroup v1. There systemd does not manage the groups of Pods, and the kubelet starts
// only if it must accept that.
const onCgroupV1 = `kubeadmConfigPatches:
- "kind: KubeletConfiguration\nfailCgroupV1: false\ncgroupDriver: cgroupfs\ncgroupRoot: /\n"
containerdConfigPatches:
- |
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = false
`

// config is a file in kind-configs, which ends with its node, with what this machine needs besides.
func config(raw []byte, acts string, cgroupV1 bool) []byte {
	full := fmt.Appendf(nil, "%s    extraMounts: [{hostPath: %q, containerPath: %q}]\n", raw, acts, actsInNode)
	if cgroupV1 {
		full = append(full, onCgroupV1...)
	}
	return full
}

// ensureNetwork makes the network with a subnet of our choice: only then Docker assigns a given address.
func ensureNetwork(ctx context.Context) {
	_, err := docker(ctx, "network", "inspect", network)
	for i := 0; err != nil && i < len(subnets); i++ {
		_, err = docker(ctx, "network", "create", "--driver=bridge", "--subnet="+subnets[i],
			"--opt", "com.docker.network.bridge.enable_ip_masquerade=true", network)
	}
	must.Do(err, "make the Docker network %s", network)
}

// ensureCluster returns when the cluster answers: it is made, started or found running.
func (p *place) ensureCluster(ctx context.Context, c cluster, image string, cgroupV1 bool) {
	// The guestbooks, which run without rights, write there.
	must.Do(errors.Join(os.MkdirAll(p.acts(c), 0o755), os.Chmod(p.acts(c), 0o777)))
	switch reason := must.Get(p.reuse(ctx, c)); reason {
	case "":
		p.say("%s runs already", c.inKind())
		return
	case missing:
	default:
		reason, _, _ = strings.Cut(reason, "\n")
		p.say("%s is half-made (%s): deleting it", c.inKind(), reason)
		must.Get(kind(ctx, nil, "delete", "cluster", "--name", c.inKind()))
	}
	raw := must.Get(os.ReadFile(filepath.Join(p.root, "kind-configs", c.name+".yaml")))
	p.say("making %s", c.inKind())
	args := []string{"create", "cluster", "--config", "-", "--kubeconfig", p.kubeconfig(c), "--retain"}
	if image != "" {
		args = append(args, "--image", image)
	}
	_, err := kind(ctx, config(raw, p.acts(c), cgroupV1), args...)
	must.Do(err, "see docker logs %s, and use make kind-down to begin again", c.node())
	must.Get(c.on(ctx, "touch "+madeMark))
	must.Do(p.answers(ctx, c, 2*time.Minute))
}

// owned returns an error if one of these clusters belongs to another checkout, which still exists.
func (p *place) owned(ctx context.Context, clusters ...cluster) error {
	for _, c := range clusters {
		if folder := madeFor(ctx, c); folder != "" && folder != p.acts(c) {
			return fmt.Errorf("%s belongs to another checkout (its act logs go to %s): make kind-down there", c.inKind(), folder)
		}
	}
	return nil
}

// madeFor is the folder for a cluster's act logs in the checkout that made it; empty unless both exist.
func madeFor(ctx context.Context, c cluster) string {
	folder := logsOf(ctx, c)
	if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return folder
}

// logsOf is the folder of a cluster's act logs; empty if there is no such cluster.
func logsOf(ctx context.Context, c cluster) string {
	folder, _ := docker(ctx, "container", "inspect", "--format",
		`{{range .Mounts}}{{if eq .Destination "`+actsInNode+`"}}{{.Source}}{{end}}{{end}}`, c.node())
	return folder
}

// reuse returns why a cluster cannot be used as it is, or nothing if it answers.
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
	if err := must.Try(func() {
		switch state {
		case "paused":
			must.Get(docker(ctx, "unpause", c.node()))
		case "exited", "created":
			p.say("starting the stopped node of %s", c.inKind())
			must.Get(docker(ctx, "start", c.node()))
		}
		must.Get(kind(ctx, nil, "export", "kubeconfig", "--name", c.inKind(), "--kubeconfig", p.kubeconfig(c)))
		must.Get(c.on(ctx, "test -f "+madeMark))
		must.Do(p.answers(ctx, c, time.Minute))
	}); err != nil {
		return err.Error(), ctx.Err()
	}
	return "", nil
}

// answers returns when the cluster's API server answers and its node is ready.
func (p *place) answers(ctx context.Context, c cluster, limit time.Duration) error {
	return harness.Await(ctx, limit, c.inKind()+" answers and its node is ready", func(ctx context.Context) error {
		_, err := p.kubectl(ctx, c, "--request-timeout=5s", "wait", "--for=condition=Ready", "--timeout=5s", "node", c.node())
		return err
	})
}

// down deletes our clusters, and the network.
func down(ctx context.Context, p *place) {
	needEngine(ctx)
	must.Do(p.owned(ctx, all...))
	for _, c := range all {
		p.say("deleting %s", c.inKind())
		must.Get(kind(ctx, nil, "delete", "cluster", "--name", c.inKind(), "--kubeconfig", p.kubeconfig(c)))
	}
	if _, err := docker(ctx, "network", "inspect", network); err == nil {
		must.Get(docker(ctx, "network", "rm", network))
	}
	p.say("nothing of make kind-up is left but %s", p.out)
}
