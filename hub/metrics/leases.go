package metrics

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/publish"
)

// Leases returns a client of a member that counts and times writes.
func (m *Metrics) Leases(key fleet.Key, of coordinationclient.LeasesGetter) coordinationclient.LeasesGetter {
	return measured{LeasesGetter: of, m: m, key: key}
}

type measured struct {
	coordinationclient.LeasesGetter
	m   *Metrics
	key fleet.Key
}

func (c measured) Leases(namespace string) coordinationclient.LeaseInterface {
	return measuredLeases{c.LeasesGetter.Leases(namespace), c}
}

type measuredLeases struct {
	coordinationclient.LeaseInterface
	of measured
}

func (l measuredLeases) Create(
	ctx context.Context,
	obj *coordinationv1.Lease,
	o metav1.CreateOptions,
) (written *coordinationv1.Lease, err error) {
	l.of.time(func() error {
		written, err = l.LeaseInterface.Create(ctx, obj, o)
		return err
	})
	return written, err
}

func (l measuredLeases) Update(
	ctx context.Context,
	obj *coordinationv1.Lease,
	o metav1.UpdateOptions,
) (written *coordinationv1.Lease, err error) {
	l.of.time(func() error {
		written, err = l.LeaseInterface.Update(ctx, obj, o)
		return err
	})
	return written, err
}

func (l measuredLeases) Delete(ctx context.Context, name string, o metav1.DeleteOptions) (err error) {
	l.of.time(func() error {
		err = l.LeaseInterface.Delete(ctx, name, o)
		return err
	})
	return err
}

// time sends a request, and records its duration and its result.
func (c measured) time(send func() error) {
	began := c.m.Clock.Now().Boot
	err := send()
	took := c.m.Clock.Now().Boot - began
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.m.measured[c.key] = true
	result := publish.Result(err)
	c.m.writes.WithLabelValues(c.key.Fleet, c.key.Name, result).Inc()
	if result != publish.ResultUnanswered {
		c.m.latency.WithLabelValues(c.key.Fleet, c.key.Name).Observe(took.Seconds())
	}
}
