package steady

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// capiAssets is the environment variable that names the folder of capi-manager.
	capiAssets = "CAPI_ASSETS"
	// capiTimeout bounds the start of Cluster API's manager.
	capiTimeout = time.Minute
)

// capi is the real core manager of Cluster API, in a process of its own, under the RBAC of
// its own module and behind its own webhooks, as clusterctl installs it. It differs from an
// installed one in this: no election (it has one only inside a cluster), and CRDs without
// conversion (nobody here asks for the old versions).
type capi struct {
	w       *world
	module  string // the folder of Cluster API's module
	dir     string // the keys and the log
	port    int    // of the webhooks
	ca      []byte
	process *process.Process
}

// startCAPI returns when the webhooks of the manager are in force.
func (w *world) startCAPI() *capi {
	w.T.Helper()
	c := &capi{
		w: w, dir: w.T.TempDir(), port: unusedPort(w.T),
		module: run(w.T, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api"),
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	w.Must(err)
	c.ca = certificate
	role := &rbacv1.ClusterRole{}
	c.read("core/config/rbac/role.yaml", func(document []byte) {
		w.Must(yaml.UnmarshalStrict(document, role))
	})
	config, err := w.Servers.Hub().ServiceAccountConfig(w.T.Context(), "capi-system", "capi-manager", role.Rules)
	w.Must(err)
	w.Must(fleet.WriteKubeconfig(filepath.Join(c.dir, "kubeconfig"), "hub", config))
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		w.Must(os.WriteFile(filepath.Join(c.dir, name), content, 0o600))
	}
	w.T.Cleanup(c.stop)
	c.start()
	c.installWebhooks()
	return c
}

// start starts the manager and returns when it serves its webhooks.
func (c *capi) start() {
	t := c.w.T
	t.Helper()
	assets := os.Getenv(capiAssets)
	if assets == "" {
		t.Fatalf("%s is not set: it must name the folder of capi-manager, which `make capi` builds", capiAssets)
	}
	var err error
	c.process, err = process.Start("Cluster API", filepath.Join(c.dir, "log"), filepath.Join(assets, "capi-manager"),
		"--kubeconfig="+filepath.Join(c.dir, "kubeconfig"),
		"--webhook-port="+strconv.Itoa(c.port),
		"--webhook-cert-dir="+c.dir,
		"--health-addr=0",
		"--diagnostics-address=0",
	)
	c.w.Must(err)
	c.w.Eventually("Cluster API serves its webhooks", capiTimeout, func() error {
		harness.Must(t, c.process.Check())
		return c.serves()
	})
}

// serves reports whether the webhooks are served.
func (c *capi) serves() error {
	ctx, cancel := context.WithTimeout(c.w.T.Context(), time.Second)
	defer cancel()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.ca)
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// stop kills the manager and returns when it is gone.
func (c *capi) stop() {
	c.w.T.Helper()
	if c.process != nil {
		c.w.Must(c.process.Kill())
	}
}

// read hands over each YAML document of a file of Cluster API's module.
func (c *capi) read(file string, each func(document []byte)) {
	c.w.T.Helper()
	content, err := os.ReadFile(filepath.Join(c.module, filepath.FromSlash(file)))
	c.w.Must(err)
	for _, document := range strings.Split("\n"+string(content), "\n---\n") {
		if strings.TrimSpace(document) != "" {
			each([]byte(document))
		}
	}
}

// installWebhooks installs Cluster API's own configurations, which name a Service, with
// the address of the process, and returns when they are in force.
func (c *capi) installWebhooks() {
	c.w.T.Helper()
	scheme := c.w.Hub.Scheme()
	c.read("core/config/webhook/manifests.yaml", func(document []byte) {
		kind := metav1.TypeMeta{}
		c.w.Must(yaml.Unmarshal(document, &kind))
		object, err := scheme.New(kind.GroupVersionKind())
		c.w.Must(err)
		c.w.Must(yaml.UnmarshalStrict(document, object))
		switch o := object.(type) {
		case *admissionv1.MutatingWebhookConfiguration:
			for i := range o.Webhooks {
				c.address(&o.Webhooks[i].ClientConfig)
			}
		case *admissionv1.ValidatingWebhookConfiguration:
			for i := range o.Webhooks {
				c.address(&o.Webhooks[i].ClientConfig)
			}
		}
		c.w.Must(c.w.Hub.Create(c.w.T.Context(), object.(client.Object)))
	})
	empty := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: "empty"}}
	empty.Spec.Paused = ptr.To(true) // the CRD wants something
	c.w.Eventually("Cluster API refuses a Cluster of nothing", capiTimeout, func() error {
		err := c.w.Hub.Create(c.w.T.Context(), empty.DeepCopy(), client.DryRunAll)
		if err == nil {
			return errors.New("it is admitted")
		}
		if !strings.Contains(err.Error(), "denied the request") {
			return err
		}
		return nil
	})
}

func (c *capi) address(to *admissionv1.WebhookClientConfig) {
	to.URL = ptr.To(fmt.Sprintf("https://127.0.0.1:%d%s", c.port, *to.Service.Path))
	to.Service = nil
	to.CABundle = c.ca
}

// unusedPort finds a port below those that the kernel gives away, so that nobody is given
// it by chance.
func unusedPort(t harness.TB) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(10000)
		l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
		if err == nil {
			harness.Must(t, l.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}
