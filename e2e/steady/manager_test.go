package steady

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

// capiTimeout bounds the start of Cluster API's manager.
const capiTimeout = time.Minute

// capi is the real core manager of Cluster API, in a process of its own, under the RBAC of
// its own module and behind its own webhooks, as clusterctl installs it. It differs from an
// installed one in this: no election (it has one only inside a cluster), and CRDs without
// conversion (nobody here asks for the old versions).
type capi struct {
	*harness.CAPI
	w       *world
	module  string // the folder of Cluster API's module
	process *process.Process
}

// startCAPI returns when the webhooks of the manager are in force.
func (w *world) startCAPI() *capi {
	c := &capi{w: w, module: run(w.T, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")}
	role := &rbacv1.ClusterRole{}
	c.read("core/config/rbac/role.yaml", func(document []byte) {
		w.Must(yaml.UnmarshalStrict(document, role))
	})
	config, err := w.Servers.Hub().ServiceAccountConfig(w.T.Context(), "capi-system", "capi-manager", role.Rules)
	w.Must(err)
	c.CAPI = harness.Get(harness.NewCAPI("Cluster API", w.T.TempDir(), config))(w.T)
	w.T.Cleanup(c.stop)
	c.start()
	c.installWebhooks()
	return c
}

// start starts the manager and returns when it serves its webhooks.
func (c *capi) start() {
	c.process = harness.Get(c.Start())(c.w.T)
	c.w.Eventually("Cluster API serves its webhooks", capiTimeout, func() error {
		c.w.Must(c.process.Check())
		return c.serves()
	})
}

// serves reports whether the webhooks are served.
func (c *capi) serves() error {
	ctx, cancel := context.WithTimeout(c.w.T.Context(), time.Second)
	defer cancel()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA)
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// stop kills the manager and returns when it is gone.
func (c *capi) stop() {
	if c.process != nil {
		c.w.Must(c.process.Kill())
	}
}

// read hands over each YAML document of a file of Cluster API's module.
func (c *capi) read(file string, each func(document []byte)) {
	content := harness.Get(os.ReadFile(filepath.Join(c.module, filepath.FromSlash(file))))(c.w.T)
	for _, document := range strings.Split("\n"+string(content), "\n---\n") {
		if strings.TrimSpace(document) != "" {
			each([]byte(document))
		}
	}
}

// installWebhooks installs Cluster API's own configurations, which name a Service, with
// the address of the process, and returns when they are in force.
func (c *capi) installWebhooks() {
	scheme := c.w.Hub.Scheme()
	c.read("core/config/webhook/manifests.yaml", func(document []byte) {
		kind := metav1.TypeMeta{}
		c.w.Must(yaml.Unmarshal(document, &kind))
		object := harness.Get(scheme.New(kind.GroupVersionKind()))(c.w.T)
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
	to.URL = ptr.To(fmt.Sprintf("https://127.0.0.1:%d%s", c.Port, *to.Service.Path))
	to.Service = nil
	to.CABundle = c.CA
}
