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

// failover is how long the last replacement of a lost leader took, if one is done.
type failover struct {
	done        bool
	took, floor time.Duration
	// began is since when a leader is being replaced, or zero, and until the time from which it cannot act any more.
	began, until time.Time
}

// watch passes every change of a record to changed.
func (m *Metrics) watch(ctx context.Context) error {
	informer, err := m.informers.GetInformer(ctx, &v1alpha1.NamespaceLeader{})
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
		DeleteFunc: func(last any) {
			if name, err := toolscache.DeletionHandlingObjectToName(last); err == nil {
				m.mu.Lock()
				defer m.mu.Unlock()
				delete(m.failovers, name.AsNamespacedName())
			}
		},
	})
	return err
}

// changed counts the change of leader between an old and a new state of a record, if this replica decides for its
// fleet. What others change counts for them, also where nothing scrapes this replica.
func (m *Metrics) changed(was, is *v1alpha1.NamespaceLeader) {
	o, n := &was.Spec, &is.Spec
	key, counts := client.ObjectKeyFromObject(is), m.decider.Serves(is.Namespace)
	m.mu.Lock()
	defer m.mu.Unlock()
	if counts && (o.State != n.State || o.Leader != n.Leader) {
		m.changes[change{is.Namespace, string(n.Reason)}]++
	}
	f := m.failovers[key]
	switch {
	case n.State == v1alpha1.StateEnding && n.Since != nil && n.NotBefore != nil:
		f.began, f.until = n.Since.Time, n.NotBefore.Time
	case n.State == v1alpha1.StateLeading && o.State != v1alpha1.StateLeading && n.AcquireTime != nil:
		if n.Reason == reason.FailedOver && !f.began.IsZero() {
			f.done, f.took, f.floor = true, n.AcquireTime.Sub(f.began), max(0, f.until.Sub(f.began))
		}
		f.began = time.Time{}
	}
	m.failovers[key] = f
}
