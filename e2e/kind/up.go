package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/e2e/harness"
	hublib "github.com/leasecast/leasecast/hub"
)

const (
	guestbookHome  = "guestbook-system"
	guestbookImage = "leasecast.dev/guestbook:kind"
	// managed is the namespace that config/samples' policy names.
	managed = "guestbook"
	// archiveAnnotation is on the Pods of what is loaded here: a changed image under the same name rolls them.
	archiveAnnotation = "leasecast.dev/archive"
	rolloutLimit      = "--timeout=180s"
)

//go:embed guestbook.yaml
var guestbookManifest []byte

// up makes, starts or reuses everything, and returns when somebody leads.
func up(ctx context.Context, p *place) error {
	m, err := preflight(ctx, p)
	if err != nil {
		return fmt.Errorf("this machine is not ready:\n%w", err)
	}
	if err := p.owned(ctx, all...); err != nil {
		return err
	}
	if err := ensureNetwork(ctx); err != nil {
		return err
	}
	guestbook, capi, err := p.archives(ctx)
	if err != nil {
		return err
	}
	// Two at a time: a control plane's first seconds are busy ones.
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for _, c := range all {
		g.Go(func() error {
			if err := p.ensureCluster(each, c, p.image(m), m.cgroupVersion == "1"); err != nil {
				return err
			}
			if c == hub {
				if err := p.installCAPI(each, capi); err != nil {
					return err
				}
				return p.installHub(each)
			}
			return p.installGuestbook(each, c, guestbook)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := p.register(ctx); err != nil {
		return err
	}
	site, err := p.look()
	if err != nil {
		return err
	}
	if err := site.awaitReconciled(ctx); err != nil {
		return err
	}
	p.say("Cluster API reaches each member; waiting until a cluster leads")
	leader, err := site.awaitSettled(ctx, 3*time.Minute)
	if err != nil {
		return err
	}
	p.say("%s leads %s. Look: kubectl --kubeconfig %s get nsleader,lspol,clusters", leader, managed, p.kubeconfig(hub))
	return nil
}

// load brings an archive into a cluster's node, unless it is there.
func (p *place) load(ctx context.Context, c cluster, archive string) (digest string, err error) {
	raw, err := os.ReadFile(archive)
	if err != nil {
		return "", err
	}
	digest = fmt.Sprintf("%x", sha256.Sum256(raw))
	mark := "/var/lib/leasecast-" + digest
	if _, err := c.on(ctx, "test -f "+mark); err == nil {
		return digest, nil
	}
	if _, err := execute(ctx, nil, p.kind, "load", "image-archive", archive, "--name", c.inKind()); err != nil {
		return "", err
	}
	_, err = c.on(ctx, "touch "+mark)
	return digest, err
}

// stamp rolls a Deployment when its image is another one under the same name, and returns when it is available.
func (p *place) stamp(ctx context.Context, c cluster, namespace, deployment, digest string) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, archiveAnnotation, digest)
	if _, err := p.kubectlOn(ctx, c, nil, "-n", namespace, "patch", "deployment", deployment, "-p", patch); err != nil {
		return err
	}
	return p.rolledOut(ctx, c, namespace, deployment)
}

func (p *place) rolledOut(ctx context.Context, c cluster, namespace, deployment string) error {
	if _, err := p.kubectlOn(ctx, c, nil, "-n", namespace, "rollout", "status", rolloutLimit,
		"deployment/"+deployment); err != nil {
		pods, _ := p.kubectlOn(ctx, c, nil, "-n", namespace, "get", "pods", "-o", "wide")
		return fmt.Errorf("%s: %w\n%s", c.inKind(), err, pods)
	}
	return nil
}

// installHub does what config/README.md tells.
func (p *place) installHub(ctx context.Context) error {
	digest, err := p.load(ctx, hub, filepath.Join(p.root, p.hubImageArchive))
	if err != nil {
		return err
	}
	p.say("%s: make deploy", hub.inKind())
	if _, err := execute(ctx, nil, "make", "-C", p.root, "MAKEFLAGS=", "deploy", "IMAGE="+p.hubImage,
		"KUBECTL="+p.kubectl+" --kubeconfig="+p.kubeconfig(hub)); err != nil {
		return err
	}
	if err := p.stamp(ctx, hub, harness.HubNamespace, harness.HubName, digest); err != nil {
		return err
	}
	_, err = p.kubectlOn(ctx, hub, nil, "apply", "-k", filepath.Join(p.root, "config", "samples"))
	p.say("%s: both replicas of the hub are ready", hub.inKind())
	return err
}

// archives builds the sample controller, and makes images of it and of Cluster API's manager.
func (p *place) archives(ctx context.Context) (guestbook, capi string, err error) {
	dist := filepath.Join(p.root, "dist")
	program := filepath.Join(dist, "guestbook")
	if _, err := execute(ctx, nil, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program,
		"./e2e/guestbook/cmd"); err != nil {
		return "", "", err
	}
	arch, err := execute(ctx, nil, "go", "env", "GOARCH")
	if err != nil {
		return "", "", err
	}
	image := func(program, name, archive string) error {
		_, err := execute(ctx, nil, "go", "run", "-trimpath", "./config/image", "-program", program, "-name", name, "-arch",
			arch, "-out", archive)
		return err
	}
	guestbook, capi = program+".tar", filepath.Join(dist, capiProgram+".tar")
	if err := image(program, guestbookImage, guestbook); err != nil {
		return "", "", err
	}
	return guestbook, capi, image(filepath.Join(p.capi, capiProgram), capiImage, capi)
}

func (p *place) installGuestbook(ctx context.Context, c cluster, archive string) error {
	digest, err := p.load(ctx, c, archive)
	if err != nil {
		return err
	}
	if _, err := p.kubectlOn(ctx, c, nil, "apply", "-k", filepath.Join(p.root, "config", "reader")); err != nil {
		return err
	}
	if _, err := p.kubectlOn(ctx, c, webappv1.CRD, "apply", "-f", "-"); err != nil {
		return err
	}
	manifest := bytes.ReplaceAll(guestbookManifest, []byte(`value: "" # set for each member`), []byte("value: "+c.name))
	if err := harness.Await(ctx, time.Minute, "guestbooks are served in "+c.inKind(), func(ctx context.Context) error {
		_, err := p.kubectlOn(ctx, c, manifest, "apply", "-f", "-")
		return err
	}); err != nil {
		return err
	}
	if err := p.stamp(ctx, c, guestbookHome, "guestbook", digest); err != nil {
		return err
	}
	p.say("%s: two replicas of the guestbook run", c.inKind())
	return nil
}

// client is the administrator's.
func (p *place) client(c cluster) (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig(c))
	if err != nil {
		return nil, fmt.Errorf("%w: run make kind-up first", err)
	}
	config.Timeout = 10 * time.Second
	return client.New(config, client.Options{Scheme: hublib.Scheme()})
}
