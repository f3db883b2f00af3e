package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// fencedTerm is a term of this member, in a namespace that a fence covers.
type fencedTerm struct {
	fence, namespace string
	began            int64 // in microseconds, the Lease's acquireTime
}

// fencedTerms returns the terms of the member, each with its fence, from its cache. It considers only fences that
// match such.
func (w *Worker) fencedTerms(ctx context.Context, such func(guard.Fence) bool) (map[fencedTerm]guard.Fence, error) {
	wanted, _, err := w.Hub.Fences(ctx, w.Member.Key)
	if err != nil || !slices.ContainsFunc(wanted, such) {
		return nil, err
	}
	var leases coordinationv1.LeaseList
	var list corev1.NamespaceList
	reader := w.Cluster.GetCache()
	if err := errors.Join(
		reader.List(ctx, &leases, client.HasLabels{v1alpha1.ManagedLabel}, client.UnsafeDisableDeepCopy),
		reader.List(ctx, &list, client.UnsafeDisableDeepCopy),
	); err != nil {
		return nil, err
	}
	spaces := map[string]map[string]string{}
	for i := range list.Items {
		spaces[list.Items[i].Name] = list.Items[i].Labels
	}
	return termsOf(wanted, such, leases.Items, spaces, w.Clock.Now().Wall), nil
}

// termsOf returns the terms that these Leases show at an instant, in namespaces with these labels. A term that has
// not begun is left out: waking its CronJobs early would put them to sleep until then.
func termsOf(wanted []guard.Fence, such func(guard.Fence) bool, leases []coordinationv1.Lease, spaces map[string]map[string]string,
	now time.Time) map[fencedTerm]guard.Fence {
	terms := map[fencedTerm]guard.Fence{}
	for i := range leases {
		l, _ := wire.Read(&leases[i])
		set, active := spaces[l.Namespace]
		if !active || !l.LeadsHere() || !l.Live(now) || l.AcquireTime.After(now) {
			continue
		}
		for _, f := range wanted {
			if such(f) && l.Name == f.LeaseName() && f.Selects(l.Namespace, set) {
				terms[fencedTerm{f.Name(), l.Namespace, l.AcquireTime.UnixMicro()}] = f
			}
		}
	}
	return terms
}

func has[K comparable, V any](m map[K]V, key K) bool {
	_, ok := m[key]
	return ok
}
