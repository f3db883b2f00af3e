package follow

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
)

type queue = workqueue.TypedRateLimitingInterface[mcreconcile.Request]

// requests finds sets in a cache, and enqueues them. Before the controller has started it enqueues nothing.
type requests struct {
	fleet   Fleet
	client  client.Client
	running context.Context // ends when the controller stops, and its watches with it
	queue   atomic.Pointer[queue]
}

// takeQueue keeps the queue of the controller, when that starts.
func (r *requests) takeQueue(_ context.Context, q queue) error {
	r.queue.Store(&q)
	return nil
}

// eachSet enqueues the sets of a fleet, or of one namespace if it is not empty, in one cluster or in all.
func (r *requests) eachSet(fleetName, namespace, clusterName string) {
	if r.queue.Load() == nil {
		return
	}
	sets, _ := r.setsOf(fleetName) // when the cache has started, all is enqueued
	for _, set := range sets {
		if namespace == "" || namespace == set.Spec.Namespace {
			r.changed(client.ObjectKeyFromObject(&set), clusterName)
		}
	}
}

// setsOf returns the sets of a fleet from a cache, oldest first. The caller must not change them. A controller that
// stops does not wait for a cache that has not started.
func (r *requests) setsOf(fleetName string) ([]v1alpha1.LeaderResourceSet, error) {
	ctx, cancel := context.WithTimeout(r.running, listTimeout)
	defer cancel()
	var all v1alpha1.LeaderResourceSetList
	if err := r.client.List(ctx, &all, client.InNamespace(fleetName), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	slices.SortFunc(all.Items, func(a, b v1alpha1.LeaderResourceSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return all.Items, nil
}

// changed enqueues a set in one cluster, or in all and for its status.
func (r *requests) changed(set types.NamespacedName, clusterName string) {
	if clusterName != "" {
		r.add(0, set, clusterName)
		return
	}
	r.add(0, set, "")
	for _, m := range r.fleet.Members(set.Namespace) {
		r.add(0, set, m.Name)
	}
}

// add enqueues a set in one cluster, or its status.
func (r *requests) add(wait time.Duration, set types.NamespacedName, clusterName string) {
	req := mcreconcile.Request{Request: reconcile.Request{NamespacedName: set}}
	if clusterName != "" {
		req.ClusterName = fleet.Key{Fleet: set.Namespace, Name: clusterName}.ClusterName()
	}
	if q := r.queue.Load(); q != nil {
		(*q).AddAfter(req, wait)
	}
}
