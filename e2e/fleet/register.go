package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/leasecast/leasecast/e2e/must"
)

// PriorityLabel is the label by which a Cluster takes part. It is spelled out here, not taken from the API package:
// users write it by hand, so the drills must fail if it changes.
const PriorityLabel = "leasecast.dev/priority"

// RegisterMember creates a Cluster for a member on the hub, with its name and a kubeconfig Secret for its administrator
// through the proxy. The endpoint of its control plane is the least that Cluster API admits. RegisterMember creates the
// namespace if need be.
func (f *Fleet) RegisterMember(ctx context.Context, member *Server, namespace, priority string) (*clusterv1.Cluster,
	error) {
	endpoint := netip.MustParseAddrPort(member.proxy.Addr())
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: member.name,
			Labels: map[string]string{PriorityLabel: priority}},
		Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{
			Host: endpoint.Addr().String(), Port: int32(endpoint.Port()),
		}},
	}
	return cluster, must.Try(func() {
		must.Do(f.SetKubeconfig(ctx, namespace, member.name, must.Get(member.ProxiedKubeconfig())))
		must.Do(f.hub.client.Create(ctx, cluster), "register %s: create the Cluster", member.name)
	})
}

// SetKubeconfig writes the kubeconfig Secret of a Cluster as Cluster API's providers do, or rotates it. The Cluster
// need not exist, and the content need not make sense.
func (f *Fleet) SetKubeconfig(ctx context.Context, namespace, cluster string, kubeconfig []byte) error {
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: secret.Name(cluster, secret.Kubeconfig),
	}}
	return must.Try(func() {
		f.hub.ensureNamespace(ctx, namespace)
		_, err := controllerutil.CreateOrUpdate(ctx, f.hub.client, object, func() error {
			metav1.SetMetaDataLabel(&object.ObjectMeta, clusterv1.ClusterNameLabel, cluster)
			object.Type = clusterv1.ClusterSecretType
			object.Data = map[string][]byte{secret.KubeconfigDataName: kubeconfig}
			return nil
		})
		must.Do(err, "write the kubeconfig Secret of Cluster %s/%s", namespace, cluster)
	})
}

// ModuleDir returns the folder of a module that go.mod requires. It works within the repository only.
func ModuleDir(ctx context.Context, module string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// InstallCAPI creates Cluster API's CRDs, and returns when the server serves them. Like clusterctl, it labels the CRDs
// whose objects clusterctl moves.
func (s *Server) InstallCAPI(ctx context.Context) error {
	return s.installCRDs(ctx, "sigs.k8s.io/cluster-api", "core/config/crd/bases", "clusterctl.cluster.x-k8s.io")
}

// installOwn creates the CRDs of this repository, and returns when the server serves them.
func (s *Server) installOwn(ctx context.Context) error {
	return s.installCRDs(ctx, "github.com/leasecast/leasecast", "config/crd/bases")
}

func (s *Server) installCRDs(ctx context.Context, module, folder string, labels ...string) error {
	root, err := ModuleDir(ctx, module)
	files := envtest.CRDInstallOptions{Paths: []string{filepath.Join(root, folder)}, ErrorIfPathMissing: true,
		MaxTime: startTimeout}
	if err := errors.Join(err, envtest.ReadCRDFiles(&files)); err != nil {
		return fmt.Errorf("read the CRDs of %s: %w", module, err)
	}
	for _, crd := range files.CRDs {
		for _, label := range labels {
			metav1.SetMetaDataLabel(&crd.ObjectMeta, label, "")
		}
	}
	files.Paths = nil
	_, err = envtest.InstallCRDs(s.AdminConfig(), files)
	return err
}
