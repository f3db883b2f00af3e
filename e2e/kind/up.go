package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/leasecast/leasecast/e2e/fleet"
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
	if err := ensureNetwork(ctx); err != nil {
		return err
	}
	guestbook, err := p.guestbookArchive(ctx)
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
	p.say("waiting until a cluster leads")
	site, err := p.look()
	if err != nil {
		return err
	}
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
	if _, err := p.kubectlOn(ctx, c, nil, "-n", namespace, "rollout", "status", rolloutLimit, "deployment/"+deployment); err != nil {
		pods, _ := p.kubectlOn(ctx, c, nil, "-n", namespace, "get", "pods", "-o", "wide")
		return fmt.Errorf("%s: %w\n%s", c.inKind(), err, pods)
	}
	return nil
}

// installHub does what config/README.md tells.
func (p *place) installHub(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig(hub))
	if err != nil {
		return err
	}
	if err := fleet.InstallCAPI(ctx, config); err != nil {
		return fmt.Errorf("CRDs of Cluster API: %w", err)
	}
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

// guestbookArchive builds the sample controller, and an image of it.
func (p *place) guestbookArchive(ctx context.Context) (string, error) {
	dist := filepath.Join(p.root, "dist")
	program, archive := filepath.Join(dist, "guestbook"), filepath.Join(dist, "guestbook.tar")
	if _, err := execute(ctx, nil, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./e2e/guestbook/cmd"); err != nil {
		return "", err
	}
	arch, err := execute(ctx, nil, "go", "env", "GOARCH")
	if err != nil {
		return "", err
	}
	_, err = execute(ctx, nil, "go", "run", "-trimpath", "./config/image", "-program", program, "-name", guestbookImage, "-arch", arch, "-out", archive)
	return archive, err
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

// register makes the Clusters and their Secrets, as Cluster API's providers do.
func (p *place) register(ctx context.Context) error {
	admin, err := p.client(hub)
	if err != nil {
		return err
	}
	for _, c := range members {
		kubeconfig, err := execute(ctx, nil, p.kind, "get", "kubeconfig", "--internal", "--name", c.inKind())
		if err != nil {
			return err
		}
		if err := setKubeconfig(ctx, admin, c, []byte(kubeconfig)); err != nil {
			return err
		}
		object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: c.name}}
		if _, err := controllerutil.CreateOrUpdate(ctx, admin, object, func() error {
			object.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: c.node(), Port: 6443}
			metav1.SetMetaDataLabel(&object.ObjectMeta, fleet.PriorityLabel, fmt.Sprint(c.priority))
			return nil
		}); err != nil {
			return fmt.Errorf("register Cluster %s: %w", c.name, err)
		}
	}
	p.say("Clusters %s are registered", strings.Join(names(members), ", "))
	return nil
}

func names(clusters []cluster) (all []string) {
	for _, c := range clusters {
		all = append(all, c.name)
	}
	return all
}

func setKubeconfig(ctx context.Context, admin client.Client, c cluster, kubeconfig []byte) error {
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.FleetNamespace, Name: secret.Name(c.name, secret.Kubeconfig),
	}}
	if _, err := controllerutil.CreateOrUpdate(ctx, admin, object, func() error {
		metav1.SetMetaDataLabel(&object.ObjectMeta, clusterv1.ClusterNameLabel, c.name)
		object.Type = clusterv1.ClusterSecretType
		object.Data = map[string][]byte{secret.KubeconfigDataName: kubeconfig}
		return nil
	}); err != nil {
		return fmt.Errorf("write the kubeconfig of Cluster %s: %w", c.name, err)
	}
	return nil
}
