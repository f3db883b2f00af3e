package publish

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// send sends the request of a step, within the timeout.
func (p *Publisher) send(
	ctx context.Context, key types.NamespacedName, s step, timeout time.Duration,
) (*coordinationv1.Lease, error) {
	if timeout <= 0 {
		timeout = listTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	api := p.Client.Leases(key.Namespace)
	switch s.action {
	case read:
		return api.Get(ctx, key.Name, metav1.GetOptions{})
	case create:
		return api.Create(ctx, s.lease, metav1.CreateOptions{FieldManager: v1alpha1.ManagedByValue})
	case update:
		return api.Update(ctx, s.lease, metav1.UpdateOptions{FieldManager: v1alpha1.ManagedByValue})
	default: // remove
		uid, version := s.lease.UID, s.lease.ResourceVersion
		return nil, api.Delete(ctx, key.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
	}
}
