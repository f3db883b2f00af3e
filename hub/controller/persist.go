package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/seal"
)

// persist writes the record of the decision by compare-and-swap, before anything depends on it. It writes nothing
// if the record is unchanged.
func (c *Controller) persist(ctx context.Context, v *view, d election.Decision) error {
	if v.object == nil && !d.Persist {
		return nil
	}
	if d.Record.State == election.Leading && v.policy != nil {
		b := seal.Bounds{Duration: d.Record.Duration, Skew: d.Record.Skew, Stop: d.Record.Stop}
		// This comes before a Lease can depend on the bounds.
		err := c.Seals.Raise(ctx, v.key.Namespace, v.policy.object.Name, b.Max(v.policy.bounds()))
		if c.noteSeal(ctx, useOfSeal{v.key.Namespace, true}, err) {
			return fmt.Errorf("%w: %w", errSeal, err)
		}
		if err != nil {
			return err
		}
	}
	if !d.Persist && c.isStored(v) {
		return nil
	}
	object := c.recordFor(v, d)
	if equality.Semantic.DeepEqual(v.found, &object.Spec) {
		return nil
	}
	grants := d.Record.State == election.Leading && (d.Record.Epoch != v.state.Record.Epoch || d.Record.Reason == reason.Adopted)
	if !c.Tenure.Holds() {
		return fmt.Errorf("record %s: the right to write is lost", v.key)
	}
	if v.edited {
		log.FromContext(ctx).Info("A record that was edited or deleted is put right",
			"namespaceLeader", klog.KRef(v.key.Namespace, v.key.Name), "reason", "RecordEdited")
	}
	if err := c.write(ctx, v, object); err != nil {
		return err
	}
	c.changed(ctx, v, d, grants)
	return nil
}

// isStored reports whether the stored record is the one that the decision was based on.
func (c *Controller) isStored(v *view) bool {
	return !v.edited && (v.moved || v.found.Hub == c.HubID) && (v.policy == nil || v.found.Policy == v.policy.object.Name)
}

// recordFor returns the record that a decision asks for.
func (c *Controller) recordFor(v *view, d election.Decision) *v1alpha1.NamespaceLeader {
	object := v.object.DeepCopy()
	if object == nil {
		object = newRecord(v.key)
	}
	store(d.Record, &object.Spec)
	if !v.moved {
		object.Spec.Hub = c.HubID // an edit may have emptied the record
	}
	if v.policy != nil {
		object.Spec.Policy = v.policy.object.Name
	}
	return object
}

// write stores a record, and remembers it.
func (c *Controller) write(ctx context.Context, v *view, object *v1alpha1.NamespaceLeader) error {
	store := func() error { return c.client.Update(ctx, object) }
	if v.found == nil {
		store = func() error { return c.client.Create(ctx, object) }
	}
	sent, spec := c.Clock.Now(), object.Spec.DeepCopy()
	if err := store(); err != nil {
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			c.mayComeTrue(v.key, spec)
		}
		return fmt.Errorf("write record %s: %w", v.key, err)
	}
	v.object, v.written = object, true
	c.cameTrue(v.key)
	s := c.namespace(v.key)
	s.written, s.changes = sent.Boot, history(recordOf(spec), s.changes)
	c.mu.Lock()
	c.written = max(c.written, sent.Boot)
	c.mu.Unlock()
	c.remember(v, object, sent)
	return nil
}

const (
	// changeTakes is how long a change may be in progress before the status reports it.
	changeTakes = 4 * time.Second
	// statusWaits is how long a status waits after this replica has written any record. When many namespaces change
	// their leaders at once, their records come first.
	statusWaits = time.Second
	// statusLatest is how long a status waits for other records at most, counted from the write of its own record.
	statusLatest = 10 * time.Second
)

// explain records the events of a record, and writes its status if that has changed, or returns how long to wait. A
// planned change is explained once, when the new leader has its Lease. A change that takes longer is also explained
// before.
//
// A record of another installation on this management cluster is left to that installation. Two that explained it
// would overwrite each other without end.
func (c *Controller) explain(ctx context.Context, v *view, status v1alpha1.NamespaceLeaderStatus) (wait time.Duration, err error) {
	if v.object == nil {
		return 0, nil
	}
	if _, others := seal.OtherInstallation(c.HubID, v.object.Spec.Hub); others {
		return 0, nil
	}
	s := c.recall(v.key)
	if rest := c.explainAt(s, changing(&v.object.Spec, status)) - c.Clock.Now().Boot; s.written > 0 && rest > 0 {
		return rest, nil
	}
	c.tell(v)
	status.ObservedGeneration = v.object.Generation
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = v.object.Generation
	}
	if equality.Semantic.DeepEqual(v.object.Status, status) {
		return 0, nil
	}
	object := v.object.DeepCopy()
	object.Status = status
	if !c.Tenure.Holds() {
		return 0, fmt.Errorf("status of record %s: the right to write is lost", v.key)
	}
	sent := c.Clock.Now()
	switch err := c.client.Status().Update(ctx, object); {
	case apierrors.IsNotFound(err):
		c.lookAgain(v.key)
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("write status of record %s: %w", v.key, err)
	}
	v.object, s.changes = object, nil
	c.remember(v, object, sent)
	return 0, nil
}

// explainAt returns the boot reading at which to write the status of a record that this tenure has written.
func (c *Controller) explainAt(s *namespaceState, changing bool) time.Duration {
	c.mu.Lock()
	last := c.written
	c.mu.Unlock()
	at := min(last+statusWaits, s.written+statusLatest)
	if changing {
		at = max(at, s.written+changeTakes)
	}
	return at
}

// changing reports whether a change of the leader is in progress that needs no explanation before its end: nothing
// is wrong.
func changing(s *v1alpha1.NamespaceLeaderSpec, status v1alpha1.NamespaceLeaderStatus) bool {
	return s.State == v1alpha1.StateDraining && s.Reason == reason.PriorityChanged ||
		s.State == v1alpha1.StateLeading && !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)
}

// newRecord returns the record of a namespace that had none.
func newRecord(key types.NamespacedName) *v1alpha1.NamespaceLeader {
	o := &v1alpha1.NamespaceLeader{}
	o.Namespace, o.Name = key.Namespace, key.Name
	o.Labels = map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.MoveLabel: ""}
	return o
}
