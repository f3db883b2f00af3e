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
func up(ctx context.Context, p *place) error {
	m, err := preflight(ctx, p)
	if err != nil {
		return fmt.Errorf("this machine is not ready:\n%w", err)
	}
	if err := p.owned(ctx, all...); err != nil {
		return err
	}
	if err := errors.Join(ensureNetwork(ctx), p.buildArchives(ctx)); err != nil {
		return err
	}
	// Two at a time: a control plane's first seconds are busy ones.
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for _, c := range all {
		g.Go(func() error {
			if err := p.ensureCluster(each, c, m.image(), m.cgroupVersion == "1"); err != nil {
				return err
			}
			if c != hub {
				return p.installGuestbook(each, c)
			}
			if err := p.installCAPI(each); err != nil {
				return err
			}
			return p.installHub(each)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := p.register(ctx); err != nil {
		return err
	}
	p.say("Cluster API reaches each member; waiting until a cluster leads")
	admin, err := p.client()
	if err != nil {
		return err
	}
	leader, err := awaitSettled(ctx, admin, 3*time.Minute)
	if err != nil {
		return err
	}
	p.say("%s leads %s. Look: kubectl --kubeconfig %s get nsleader,lspol,clusters", leader, managed, p.kubeconfig(hub))
	return nil
}

func (p *place) archive(program string) string { return filepath.Join(p.root, "dist", program+".tar") }

// buildArchives builds the sample controller, and makes images of it and of Cluster API's manager.
func (p *place) buildArchives(ctx context.Context) error {
	guestbook := filepath.Join(p.root, "dist", "guestbook")
	if _, err := execute(ctx, nil, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", guestbook,
		"./e2e/guestbook/cmd"); err != nil {
		return err
	}
	arch, err := execute(ctx, nil, "go", "env", "GOARCH")
	if err != nil {
		return err
	}
	for program, name := range map[string]string{
		guestbook: guestbookImage, filepath.Join(os.Getenv("CAPI_ASSETS"), "capi-manager"): capiImage,
	} {
		if _, err := execute(ctx, nil, "go", "run", "-trimpath", "./config/image", "-program", program, "-name", name,
			"-arch", arch, "-out", p.archive(filepath.Base(program))); err != nil {
			return err
		}
	}
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
	if _, err := kind(ctx, nil, "load", "image-archive", archive, "--name", c.inKind()); err != nil {
		return "", err
	}
	_, err = c.on(ctx, "touch "+mark)
	return digest, err
}

// rollOut returns when a Deployment runs the image of an archive with this digest. The digest is in an annotation, so
// that another image under the same name rolls the Deployment.
func (p *place) rollOut(ctx context.Context, c cluster, namespace, deployment, digest string) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"leasecast.dev/archive":%q}}}}}`, digest)
	if _, err := p.kubectl(ctx, c, "-n", namespace, "patch", "deployment", deployment, "-p", patch); err != nil {
		return err
	}
	if err := p.rolledOut(ctx, c, namespace, deployment); err != nil {
		return err
	}
	p.say("%s: %s runs", c.inKind(), deployment)
	return nil
}

// installHub does what config/README.md describes.
func (p *place) installHub(ctx context.Context) error {
	digest, err := p.load(ctx, hub, filepath.Join(p.root, os.Getenv("HUB_ARCHIVE")))
	if err != nil {
		return err
	}
	if _, err := execute(ctx, nil, "make", "-C", p.root, "MAKEFLAGS=", "deploy", "IMAGE="+os.Getenv("HUB_IMAGE"),
		"KUBECTL="+kubectlProgram()+" --kubeconfig="+p.kubeconfig(hub)); err != nil {
		return err
	}
	if err := p.rollOut(ctx, hub, harness.HubNamespace, harness.HubName, digest); err != nil {
		return err
	}
	return p.apply(ctx, hub, nil, p.root, "config", "samples")
}

// installCAPI returns when Cluster API's manager runs in the hub's cluster.
func (p *place) installCAPI(ctx context.Context) error {
	digest, err := p.load(ctx, hub, p.archive("capi-manager"))
	if err != nil {
		return err
	}
	module, err := execute(ctx, nil, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	raw, err := execute(ctx, nil, os.Getenv(harness.KustomizeVariable), "build",
		filepath.Join(module, "core", "config", "default"))
	if err != nil {
		return err
	}
	// clusterctl puts the defaults of the variables in.
	raw, err = execute(ctx, []byte(raw), "env", "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		filepath.Join(os.Getenv("CAPI_ASSETS"), "clusterctl"), "generate", "yaml")
	if err != nil {
		return err
	}
	folder := filepath.Join(p.out, "capi")
	files := map[string][]byte{"manifests.yaml": []byte(raw), "kustomization.yaml": capiKustomization}
	if _, err := os.Stat(filepath.Join(folder, "tls.key")); errors.Is(err, os.ErrNotExist) { // made once
		if files["tls.crt"], files["tls.key"], err = cert.GenerateSelfSignedCertKey(capiService, nil, nil); err != nil {
			return err
		}
	}
	err = os.MkdirAll(folder, 0o700)
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	if err != nil {
		return err
	}
	if err := p.apply(ctx, hub, nil, folder); err != nil {
		return err
	}
	return p.rollOut(ctx, hub, capiHome, capiDeployment, digest)
}

func (p *place) installGuestbook(ctx context.Context, c cluster) error {
	digest, err := p.load(ctx, c, p.archive("guestbook"))
	if err != nil {
		return err
	}
	if err := p.apply(ctx, c, nil, p.root, "config", "reader"); err != nil {
		return err
	}
	if err := p.apply(ctx, c, webappv1.CRD); err != nil {
		return err
	}
	manifest := bytes.ReplaceAll(guestbookManifest, []byte(`value: "" # set for each member`), []byte("value: "+c.name))
	if err := harness.Await(ctx, time.Minute, "guestbooks are served in "+c.inKind(), func(ctx context.Context) error {
		return p.apply(ctx, c, manifest)
	}); err != nil {
		return err
	}
	return p.rollOut(ctx, c, guestbookHome, "guestbook", digest)
}

