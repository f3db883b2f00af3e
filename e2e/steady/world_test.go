// Package steady tests that the hub writes nothing but renewals: for a steady minute, and beside the real
// Cluster API manager. The hub of these tests runs under the RBAC of config/, as an installed one does.
package steady

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
	"testing"
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
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

// requestTimeout bounds a call of an API server.
const requestTimeout = 10 * time.Second

// The timings of the policies here.
const (
	renewInterval    = time.Second
	unreachableAfter = 10 * time.Second
)

func TestMain(m *testing.M) {
	harness.Logs(false)
	os.Exit(m.Run())
}

// world is a fleet of its own, whose hub knows the RBAC of config/ and no Cluster yet.
type world struct{ *harness.World }

func newWorld(t *testing.T, members ...string) *world {
	servers := fleet.NewWith(t, fleet.Options{Members: members})
	w := &world{harness.NewWorld(t, servers, harness.FleetNamespace, harness.HubNamespace,
		// It renews as often as the fast profile, but is patient: these tests are about silence, not speed, and a busy
		// machine must not break it.
		harness.PolicyTimings(leaseDuration, renewInterval, 3*time.Second, 250*time.Millisecond))}
	w.Must(harness.Apply(t.Context(), servers.Hub(), t.TempDir(), "rbac", "fleet"))
	return w
}

// startHub runs a hub in this process until the test ends, under the service account of config/rbac.
func (w *world) startHub() {
	config := harness.Get(w.Servers.Hub().ServiceAccountConfig(w.T.Context(), w.System, harness.HubName, nil))(w.T)
	config.UserAgent = harness.HubName
	w.StartHub(config)
}

// policy creates a policy for namespaces.
func (w *world) policy(namespaces ...string) {
	p := w.NewPolicy("steady", namespaces...)
	p.Spec.Health.UnreachableAfterMilliseconds = int32(unreachableAfter / time.Millisecond)
	w.Must(w.Hub.Create(w.T.Context(), p))
}

// leads waits until the record and the Leases in these members name the leader, and every one of them may lead, and
// returns the epoch.
func (w *world) leads(leader, namespace string, within time.Duration, members ...string) (epoch int64) {
	w.Eventually(leader+" leads "+namespace, within, func() (err error) {
		for _, m := range members {
			must.Do(w.Eligible(namespace, m))
		}
		epoch, err = w.Leading(leader, namespace, members...)
		return err
	})
	return epoch
}

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
	c := &capi{w: w, module: harness.Get(fleet.ModuleDir(w.T.Context(), "sigs.k8s.io/cluster-api"))(w.T)}
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

// given is a kind of infrastructure that is there already: Cluster API admits no Cluster
// without one. Its objects say "provisioned" from the start, so it takes no controller.
var given = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "GivenCluster"}

func (w *world) installGiven() {
	harness.Get(envtest.InstallCRDs(w.Servers.Hub().AdminConfig(), envtest.CRDInstallOptions{
		Paths: []string{"../kind/given.yaml"}, ErrorIfPathMissing: true,
	}))(w.T)
}

// register makes a member known as a provider of Cluster API would: its infrastructure, a
// Cluster, and a kubeconfig Secret that the Cluster owns. Cluster API does not see a Secret
// that is not labelled.
func (w *world) register(name, priority string, labelled bool) {
	member := w.Servers.Member(name)
	infrastructure := &unstructured.Unstructured{Object: map[string]any{
		"status": map[string]any{"initialization": map[string]any{"provisioned": true}},
	}}
	infrastructure.SetGroupVersionKind(given)
	infrastructure.SetNamespace(harness.FleetNamespace)
	infrastructure.SetName(name)
	w.Must(w.Hub.Create(w.T.Context(), infrastructure))

	kubeconfig := harness.Get(member.ProxiedKubeconfig())(w.T)
	w.Must(w.Servers.SetKubeconfig(w.T.Context(), harness.FleetNamespace, name, kubeconfig))
	if !labelled {
		w.changeSecret(name, func(s *corev1.Secret) { delete(s.Labels, clusterv1.ClusterNameLabel) })
	}

	endpoint := netip.MustParseAddrPort(member.Proxy().Addr())
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: harness.FleetNamespace, Name: name, Labels: map[string]string{v1alpha1.PriorityLabel: priority},
		},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: endpoint.Addr().String(), Port: int32(endpoint.Port())},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: given.Group, Kind: given.Kind,
				Name: name},
		},
	}
	w.Must(w.Hub.Create(w.T.Context(), cluster))
	w.changeSecret(name, func(s *corev1.Secret) {
		w.Must(controllerutil.SetControllerReference(cluster, s, w.Hub.Scheme()))
	})
}

// kubeconfigSecret names the kubeconfig Secret of a Cluster.
func kubeconfigSecret(cluster string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: cluster + "-kubeconfig"}}
}

func (w *world) changeSecret(cluster string, change func(*corev1.Secret)) {
	s := kubeconfigSecret(cluster)
	w.Must(w.Hub.Get(w.T.Context(), client.ObjectKeyFromObject(s), s))
	base := s.DeepCopy()
	change(s)
	w.Must(w.Hub.Patch(w.T.Context(), s, client.MergeFrom(base)))
}
