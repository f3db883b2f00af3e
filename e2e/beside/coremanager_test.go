package beside

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

// capiTimeout bounds the start of Cluster API's manager.
const capiTimeout = 2 * time.Minute

// capiAssets is the environment variable that names the folder of capi-manager.
const capiAssets = "CAPI_ASSETS"

// coreManager is the real core manager of Cluster API on a world's management cluster. It runs under the RBAC of its
// own module and behind its own webhooks, as clusterctl installs it. It has no election, and CRDs without conversion.
type coreManager struct {
	w      *world
	module string // the folder of Cluster API's module
	ca     []byte // the certificate of its webhooks, for 127.0.0.1
	port   int    // of its webhooks
}

// startCoreManager returns when the manager's webhooks are in force, and stops it when the test is over.
func (w *world) startCoreManager() {
	program := filepath.Join(os.Getenv(capiAssets), "capi-manager")
	if _, err := os.Stat(program); err != nil {
		w.T.Fatalf("%s must name the folder of capi-manager: run `make capi`: %v", capiAssets, err)
	}
	c := &coreManager{w: w, module: harness.Get(fleet.ModuleDir(w.T.Context(), "sigs.k8s.io/cluster-api"))(w.T)}
	role := &rbacv1.ClusterRole{}
	c.read("core/config/rbac/role.yaml", func(document []byte) {
		w.Must(yaml.UnmarshalStrict(document, role))
	})
	config, err := w.Servers.Hub().ServiceAccountConfig(w.T.Context(), "capi-system", "capi-manager", role.Rules)
	w.Must(err)
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	w.Must(err)
	dir := w.T.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	w.Must(errors.Join(
		os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600),
		os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600),
		fleet.WriteKubeconfig(kubeconfig, "Cluster API", config)))
	c.ca, c.port = certificate, harness.Get(fleet.ReservePort())(w.T)
	p := harness.Get(process.Start("Cluster API", filepath.Join(dir, "log"), program,
		"--kubeconfig="+kubeconfig, "--webhook-port="+strconv.Itoa(c.port),
		"--webhook-cert-dir="+dir, "--health-addr=0", "--diagnostics-address=0"))(w.T)
	w.T.Cleanup(func() { w.Must(p.Kill()) })
	w.Eventually("Cluster API serves its webhooks", capiTimeout, func() error {
		w.Must(p.Check())
		return c.serves()
	})
	c.installWebhooks()
	harness.Get(envtest.InstallCRDs(w.Servers.Hub().AdminConfig(), envtest.CRDInstallOptions{
		Paths: []string{"../kind/given.yaml"},
		// A busy machine takes longer than the default.
		MaxTime: capiTimeout, ErrorIfPathMissing: true,
	}))(w.T)
}

// serves reports whether the webhooks are served.
func (c *coreManager) serves() error {
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

// read hands over each YAML document of a file of Cluster API's module.
func (c *coreManager) read(file string, each func(document []byte)) {
	content := harness.Get(os.ReadFile(filepath.Join(c.module, filepath.FromSlash(file))))(c.w.T)
	for _, document := range strings.Split("\n"+string(content), "\n---\n") {
		if strings.TrimSpace(document) != "" {
			each([]byte(document))
		}
	}
}

// installWebhooks installs Cluster API's own configurations, which name a Service, with the address of the process. It
// returns when they are in force.
func (c *coreManager) installWebhooks() {
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
	empty := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.w.Fleet, Name: "empty"}}
	empty.Spec.Paused = ptr.To(true) // the CRD requires a field
	c.w.Eventually("Cluster API rejects an empty Cluster", capiTimeout, func() error {
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

func (c *coreManager) address(to *admissionv1.WebhookClientConfig) {
	to.URL = ptr.To(fmt.Sprintf("https://127.0.0.1:%d%s", c.port, *to.Service.Path))
	to.Service = nil
	to.CABundle = c.ca
}

// given is a kind of infrastructure that is there already: Cluster API admits no Cluster without one. Its objects are
// provisioned from the start, so it takes no controller.
var given = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "GivenCluster"}

// provide registers a member as a provider of Cluster API does: its infrastructure, a Cluster, and a kubeconfig Secret
// that the Cluster owns.
func (w *world) provide(name, priority string) {
	member := w.Servers.Member(name)
	infrastructure := &unstructured.Unstructured{Object: map[string]any{
		"status": map[string]any{"initialization": map[string]any{"provisioned": true}},
	}}
	infrastructure.SetGroupVersionKind(given)
	infrastructure.SetNamespace(w.Fleet)
	infrastructure.SetName(name)
	w.Must(w.Hub.Create(w.T.Context(), infrastructure))

	kubeconfig := harness.Get(member.ProxiedKubeconfig())(w.T)
	w.Must(w.Servers.SetKubeconfig(w.T.Context(), w.Fleet, name, kubeconfig))

	endpoint := netip.MustParseAddrPort(member.Proxy().Addr())
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Fleet, Name: name, Labels: map[string]string{v1alpha1.PriorityLabel: priority},
		},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: endpoint.Addr().String(), Port: int32(endpoint.Port())},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: given.Group, Kind: given.Kind, Name: name,
			},
		},
	}
	w.Must(w.Hub.Create(w.T.Context(), cluster))
	harness.Edit(w.T, w.Hub, w.kubeconfigSecret(name), func(s *corev1.Secret) {
		w.Must(controllerutil.SetControllerReference(cluster, s, w.Hub.Scheme()))
	})
}

// kubeconfigSecret names the kubeconfig Secret of a Cluster.
func (w *world) kubeconfigSecret(cluster string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: cluster + "-kubeconfig"}}
}

// awaitConditions waits until Cluster API reports conditions of a Cluster, as in "RemoteConnectionProbe=True".
func (w *world) awaitConditions(cluster string, conditions ...string) {
	w.Eventually(fmt.Sprintf("Cluster API reports %v of %s", conditions, cluster), capiTimeout, func() error {
		c := &clusterv1.Cluster{}
		must.Do(w.Hub.Get(w.T.Context(), client.ObjectKey{Namespace: w.Fleet, Name: cluster}, c))
		shown := map[string]bool{}
		for _, is := range c.Status.Conditions {
			shown[fmt.Sprintf("%s=%s", is.Type, is.Status)] = true
		}
		for _, want := range conditions {
			must.FailIf(!shown[want], "it reports %v", shown)
		}
		return nil
	})
}
