package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	hublib "github.com/leasecast/leasecast/hub"
)

const (
	guestbookHome  = "guestbook-system"
	guestbookImage = "leasecast.dev/guestbook:kind"
	// managed is the namespace in the policy of config/samples.
	managed = "guestbook"

	capiHome       = "capi-system"
	capiDeployment = "capi-controller-manager"
	capiImage      = "leasecast.dev/capi-manager:kind"
	capiService    = "capi-webhook-service." + capiHome + ".svc"
	// capiLimit is for the manager's webhooks to be reached, and for the manager to reach each member. It tries again
	// every 30 s, and may wait 5 minutes for a member that went away while it connected.
	capiLimit = 6 * time.Minute
)

var (
	//go:embed guestbook.yaml
	guestbookManifest []byte
	//go:embed given.yaml
	givenManifest []byte
	//go:embed member.yaml
	memberManifest string
	//go:embed capi/kustomization.yaml
	capiKustomization []byte
)

// up makes, starts or reuses everything, and returns when a cluster leads.
func up(ctx context.Context, p *place) {
	m, err := preflight(ctx, p)
	must.Do(err, "this machine is not ready")
	must.Do(p.owned(ctx, all...))
	ensureNetwork(ctx)
	p.buildArchives(ctx)
	// Two at a time: a control plane's first seconds are busy ones.
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for _, c := range all {
		g.Go(func() error {
			return must.Try(func() {
				p.ensureCluster(each, c, m.image(), m.cgroupVersion == "1")
				if c != hub {
					p.installGuestbook(each, c)
					return
				}
				p.installCAPI(each)
				p.installHub(each)
			})
		})
	}
	must.Do(g.Wait())
	p.register(ctx)
	p.say("Cluster API reaches each member; waiting until a cluster leads")
	leader := awaitSettled(ctx, p.client(), 3*time.Minute)
	p.say("%s leads %s. Look: kubectl --kubeconfig %s get nsleader,lspol,clusters", leader, managed, p.kubeconfig(hub))
}

func (p *place) archive(program string) string { return filepath.Join(p.root, "dist", program+".tar") }

// buildArchives builds the sample controller, and makes images of it and of Cluster API's manager.
func (p *place) buildArchives(ctx context.Context) {
	guestbook := filepath.Join(p.root, "dist", "guestbook")
	must.Get(execute(ctx, nil, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", guestbook,
		"./e2e/guestbook/cmd"))
	arch := must.Get(execute(ctx, nil, "go", "env", "GOARCH"))
	for program, name := range map[string]string{
		guestbook: guestbookImage, filepath.Join(os.Getenv("CAPI_ASSETS"), "capi-manager"): capiImage,
	} {
		must.Get(execute(ctx, nil, "go", "run", "-trimpath", "./config/image", "-program", program, "-name", name,
			"-arch", arch, "-out", p.archive(filepath.Base(program))))
	}
}

// load brings an archive into a cluster's node, unless it is there.
func (p *place) load(ctx context.Context, c cluster, archive string) (digest string) {
	digest = fmt.Sprintf("%x", sha256.Sum256(must.Get(os.ReadFile(archive))))
	mark := "/var/lib/leasecast-" + digest
	if _, err := c.on(ctx, "test -f "+mark); err != nil {
		must.Get(kind(ctx, nil, "load", "image-archive", archive, "--name", c.inKind()))
		must.Get(c.on(ctx, "touch "+mark))
	}
	return digest
}

// rollOut returns when a Deployment runs the image of an archive with this digest. The digest is in an annotation, so
// that another image under the same name rolls the Deployment.
func (p *place) rollOut(ctx context.Context, c cluster, namespace, deployment, digest string) {
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"leasecast.dev/archive":%q}}}}}`, digest)
	must.Get(p.kubectl(ctx, c, "-n", namespace, "patch", "deployment", deployment, "-p", patch))
	must.Do(p.rolledOut(ctx, c, namespace, deployment))
	p.say("%s: %s runs", c.inKind(), deployment)
}

// installHub does what config/README.md describes.
func (p *place) installHub(ctx context.Context) {
	digest := p.load(ctx, hub, filepath.Join(p.root, os.Getenv("HUB_ARCHIVE")))
	must.Get(execute(ctx, nil, "make", "-C", p.root, "MAKEFLAGS=", "deploy", "IMAGE="+os.Getenv("HUB_IMAGE"),
		"KUBECTL="+kubectlProgram()+" --kubeconfig="+p.kubeconfig(hub)))
	p.rollOut(ctx, hub, harness.HubNamespace, harness.HubName, digest)
	must.Do(p.apply(ctx, hub, nil, p.root, "config", "samples"))
}

// installCAPI returns when Cluster API's manager runs in the hub's cluster.
func (p *place) installCAPI(ctx context.Context) {
	digest := p.load(ctx, hub, p.archive("capi-manager"))
	module := must.Get(execute(ctx, nil, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api"))
	raw := must.Get(execute(ctx, nil, os.Getenv(harness.KustomizeVariable), "build",
		filepath.Join(module, "core", "config", "default")))
	// clusterctl puts the defaults of the variables in.
	raw = must.Get(execute(ctx, []byte(raw), "env", "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		filepath.Join(os.Getenv("CAPI_ASSETS"), "clusterctl"), "generate", "yaml"))
	folder := filepath.Join(p.out, "capi")
	must.Do(os.MkdirAll(folder, 0o700))
	files := map[string][]byte{"manifests.yaml": []byte(raw), "kustomization.yaml": capiKustomization}
	if _, err := os.Stat(filepath.Join(folder, "tls.key")); errors.Is(err, os.ErrNotExist) { // made once
		files["tls.crt"], files["tls.key"], err = cert.GenerateSelfSignedCertKey(capiService, nil, nil)
		must.Do(err)
	}
	for name, content := range files {
		must.Do(os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	must.Do(p.apply(ctx, hub, nil, folder))
	p.rollOut(ctx, hub, capiHome, capiDeployment, digest)
}

func (p *place) installGuestbook(ctx context.Context, c cluster) {
	digest := p.load(ctx, c, p.archive("guestbook"))
	must.Do(p.apply(ctx, c, nil, p.root, "config", "reader"))
	must.Do(p.apply(ctx, c, webappv1.CRD))
	manifest := bytes.ReplaceAll(guestbookManifest, []byte(`value: "" # set for each member`), []byte("value: "+c.name))
	must.Do(must.Await(ctx, time.Minute, "guestbooks are served in "+c.inKind(), func(ctx context.Context) error {
		return p.apply(ctx, c, manifest)
	}))
	p.rollOut(ctx, c, guestbookHome, "guestbook", digest)
}

