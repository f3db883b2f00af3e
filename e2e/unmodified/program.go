package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

// program is one that elects itself with a lock of its cluster and knows nothing of our Leases, as its project makes it.
// It keeps something as it has to be, and the drill undoes that all the time.
type program struct {
	name string
	lock v1alpha1.LockFence
	// list and object are of the kind that it writes, and named is the one object.
	list   client.ObjectList
	object client.Object
	named  string
	// did reports whether the object is as the program keeps it, and undo changes that.
	did  func(o client.Object) bool
	undo func(ctx context.Context, c client.Client, o client.Object) error
	// install makes a member ready for it. It returns how to start one more process there.
	install func(ctx context.Context, d *harness.Drill, member string) (start func() (*process.Process, error), err error)
}

// fence is the lock of an elector with these durations.
func fence(namespace, name string) v1alpha1.LockFence {
	return v1alpha1.LockFence{Namespace: namespace, Name: name, LeaseDurationSeconds: 6, RenewDeadlineSeconds: 4, RetryPeriodSeconds: 1}
}

// elector are the flags for that, and for a log that can be read.
func (p *program) elector() []string {
	return []string{
		"--logging-format=json",
		fmt.Sprintf("--leader-elect-lease-duration=%ds", p.lock.LeaseDurationSeconds),
		fmt.Sprintf("--leader-elect-renew-deadline=%ds", p.lock.RenewDeadlineSeconds),
		fmt.Sprintf("--leader-elect-retry-period=%ds", p.lock.RetryPeriodSeconds),
	}
}

// controllerManager is the kube-controller-manager. One of its controllers makes a ConfigMap in each namespace, and makes
// it again when it is deleted.
func controllerManager() *program {
	p := &program{
		name: "kube-controller-manager", lock: fence("upkeep", "upkeep"),
		list: &corev1.ConfigMapList{}, object: &corev1.ConfigMap{}, named: "kube-root-ca.crt",
		did: func(client.Object) bool { return true },
		undo: func(ctx context.Context, c client.Client, o client.Object) error {
			uid := o.GetUID()
			return c.Delete(ctx, o, client.Preconditions{UID: &uid})
		},
	}
	p.install = func(_ context.Context, d *harness.Drill, member string) (func() (*process.Process, error), error) {
		args := append(p.elector(), "--leader-elect=true",
			"--leader-elect-resource-namespace="+p.lock.Namespace, "--leader-elect-resource-name="+p.lock.Name)
		return func() (*process.Process, error) {
			return d.StartControllers(member, "root-ca-certificate-publisher-controller", args...)
		}, nil
	}
	return p
}

// clusterAPI is the core manager of Cluster API. It puts its finalizer on a Cluster, and puts it back when it is removed.
// Nothing else comes of a Cluster that has no infrastructure.
func clusterAPI() *program {
	p := &program{
		name: "Cluster API", lock: fence("capi-system", "controller-leader-election-capi"),
		list: &clusterv1.ClusterList{}, object: &clusterv1.Cluster{}, named: "kept",
		did: func(o client.Object) bool { return controllerutil.ContainsFinalizer(o, clusterv1.ClusterFinalizer) },
		undo: func(ctx context.Context, c client.Client, o client.Object) error {
			with, ok := o.DeepCopyObject().(client.Object)
			if !ok {
				return fmt.Errorf("%T is no object", o)
			}
			controllerutil.RemoveFinalizer(with, clusterv1.ClusterFinalizer)
			return c.Patch(ctx, with, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{}))
		},
	}
	p.install = func(ctx context.Context, d *harness.Drill, member string) (func() (*process.Process, error), error) {
		if err := d.Fleet.Member(member).InstallCAPI(ctx); err != nil {
			return nil, fmt.Errorf("the CRDs of Cluster API in %s: %w", member, err)
		}
		kept := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.named}}
		kept.Spec.ClusterNetwork.APIServerPort = 6443 // a Cluster has to say something
		if err := d.Members[member].Create(ctx, kept); err != nil {
			return nil, fmt.Errorf("a Cluster in %s: %w", member, err)
		}
		manager, err := d.CAPI(member)
		return func() (*process.Process, error) { return manager.StartElected(p.lock.Namespace, p.elector()...) }, err
	}
	return p
}

// written is when an object was written last, in whole seconds by the clock of its API server.
func written(o client.Object) (at time.Time) {
	for _, f := range o.GetManagedFields() {
		if f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}
