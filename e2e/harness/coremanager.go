package harness

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
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

// capiTimeout bounds the start of Cluster API's manager.
const capiTimeout = 2 * time.Minute

// CoreManager is the real core manager of Cluster API on a world's management cluster. It runs under the RBAC of its
// own module and behind its own webhooks, as clusterctl installs it. It has no election, and CRDs without conversion.
type CoreManager struct {
	*CAPI
	w       *World
	module  string // the folder of Cluster API's module
	process *process.Process
}

// StartCoreManager returns when the manager's webhooks are in force, and stops it when the test is over.
func (w *World) StartCoreManager() *CoreManager {
	module := Get(fleet.ModuleDir(w.T.Context(), "sigs.k8s.io/cluster-api"))(w.T)
	c := &CoreManager{w: w, module: module}
	role := &rbacv1.ClusterRole{}
	c.read("core/config/rbac/role.yaml", func(document []byte) {
		w.Must(yaml.UnmarshalStrict(document, role))
	})
	config, err := w.Servers.Hub().ServiceAccountConfig(w.T.Context(), "capi-system", "capi-manager", role.Rules)
	w.Must(err)
	c.CAPI = Get(NewCAPI("Cluster API", w.T.TempDir(), config))(w.T)
	w.T.Cleanup(c.Stop)
	c.Start()
	c.installWebhooks()
	Get(envtest.InstallCRDs(w.Servers.Hub().AdminConfig(), envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(Get(fleet.ModuleDir(w.T.Context(), ours))(w.T), "e2e/kind/given.yaml")},
		// A busy machine takes longer than the default.
		MaxTime: capiTimeout, ErrorIfPathMissing: true,
	}))(w.T)
	return c
}

// Start starts the manager and returns when it serves its webhooks.
func (c *CoreManager) Start() {
	c.process = Get(c.CAPI.Start())(c.w.T)
	c.w.Eventually("Cluster API serves its webhooks", capiTimeout, func() error {
		c.w.Must(c.process.Check())
		return c.serves()
	})
}

// serves reports whether the webhooks are served.
func (c *CoreManager) serves() error {
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

// Stop kills the manager and returns when it is gone.
func (c *CoreManager) Stop() {
	if c.process != nil {
		c.w.Must(c.process.Kill())
	}
}

// read hands over each YAML document of a file of Cluster API's module.
func (c *CoreManager) read(file string, each func(document []byte)) {
	content := Get(os.ReadFile(filepath.Join(c.module, filepath.FromSlash(file))))(c.w.T)
	for _, document := range strings.Split("\n"+string(content), "\n---\n") {
		if strings.TrimSpace(document) != "" {
			each([]byte(document))
		}
	}
}

// installWebhooks installs Cluster API's own configurations, which name a Service, with the address of the process. It
// returns when they are in force.
func (c *CoreManager) installWebhooks() {
	scheme := c.w.Hub.Scheme()
	c.read("core/config/webhook/manifests.yaml", func(document []byte) {
		kind := metav1.TypeMeta{}
		c.w.Must(yaml.Unmarshal(document, &kind))
		object := Get(scheme.New(kind.GroupVersionKind()))(c.w.T)
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

func (c *CoreManager) address(to *admissionv1.WebhookClientConfig) {
	to.URL = ptr.To(fmt.Sprintf("https://127.0.0.1:%d%s", c.Port, *to.Service.Path))
	to.Service = nil
	to.CABundle = c.CA
}

// given is a kind of infrastructure that is there already: Cluster API admits no Cluster without one. Its objects are
// provisioned from the start, so it takes no controller.
var given = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "GivenCluster"}

// Provide registers a member as a provider of Cluster API does: its infrastructure, a Cluster, and a kubeconfig Secret
// that the Cluster owns. Cluster API does not see a Secret without its label.
func (w *World) Provide(name, priority string, labelled bool) {
	member := w.Servers.Member(name)
	infrastructure := &unstructured.Unstructured{Object: map[string]any{
		"status": map[string]any{"initialization": map[string]any{"provisioned": true}},
	}}
	infrastructure.SetGroupVersionKind(given)
	infrastructure.SetNamespace(w.Fleet)
	infrastructure.SetName(name)
	w.Must(w.Hub.Create(w.T.Context(), infrastructure))

	kubeconfig := Get(member.ProxiedKubeconfig())(w.T)
	w.Must(w.Servers.SetKubeconfig(w.T.Context(), w.Fleet, name, kubeconfig))
	if !labelled {
		w.ChangeKubeconfig(name, func(s *corev1.Secret) { delete(s.Labels, clusterv1.ClusterNameLabel) })
	}

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
	w.ChangeKubeconfig(name, func(s *corev1.Secret) {
		w.Must(controllerutil.SetControllerReference(cluster, s, w.Hub.Scheme()))
	})
}

// KubeconfigSecret names the kubeconfig Secret of a Cluster.
func (w *World) KubeconfigSecret(cluster string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: cluster + "-kubeconfig"}}
}

// ChangeKubeconfig edits the kubeconfig Secret of a Cluster.
func (w *World) ChangeKubeconfig(cluster string, change func(*corev1.Secret)) {
	s := w.KubeconfigSecret(cluster)
	w.Must(w.Hub.Get(w.T.Context(), client.ObjectKeyFromObject(s), s))
	base := s.DeepCopy()
	change(s)
	w.Must(w.Hub.Patch(w.T.Context(), s, client.MergeFrom(base)))
}

// AwaitConditions waits until Cluster API reports conditions of a Cluster, as in "RemoteConnectionProbe=True".
func (w *World) AwaitConditions(cluster string, conditions ...string) {
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