// register makes what Cluster API's providers make: each member's infrastructure, kubeconfig and Cluster. It returns
// when Cluster API has reached each member.
func (p *place) register(ctx context.Context) {
	must.Do(p.apply(ctx, hub, givenManifest))
	for _, c := range members {
		p.setKubeconfig(ctx, c, must.Get(kind(ctx, nil, "get", "kubeconfig", "--internal", "--name", c.inKind())))
		manifest := strings.NewReplacer("NAME", c.name, "PRIORITY", fmt.Sprint(c.priority)).Replace(memberManifest)
		must.Do(must.Await(ctx, capiLimit, "Cluster "+c.name+" is admitted", func(ctx context.Context) error {
			return p.apply(ctx, hub, []byte(manifest))
		}))
	}
	p.say("the Clusters are registered")
	for _, reached := range []string{"jsonpath={.status.phase}=Provisioned", "condition=RemoteConnectionProbe"} {
		must.Get(p.kubectl(ctx, hub, "-n", harness.FleetNamespace, "wait", "clusters.cluster.x-k8s.io", "--all",
			"--for="+reached, "--timeout="+capiLimit.String()))
	}
}

// setKubeconfig writes the kubeconfig of a member into the Secret of its Cluster.
func (p *place) setKubeconfig(ctx context.Context, c cluster, kubeconfig string) {
	manifest := must.Get(json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
		"metadata": map[string]any{"namespace": harness.FleetNamespace, "name": c.name + "-kubeconfig",
			"labels": map[string]string{"cluster.x-k8s.io/cluster-name": c.name}},
		"data": map[string][]byte{"value": []byte(kubeconfig)},
	}))
	must.Do(p.apply(ctx, hub, manifest))
}

// client is that of the hub's administrator.
func (p *place) client() client.Client {
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig(hub))
	must.Do(err, "run make kind-up first")
	config.Timeout = 10 * time.Second
	return must.Get(client.New(config, client.Options{Scheme: hublib.Scheme()}))
}

const (
	// network is the Docker network of our clusters.
	network = "leasecast"
	// actsInNode is where a node has the folder for act logs. That of the hub stays empty: it shows whose cluster it is.
	actsInNode = "/var/lib/leasecast-acts"
	// madeMark is a file in a node that kind has finished. If kind is aborted, kubeadm goes on in the node: such a cluster
	// answers, but its node admits no Pods.
	madeMark = "/var/lib/leasecast-made"
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
	if _, err := docker(ctx, "container", "inspect", c.node()); err == nil {
		must.Do(p.reuse(ctx, c), "%s cannot be used: make kind-down, and begin again", c.inKind())
		p.say("%s runs already", c.inKind())
		return
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
	folder, _ := docker(ctx, "container", "inspect", "--format",
		`{{range .Mounts}}{{if eq .Destination "`+actsInNode+`"}}{{.Source}}{{end}}{{end}}`, c.node())
	if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return folder
}

// reuse starts the node of a cluster if need be, and returns when it answers.
func (p *place) reuse(ctx context.Context, c cluster) error {
	_, _ = docker(ctx, "unpause", c.node()) // an error means that it is not paused
	return must.Try(func() {
		must.Get(docker(ctx, "start", c.node()))
		must.Get(kind(ctx, nil, "export", "kubeconfig", "--name", c.inKind(), "--kubeconfig", p.kubeconfig(c)))
		must.Get(c.on(ctx, "test -f "+madeMark))
		must.Do(p.answers(ctx, c, time.Minute))
	})
}

// answers returns when the cluster's API server answers and its node is ready.
func (p *place) answers(ctx context.Context, c cluster, limit time.Duration) error {
	return must.Await(ctx, limit, c.inKind()+" answers and its node is ready", func(ctx context.Context) error {
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
