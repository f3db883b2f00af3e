package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
)

//go:embed given.yaml
var givenManifest []byte

// given is the infrastructure of a member.
var given = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "GivenCluster"}

// register makes what Cluster API's providers make: each member's infrastructure, kubeconfig and Cluster.
func (p *place) register(ctx context.Context) error {
	admin, err := p.client(hub)
	if err != nil {
		return err
	}
	if _, err := p.kubectlOn(ctx, hub, givenManifest, "apply", "-f", "-"); err != nil {
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
		if err := harness.Await(ctx, capiLimit, "Cluster "+c.name+" is admitted", func(ctx context.Context) error {
			return setCluster(ctx, admin, c)
		}); err != nil {
			return err
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

func setCluster(ctx context.Context, admin client.Client, c cluster) error {
	infrastructure := &unstructured.Unstructured{}
	infrastructure.SetGroupVersionKind(given)
	infrastructure.SetNamespace(harness.FleetNamespace)
	infrastructure.SetName(c.name)
	if _, err := controllerutil.CreateOrUpdate(ctx, admin, infrastructure, func() error {
		return unstructured.SetNestedField(infrastructure.Object, true, "status", "initialization", "provisioned")
	}); err != nil {
		return err
	}
	object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: c.name}}
	_, err := controllerutil.CreateOrUpdate(ctx, admin, object, func() error {
		object.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: c.node(), Port: 6443}
		object.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: given.Group, Kind: given.Kind,
			Name: c.name}
		metav1.SetMetaDataLabel(&object.ObjectMeta, fleet.PriorityLabel, fmt.Sprint(c.priority))
		return nil
	})
	return err
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
