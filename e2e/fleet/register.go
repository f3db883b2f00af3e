package fleet

import (
	"context"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// PriorityLabel is the label by which a Cluster takes part. It is spelled out here, not taken from
// the API package, because users write it by hand and the drills should break if it changes.
const PriorityLabel = "leasecast.dev/priority"

// RegisterMember makes a member known to the hub as a Cluster named like it in a namespace of the
// hub, which is made if need be, with this priority and a kubeconfig Secret for the member's administrator
// through the proxy. It returns the Cluster as created.
func (f *Fleet) RegisterMember(
	ctx context.Context, member *Server, namespace, priority string,
) (*clusterv1.Cluster, error) {
	kubeconfig, err := member.ProxiedKubeconfig()
	if err != nil {
		return nil, err
	}
	if err := f.SetKubeconfig(ctx, namespace, member.name, kubeconfig); err != nil {
		return nil, err
	}
	cluster, err := newCluster(namespace, member)
	if err != nil {
		return nil, err
	}
	cluster.Labels = map[string]string{PriorityLabel: priority}
	hub, err := f.hubClient()
	if err != nil {
		return nil, err
	}
	if err := hub.Create(ctx, cluster); err != nil {
		return nil, fmt.Errorf("register %s: create the Cluster: %w", member.name, err)
	}
	return cluster, nil
}

// SetKubeconfig writes the kubeconfig Secret of a Cluster as Cluster API's providers do, or
// rotates it. The Cluster need not exist, and the content need not make sense.
func (f *Fleet) SetKubeconfig(ctx context.Context, namespace, cluster string, kubeconfig []byte) error {
	hub, err := f.hubClient()
	if err != nil {
		return err
	}
	if err := ensureNamespace(ctx, hub, namespace); err != nil {
		return err
	}
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace,
		Name:      secret.Name(cluster, secret.Kubeconfig),
	}}
	if _, err := controllerutil.CreateOrUpdate(ctx, hub, object, func() error {
		metav1.SetMetaDataLabel(&object.ObjectMeta, clusterv1.ClusterNameLabel, cluster)
		object.Type = clusterv1.ClusterSecretType
		object.Data = map[string][]byte{secret.KubeconfigDataName: kubeconfig}
		return nil
	}); err != nil {
		return fmt.Errorf("write the kubeconfig Secret of Cluster %s/%s: %w", namespace, cluster, err)
	}
	return nil
}

// newCluster is the least that Cluster API admits: a Cluster with a control plane endpoint only.
func newCluster(namespace string, member *Server) (*clusterv1.Cluster, error) {
	host, number, err := net.SplitHostPort(member.proxy.Addr())
	if err != nil {
		return nil, fmt.Errorf("address of the proxy of %s: %w", member.name, err)
	}
	port, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("port of the proxy of %s: %w", member.name, err)
	}
	return &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: member.name},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: host, Port: int32(port)},
		},
	}, nil
}

func (f *Fleet) hubClient() (client.Client, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	return f.hub.adminClient(scheme)
}

func ensureNamespace(ctx context.Context, admin client.Client, name string) error {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := admin.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	return nil
}
