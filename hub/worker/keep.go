package worker

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/guard"
)

// keepEvery is how often the desired fences, and the namespaces that they cover, are read from caches.
const keepEvery = 500 * time.Millisecond

// keep keeps the guard and the fences of the member, and removes them once the member takes no part, until ctx ends.
func (w *Worker) keep(ctx context.Context) {
	for ; ctx.Err() == nil; _ = wake.For(ctx, clock.RealClock{}, keepEvery, w.wake) {
		served := w.Hub.Served(w.Member.Fleet)
		if w.leaving() {
			w.leave(ctx)
			continue
		}
		w.stuck = ""
		if p := w.Publisher(); p != nil {
			p.Resume()
		}
		if !served {
			_, served = w.Hub.Serve(ctx, w.Member.Fleet)
		}
		if !served || !w.mayWrite() {
			w.Forget()
			continue
		}
		// What cannot be read may have changed or not. Everything stays as it is.
		if d, err := w.desired(ctx); err == nil {
			w.Keep(ctx, d)
		} else {
			w.Log.V(1).Info("What is to be kept in the cluster cannot be read", "err", err.Error())
		}
	}
}

// desired returns what is to be kept in the member, from caches.
func (w *Worker) desired(ctx context.Context) (d guard.Desired, err error) {
	fences, invalid, err := w.Hub.Fences(ctx, w.Member.Key)
	if err != nil || len(fences)+len(invalid) == 0 {
		return guard.Desired{}, err
	}
	leases, namespaces, err := cached(ctx, w.Cluster.GetCache(), fences)
	return guard.NewDesired(fences, invalid, namespaces, leases), err
}

// cached returns the hub's Leases that fences evaluate, and the namespaces of a member.
func cached(
	ctx context.Context, cache client.Reader, fences []guard.Fence,
) ([]coordinationv1.Lease, []corev1.Namespace, error) {
	names := map[string]bool{}
	for _, f := range fences {
		names[f.LeaseName()] = true
	}
	var leases coordinationv1.LeaseList
	if err := cache.List(ctx, &leases, client.HasLabels{v1alpha1.ManagedLabel}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	var namespaces corev1.NamespaceList
	err := cache.List(ctx, &namespaces, client.UnsafeDisableDeepCopy)
	evaluated := slices.DeleteFunc(leases.Items, func(l coordinationv1.Lease) bool { return !names[l.Name] })
	return evaluated, namespaces.Items, err
}
