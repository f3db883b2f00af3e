package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/publish"
)

const (
	// decideTimeout bounds one decision with all its calls to the hub's API server.
	decideTimeout = 20 * time.Second
	// notYet is the delay before a retry while the tenure does not hold.
	notYet = time.Second
	// rightAway is the delay before the next decision after a change.
	rightAway = time.Millisecond
)

// reconcileNamespace decides on one namespace.
func (c *Controller) reconcileNamespace(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	if !c.Tenure.Holds() {
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	if c.standsBack(req.Namespace) {
		c.stopRenewing(req.NamespacedName) // this hub may have served the fleet until now
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	asked := c.Clock.Now() // a tenure that had ended by then cannot change what is read after it
	v, err := c.gather(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if rest := c.Tenure.Overlap(asked, v.skew); rest > 0 {
		// Until then the earlier tenure renews what it has promised.
		return reconcile.Result{RequeueAfter: rest}, nil
	}
	if v.stop != "" {
		log.FromContext(ctx).V(1).Info("Nothing is decided", "namespaceLeader", klog.KRef(v.key.Namespace, v.key.Name), "reason", v.stop)
		if !v.renews {
			c.stopRenewing(v.key)
		}
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	cs, after := v.candidates()
	d := c.decide(v, cs)
	status := v.statusOf(d, cs, c.recall(v.key).changes)
	switch wait, err := c.carryOut(ctx, v, d, status); {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		c.lookAgain(v.key)
		return reconcile.Result{RequeueAfter: rightAway}, nil // another client wrote: decide again
	case errors.Is(err, errSeal): // a condition reports it
		c.lookAgain(v.key)
		return reconcile.Result{RequeueAfter: standBackAgain}, nil
	case err != nil:
		c.lookAgain(v.key)
		return reconcile.Result{}, err
	case d.Gone:
		return reconcile.Result{}, nil
	case v.written && d.After == 0:
		return reconcile.Result{RequeueAfter: rightAway}, nil // decide again on the new record
	default:
		settles := c.Tenure.EarlierEndIn(c.Clock.Now(), v.skew) // from then on the record is certain
		return reconcile.Result{RequeueAfter: soonest(after, d.After, wait, settles)}, nil
	}
}

// carryOut persists a decision, and has the publishers act on it. It returns when to decide again, or 0 for never.
func (c *Controller) carryOut(ctx context.Context, v *view, d election.Decision, status v1alpha1.NamespaceLeaderStatus) (wait time.Duration, err error) {
	if err := c.persist(ctx, v, d); err != nil {
		return 0, err
	}
	c.assign(v, d)
	c.noteClaim(v)
	if err := c.takeOver(ctx, v, d); err != nil {
		return 0, err
	}
	if d.Gone {
		c.tell(v)
		return 0, c.finish(ctx, v)
	}
	return c.explain(ctx, v, status)
}

// soonest returns the shortest of some waits. A wait of 0 means never.
func soonest(waits ...time.Duration) (first time.Duration) {
	for _, wait := range waits {
		if wait > 0 && (first == 0 || wait < first) {
			first = wait
		}
	}
	return first
}

// decide calls the election. If renewals must stop, they stop before promises are counted: that is possible only
// when nothing more can be promised.
func (c *Controller) decide(v *view, cs []candidate) election.Decision {
	var p *election.Policy
	if v.policy != nil {
		p = &v.policy.election
	}
	closed := v.state.Record.State != election.Leading
	if closed {
		c.stopRenewing(v.key)
	}
	v.state.Sent = c.sent(v.key, closed)
	d := election.Next(c.now(), p, v.state, elected(cs))
	if d.StopRenewing {
		c.stopRenewing(v.key)
		v.state.Sent = c.sent(v.key, true)
		d = election.Next(c.now(), p, v.state, elected(cs))
	}
	return d
}

// now reads the clocks for a decision. It truncates the wall clock to what a record can store, so that a record is
// the same before and after it is written.
func (c *Controller) now() lease.Reading {
	now := c.Clock.Now()
	now.Wall = now.Wall.Truncate(time.Microsecond)
	return now
}

// changed remembers a grant of this tenure, logs a change, and queues its event.
func (c *Controller) changed(ctx context.Context, v *view, d election.Decision, grants bool) {
	was, is := v.state.Record, d.Record
	if grants {
		if s := c.namespace(v.key); is.Reason == reason.Adopted {
			s.adopted = is.Epoch
		} else {
			s.granted = is.Epoch
		}
	}
	falls := is.Duration < was.Duration || is.Skew < was.Skew || is.Stop < was.Stop
	if v.policy != nil && (falls || !slices.Equal(was.OpenLocks, is.OpenLocks)) {
		c.policies.addIn(time.Second, client.ObjectKeyFromObject(v.policy.object)) // the cache shows the record by then
	}
	if was.State == is.State && was.Leader == is.Leader && was.Epoch == is.Epoch {
		return
	}
	log.FromContext(ctx).Info("Leadership changed", "namespaceLeader", klog.KRef(v.key.Namespace, v.key.Name),
		"leader", is.Leader, "epoch", is.Epoch, "state", is.State, "reason", is.Reason)
	if is.State == election.Draining && is.Reason == reason.PriorityChanged {
		return // the end of the change has an event
	}
	kind := corev1.EventTypeNormal
	if is.State == election.Vacant || is.State == election.Draining {
		kind = corev1.EventTypeWarning
	}
	s := c.namespace(v.key)
	s.untold = append(s.untold, pendingEvent{kind, is.Reason, describe(d)})
}

// tell records the events of a record that are pending.
func (c *Controller) tell(v *view) {
	s := c.recall(v.key)
	for _, e := range s.untold {
		c.events.Eventf(v.object, nil, e.kind, string(e.reason), "Decide", "%s", e.message)
	}
	s.untold = nil
}

// assign has every publisher of the fleet write what the persisted record asks for.
func (c *Controller) assign(v *view, d election.Decision) {
	first := d.Record.Epoch != 0 && c.recall(v.key).granted == d.Record.Epoch
	first = first && c.promises.Get(v.key).Epoch != d.Record.Epoch
	timings, duration := v.timings(d.Record)
	v.state.Record = d.Record
	name := v.leaseKey()
	// The leader's cluster comes first; the others are not urgent.
	slices.SortStableFunc(v.members, func(a, b memberView) int {
		return cmp.Compare(notLeading(a.Name, d.Record), notLeading(b.Name, d.Record))
	})
	for i := range v.members {
		m := &v.members[i]
		if m.publisher == nil || v.leavesAlone(m) {
			continue
		}
		for _, other := range m.publisher.LeasesIn(v.key.Name) {
			if other != name && !v.moved {
				m.publisher.Assign(other, assign.Assignment{Role: assign.Absent}, timings)
			}
		}
		if name.Name == "" {
			continue
		}
		a := assign.Assignment{Role: assign.Absent}
		if !d.Gone && (m.takesPart || m.Name == d.Record.Leader) {
			a = election.Assign(d.Record, v.key.Namespace, m.Name, duration, first)
		}
		if m.isRead && (m.namespace == nil || m.namespace.Status.Phase == corev1.NamespaceTerminating) && a.Role != assign.Absent {
			a.Role = assign.Hold // nothing can be written there, and its Lease is deleted with the namespace
		}
		m.publisher.Assign(name, a, timings)
	}
}

// leavesAlone reports whether only the record is known of the policy, and the record names another member.
func (v *view) leavesAlone(m *memberView) bool {
	return v.policy != nil && v.policy.onlyFor != "" && v.policy.onlyFor != m.Name
}

// timings returns the timings of Leases under a record, and the policy's D.
func (v *view) timings(r election.Record) (publish.Timings, time.Duration) {
	if v.policy == nil {
		return publish.Timings{Renew: time.Second, Timeout: time.Second}, 0
	}
	t := v.policy.election.Timings
	return publish.Timings{
		Renew: t.Renew, Timeout: t.Timeout, Skew: t.Skew, Stop: v.policy.election.StopTime,
		LongestPromise: max(t.Duration, r.Duration) + t.Skew, Patience: v.policy.thresholds.UnreachableAfter,
	}, t.Duration
}

// notLeading returns 0 for the cluster that the record names as the leader, and 1 for others.
func notLeading(name string, r election.Record) int {
	if name == r.Leader {
		return 0
	}
	return 1
}

// finish deletes a record that nothing depends on any more.
func (c *Controller) finish(ctx context.Context, v *view) error {
	c.forget(v.key)
	if v.found == nil {
		return nil
	}
	version := v.object.ResourceVersion
	err := c.client.Delete(ctx, v.object, client.Preconditions{UID: &v.object.UID, ResourceVersion: &version})
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("delete record %s: %w", v.key, err)
	}
	c.drop(v.key)
	return nil
}

// drop forgets a namespace without a record.
func (c *Controller) drop(key types.NamespacedName) {
	c.promises.Forget(key)
	for _, p := range c.publishers(key.Namespace) {
		p.Forget(key.Name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.namespaces, key)
}
