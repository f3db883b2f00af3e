package steady

import (
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
)

// given is a kind of infrastructure that is there already: Cluster API admits no Cluster
// without one. Its objects say "provisioned" from the start, so it takes no controller.
var given = schema.GroupVersionKind{
	Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "GivenCluster",
}

func (w *world) installGiven() {
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	w.Must(w.Hub.Create(w.T.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: "givenclusters." + given.Group,
			// This version keeps Cluster API's contract v1beta2.
			Labels: map[string]string{clusterv1.GroupVersion.String(): given.Version},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: given.Group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: given.Kind, ListKind: given.Kind + "List", Plural: "givenclusters", Singular: "givencluster",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: given.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &anything},
			}},
		},
	}))
	w.Eventually("GivenClusters are served", 15*time.Second, func() error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(given)
		return w.Hub.List(w.T.Context(), list)
	})
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

	host, number, err := net.SplitHostPort(member.Proxy().Addr())
	w.Must(err)
	port := harness.Get(strconv.ParseInt(number, 10, 32))(w.T)
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: harness.FleetNamespace, Name: name, Labels: map[string]string{v1alpha1.PriorityLabel: priority},
		},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: host, Port: int32(port)},
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
