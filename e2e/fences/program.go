package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

// program is one that elects itself with a lock of its cluster and does not read our Leases. It runs in each member. It
// is a controller, which has a stock, or an elector.
type program struct {
	name string
	// namespace is what its clusters lead, by a policy of its own.
	namespace string
	lock      v1alpha1.LockFence
	stop      time.Duration // that the hub has to wait for
	dir       string        // for the logs of electors

	*stock
	build
}

// stock is what only a program has that its project makes. It keeps something as it has to be, and the drill undoes
// that all the time.
type stock struct {
	// list and object are of the kind that it writes, and named is the one object.
	list   client.ObjectList
	object client.Object
	named  string
	// did reports whether the object is as the program keeps it, and undo changes that.
	did  func(o client.Object) bool
	undo func(ctx context.Context, c client.Client, o client.Object) error
	// install makes a member ready for it. It returns how to start one more process there.
	install func(ctx context.Context, d *harness.Drill, member string) (start func() (*process.Process, error))
}

// build is what only an elector has: the library that it is made with, and how.
type build struct {
	binary        string
	clientTimeout time.Duration
	releases      bool
	limits        limits
}

// unstated is a fence of a lock that states nothing but the durations.
func unstated(namespace, name string) v1alpha1.LockFence {
	return v1alpha1.LockFence{Namespace: namespace, Name: name, LeaseDurationSeconds: 6, RenewDeadlineSeconds: 4,
		RetryPeriodSeconds: 1}
}

// quick is the stop time of the next.
const quick = 7 * time.Second

// fence is that of an elector whose client has half of the renew deadline, and which releases no lock.
func fence(namespace, name string) v1alpha1.LockFence {
	f := unstated(namespace, name)
	f.RequestTimeoutSeconds, f.ReleaseTimeoutSeconds = f.RenewDeadlineSeconds/2, ptr.To[int32](0)
	return f
}

// flags are those of a Kubernetes program's elector, and for a log that can be read.
func (p *program) flags() []string {
	return []string{
		"--logging-format=json",
		fmt.Sprintf("--leader-elect-lease-duration=%ds", p.lock.LeaseDurationSeconds),
		fmt.Sprintf("--leader-elect-renew-deadline=%ds", p.lock.RenewDeadlineSeconds),
		fmt.Sprintf("--leader-elect-retry-period=%ds", p.lock.RetryPeriodSeconds),
	}
}

// controllerManager is the kube-controller-manager. One of its controllers makes a ConfigMap in each namespace, and
// makes it again when it is deleted.
func controllerManager() *program {
	p := &program{name: "kube-controller-manager", namespace: "shop", lock: fence("upkeep", "upkeep"), stop: quick}
	p.stock = &stock{
		list: &corev1.ConfigMapList{}, object: &corev1.ConfigMap{}, named: "kube-root-ca.crt",
		did: func(client.Object) bool { return true },
		undo: func(ctx context.Context, c client.Client, o client.Object) error {
			uid := o.GetUID()
			return c.Delete(ctx, o, client.Preconditions{UID: &uid})
		},
	}
	p.install = func(_ context.Context, d *harness.Drill, member string) func() (*process.Process, error) {
		args := append(p.flags(), "--leader-elect=true",
			"--leader-elect-resource-namespace="+p.lock.Namespace, "--leader-elect-resource-name="+p.lock.Name)
		return func() (*process.Process, error) {
			return d.StartControllers(member, "root-ca-certificate-publisher-controller", args...)
		}
	}
	return p
}

// clusterAPI is the core manager of Cluster API. It puts its finalizer on a Cluster, and puts it back when it is
// removed. Nothing else comes of a Cluster that has no infrastructure.
func clusterAPI() *program {
	p := &program{name: "Cluster API", namespace: "clusters", stop: quick,
		lock: fence("capi-system", "controller-leader-election-capi")}
	p.stock = &stock{
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
	p.install = func(ctx context.Context, d *harness.Drill, member string) func() (*process.Process, error) {
		must.Do(d.Fleet.Member(member).InstallCAPI(ctx), "the CRDs of Cluster API in %s", member)
		kept := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.named}}
		kept.Spec.ClusterNetwork.APIServerPort = 6443 // a Cluster has to say something
		must.Do(d.Members[member].Create(ctx, kept))
		manager := must.Get(d.CAPI(member))
		return func() (*process.Process, error) { return manager.StartElected(p.lock.Namespace, p.flags()...) }
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

// The programs that electors are, by their libraries.
const (
	oldClientGo = "client-go-v0.26"
	oldRuntime  = "controller-runtime-v0.15"
	newClientGo = "client-go"
	newRuntime  = "controller-runtime"
)

// electors are programs that differ in what bounds their requests. Each states in its fence what is true for it, and
// nothing else. Before v0.31 of client-go one write without a deadline releases a lock.
func electors(dir string) (all []*program) {
	const half = 2 * time.Second
	for _, e := range []struct {
		name     string
		build    build
		request  int32  // stated; 0: it is not
		release  *int32 // likewise
		stopTime time.Duration
	}{
		{"runtime15", build{binary: oldRuntime}, 0, ptr.To[int32](0), 65 * time.Second},
		{"runtime15-releases", build{binary: oldRuntime, releases: true}, 0, ptr.To[int32](60), 125 * time.Second},
		{"runtime15-timeout", build{binary: oldRuntime, clientTimeout: half}, 2, ptr.To[int32](0), 7 * time.Second},
		{"client26-releases", build{binary: oldClientGo, releases: true}, 0, ptr.To[int32](60), 125 * time.Second},
		{"client26-releases-timeout", build{binary: oldClientGo, clientTimeout: half, releases: true}, 2, nil,
			11 * time.Second},
		{"client36", build{binary: newClientGo}, 0, ptr.To[int32](0), 65 * time.Second},
		{"client36-releases", build{binary: newClientGo, releases: true}, 0, ptr.To[int32](4), 69 * time.Second},
		{"runtime24-releases", build{binary: newRuntime, releases: true}, 2, ptr.To[int32](4), 11 * time.Second},
	} {
		p := &program{name: e.name, namespace: e.name, lock: unstated("upkeep", e.name), stop: e.stopTime, dir: dir,
			build: e.build}
		p.lock.RequestTimeoutSeconds, p.lock.ReleaseTimeoutSeconds = e.request, e.release
		p.limits = limits{
			renew: time.Duration(p.lock.RenewDeadlineSeconds) * time.Second, timeout: p.clientTimeout,
			unbounded: p.binary == oldClientGo || p.binary == oldRuntime,
		}
		if p.binary == newRuntime { // since v0.22 it makes its client so
			p.limits.timeout = half
		}
		all = append(all, p)
	}
	return all
}

// misstate states what is false for most programs: half of the renew deadline for each request, and no release.
func misstate(programs []*program) {
	for _, p := range programs {
		p.lock, p.stop = fence(p.lock.Namespace, p.lock.Name), quick
	}
}
