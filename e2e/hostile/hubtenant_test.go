package hostile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
)

// ofTenant is the label of what a tenant of the hub writes.
const ofTenant = "example.com/tenant"

// newHubTenant may write what a fleet consists of, and nothing else.
func newHubTenant(ctx context.Context, d *harness.Drill) (client.Client, error) {
	writes := []string{"get", "create", "update", "patch", "delete"}
	config, err := d.Fleet.Hub().ServiceAccountConfig(ctx, harness.FleetNamespace, "tenant", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: writes},
		{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"clusters"}, Verbs: writes},
		{
			APIGroups: []string{v1alpha1.GroupVersion.Group},
			Resources: []string{"leadershippolicies", "namespaceleaders"},
			Verbs:     writes,
		},
	})
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: d.Hub.Scheme()})
}

// secretOf is a Secret of the tenant, with so many bytes.
func secretOf(name string, size int) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: ofTenants(name), Data: map[string][]byte{"value": make([]byte, size)}}
}

// clusterOf is a Cluster of the tenant that takes part.
func clusterOf(name, priority string) *clusterv1.Cluster {
	o := &clusterv1.Cluster{ObjectMeta: ofTenants(name)}
	o.Labels[fleet.PriorityLabel] = priority
	o.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 1}
	return o
}

// largeSecrets writes 300 Secrets of a megabyte that no Cluster needs.
func largeSecrets(ctx context.Context, s *testbed) error {
	c := s.hubTenant
	return each(ctx, 300, func(ctx context.Context, n int) error {
		secret := secretOf(fmt.Sprint("large-", n), 1)
		grow(secret, n)
		return unlessEnded(ctx, c.Create(ctx, secret))
	})
}

// largeKubeconfigs writes kubeconfigs that are larger than any that is read, and others that no Cluster needs. One of
// the large ones is of a Cluster.
func largeKubeconfigs(ctx context.Context, s *testbed) error {
	c := s.hubTenant
	const bulky = "bulky"
	cluster, secret := clusterOf(bulky, "1"), secretOf(bulky+"-kubeconfig", 200<<10)
	if err := errors.Join(c.Create(ctx, cluster), c.Create(ctx, secret)); err != nil {
		return err
	}
	if err := s.Await(ctx, patience, "the Cluster is shown with the reason", func(ctx context.Context) error {
		is, err := s.Candidate(ctx, shop, bulky)
		if err == nil && !strings.Contains(is.Message, "at most 65536 are read") {
			err = fmt.Errorf("it is shown as %s: %s", is.Reason, is.Message)
		}
		return err
	}); err != nil {
		return unlessEnded(ctx, err)
	}
	return each(ctx, 800, func(ctx context.Context, n int) error {
		size := 60 << 10
		if n%4 == 0 {
			size = 1<<20 - 1<<10
		}
		return unlessEnded(ctx, c.Create(ctx, secretOf(fmt.Sprintf("unused-%d-kubeconfig", n), size)))
	})
}

// silentClusters is how many Clusters a tenant makes that the hub never reaches.
const silentClusters = 200

// unreachableClusters creates Clusters that outrank all others. A third of the kubeconfigs name a server that never
// answers, a third an address without a listener, and a third no address.
func unreachableClusters(ctx context.Context, s *testbed) error {
	c := s.hubTenant
	deaf, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		return err
	}
	defer func() { _ = deaf.Close() }()
	if err := each(ctx, silentClusters, func(ctx context.Context, n int) error {
		name := fmt.Sprint("silent-", n)
		address := []string{deaf.Addr().String(), "127.0.0.1:1", ""}[n%3]
		kubeconfig, err := fleet.Kubeconfig(name, &rest.Config{Host: "https://" + address, BearerToken: "none"})
		secret := secretOf(name+"-kubeconfig", 0)
		secret.Data["value"] = kubeconfig
		return unlessEnded(ctx, errors.Join(err, c.Create(ctx, clusterOf(name, "2000")), c.Create(ctx, secret)))
	}); err != nil {
		return err
	}
	if err := s.Await(ctx, patience, "the record shows them", func(ctx context.Context) error {
		r, err := s.Record(ctx, shop)
		if err != nil {
			return err
		}
		if all := len(r.Status.Candidates) + int(r.Status.OmittedCandidates); all <= silentClusters {
			return fmt.Errorf("it has %d candidates", all)
		}
		return nil
	}); err != nil {
		return unlessEnded(ctx, err)
	}
	<-ctx.Done() // they stay unreachable until then
	return nil
}

// removeOfTenant removes what tenants have written into the management cluster, and their large objects in members.
func (s *testbed) removeOfTenant(ctx context.Context) error {
	remove := func(c client.Client, namespace string, kinds ...client.Object) (errs []error) {
		for _, kind := range kinds {
			remove := func(ctx context.Context) error {
				return c.DeleteAllOf(ctx, kind, client.InNamespace(namespace), client.HasLabels{ofTenant})
			}
			// An API server works on one request for a minute at most, which is too short for 340 large Clusters.
			errs = append(errs, s.Await(ctx, 3*time.Minute, fmt.Sprintf("%T of tenants are removed", kind), remove))
		}
		return errs
	}
	errs := remove(
		s.Hub,
		harness.FleetNamespace,
		&v1alpha1.LeadershipPolicy{},
		&v1alpha1.NamespaceLeader{},
		&clusterv1.Cluster{},
		&corev1.Secret{},
	)
	for _, admin := range s.Members {
		errs = append(errs, remove(admin, stalls, &batchv1.CronJob{})...)
		errs = append(errs, remove(admin, metav1.NamespaceSystem, &coordinationv1.Lease{})...)
	}
	return errors.Join(errs...)
}
