package metrics

import (
	"context"
	"fmt"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// change is a kind of changes that are counted.
type change struct{ fleet, reason string }

// failover is the last replacement of a lost leader, or one in progress while done is false.
type failover struct {
	began time.Time
	// until is the time from which the lost leader cannot act any more.
	until       time.Time
	done        bool
	took, floor time.Duration
}

// watch counts every change of a record.
func (m *Metrics) watch(ctx context.Context) error {
	informer, err := m.local.GetCache().GetInformer(ctx, &v1alpha1.NamespaceLeader{})
	if err != nil {
		return fmt.Errorf("metrics: watch records: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(is any, initial bool) {
			if r, ok := is.(*v1alpha1.NamespaceLeader); ok && !initial {
				m.changed(&v1alpha1.NamespaceLeader{}, r)
			}
		},
		UpdateFunc: func(was, is any) {
			old, ok := was.(*v1alpha1.NamespaceLeader)
			r, also := is.(*v1alpha1.NamespaceLeader)
			if ok && also {
				m.changed(old, r)
			}
		},
	})
	return err
}

// changed counts the change of leader between an old and a new state of a record.
func (m *Metrics) changed(was, is *v1alpha1.NamespaceLeader) {
	o, n := &was.Spec, &is.Spec
	key := client.ObjectKeyFromObject(is)
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.State != n.State || o.Leader != n.Leader || o.Epoch != n.Epoch {
		m.changes[change{is.Namespace, string(n.Reason)}]++
	}
	switch {
	case n.State == v1alpha1.StateDraining && n.Since != nil && n.NotBefore != nil:
		m.failovers[key] = failover{began: n.Since.Time, until: n.NotBefore.Time}
	case n.State == v1alpha1.StateLeading && o.State != v1alpha1.StateLeading && n.AcquireTime != nil:
		f, ok := m.failovers[key]
		delete(m.failovers, key)
		if ok && !f.done && n.Reason == reason.FailedOver {
			f.done, f.took, f.floor = true, n.AcquireTime.Sub(f.began), max(0, f.until.Sub(f.began))
			m.failovers[key] = f
		}
	}
}