// register makes what Cluster API's providers make: each member's infrastructure, kubeconfig and Cluster. It returns
// when Cluster API has reached each member.
func (p *place) register(ctx context.Context) error {
	if err := p.apply(ctx, hub, givenManifest); err != nil {
		return err
	}
	for _, c := range members {
		kubeconfig, err := kind(ctx, nil, "get", "kubeconfig", "--internal", "--name", c.inKind())
		if err != nil {
			return err
		}
		if err := p.setKubeconfig(ctx, c, kubeconfig); err != nil {
			return err
		}
		manifest := strings.NewReplacer("NAME", c.name, "PRIORITY", fmt.Sprint(c.priority)).Replace(memberManifest)
		if err := harness.Await(ctx, capiLimit, "Cluster "+c.name+" is admitted", func(ctx context.Context) error {
			return p.apply(ctx, hub, []byte(manifest))
		}); err != nil {
			return err
		}
	}
	p.say("the Clusters are registered")
	for _, reached := range []string{"jsonpath={.status.phase}=Provisioned", "condition=RemoteConnectionProbe"} {
		if _, err := p.kubectl(ctx, hub, "-n", harness.FleetNamespace, "wait", "clusters.cluster.x-k8s.io", "--all",
			"--for="+reached, "--timeout="+capiLimit.String()); err != nil {
			return err
		}
	}
	return nil
}

// setKubeconfig writes the kubeconfig of a member into the Secret of its Cluster.
func (p *place) setKubeconfig(ctx context.Context, c cluster, kubeconfig string) error {
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
		"metadata": map[string]any{"namespace": harness.FleetNamespace, "name": c.name + "-kubeconfig",
			"labels": map[string]string{"cluster.x-k8s.io/cluster-name": c.name}},
		"data": map[string][]byte{"value": []byte(kubeconfig)},
	})
	if err != nil {
		return err
	}
	return p.apply(ctx, hub, manifest)
}

// client is that of the hub's administrator.
func (p *place) client() (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig(hub))
	if err != nil {
		return nil, fmt.Errorf("%w: run make kind-up first", err)
	}
	config.Timeout = 10 * time.Second
	return client.New(config, client.Options{Scheme: hublib.Scheme()})
}
