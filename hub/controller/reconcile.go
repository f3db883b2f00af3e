package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/seal"
)

// reconcileNamespace decides on one namespace.
func (c *Controller) reconcileNamespace(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	if !c.Tenure.Holds() {
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	if c.standsBack(req.Namespace) {
		c.members.stopRenewing(req.NamespacedName) // this hub may have served the fleet until now
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	asked := c.Clock.Now() // a tenure that had ended by then cannot change what is read after it
	v, err := c.gather(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	defer c.ledger.Return(v.Entry)
	if v.Policy == nil && v.Large && !c.large.AllowN(asked.Wall, 1) {
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	if rest := c.Tenure.Overlap(asked, v.Skew); rest > 0 {
		// Until then the earlier tenure renews what it has promised.
		return reconcile.Result{RequeueAfter: rest}, nil
	}
	if v.Stop != "" {
		c.cases.answer(v, decide.Case{})
		c.following.leadsOn(v.Key)
		c.moves.setWaiting(v.Key, false)
		log.FromContext(ctx).V(1).Info("Nothing is decided", "namespaceLeader", klog.KRef(v.Key.Namespace, v.Key.Name),
			"reason", v.Stop)
		if !v.Renews {
			c.members.stopRenewing(v.Key)
		}
		if v.Stop == decide.Unread && v.Found == nil {
			return reconcile.Result{}, nil // the first read of the cluster enqueues all that matters
		}
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	p := c.decide(v)
	c.cases.answer(v, p.Case)
	written, err := c.persist(ctx, v, p)
	var wait time.Duration
	if err == nil {
		wait, err = c.carryOut(ctx, v, p)
	}
	switch {
	case err != nil:
		v.Recheck()
		return c.decideAgain(v, p, err)
	case p.Gone:
		return reconcile.Result{}, nil
	case written && p.After == 0:
		return reconcile.Result{RequeueAfter: rightAway}, nil // decide again on the new record
	default:
		return reconcile.Result{RequeueAfter: election.Soonest(p.Health, p.After, wait)}, nil
	}
}

// decideAgain returns when to decide again on a namespace whose decision could not be carried out.
func (c *Controller) decideAgain(v *decide.Snapshot, p decide.Plan, err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: rightAway}, nil // another client wrote
	case errors.Is(err, errSeal): // a condition reports it
		return reconcile.Result{RequeueAfter: standBackAgain}, nil
	case isWithoutFleet(err):
		return c.endWithFleet(v, p), nil
	default:
		return reconcile.Result{}, err
	}
}

// isWithoutFleet reports whether a record could not be created because the fleet's namespace is gone, or is being
// deleted. API servers also answer NotFound without the definition of records. Then nothing may be forgotten.
func isWithoutFleet(err error) bool {
	var status apierrors.APIStatus
	gone := apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Kind == "namespaces"
	return gone || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// endWithFleet returns when to decide again on a namespace whose record cannot be stored. It forgets the namespace once
// the record could be deleted: no policy claims the namespace, and all that was promised has passed.
func (c *Controller) endWithFleet(v *decide.Snapshot, p decide.Plan) reconcile.Result {
	stored := *v // as if the record were
	stored.State.Record = p.Record
	if c.decide(&stored).Gone {
		c.drop(v.Entry)
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: standBackAgain}
}

// carryOut has the publishers act on a decision that is persisted. It returns when to decide again, or 0 for never.
func (c *Controller) carryOut(ctx context.Context, v *decide.Snapshot, p decide.Plan) (wait time.Duration, err error) {
	c.moves.note(v, p)
	switch decides := v.Decides(p); {
	case p.Gone:
		c.following.forget(v.Key)
	case !decides || v.IsCurrent(p):
		c.following.decided(v.Key, decides)
	}
	v.AbleSince, v.FitSince, v.UnhealthySince = p.AbleSince, p.FitSince, p.UnhealthySince
	c.assign(v, p)
	c.noteClaim(v)
	if end, ended := explain.OrderEnd(v, p); ended {
		if err := c.ledger.RemoveOrder(ctx, v.Entry); err != nil {
			return 0, err
		}
		v.Events = append(v.Events, end)
	}
	if p.Gone {
		c.recordEvents(v)
		return 0, c.finish(ctx, v)
	}
	return c.explain(ctx, v, p), nil
}

// persist stores the record of a decision, before anything depends on it.
func (c *Controller) persist(ctx context.Context, v *decide.Snapshot, p decide.Plan) (written bool, err error) {
	// Once the Leases are this hub's, the record is one like any other.
	is := ledger.Change{
		Record: p.Record, Persist: p.Persist, TakesOver: v.Moved && !p.Persist && v.LeasesAreOurs(p.Record),
		Message: p.Order(),
	}
	if v.Policy != nil {
		is.Policy = v.Policy.Object.Name
	}
	if p.Record.State == election.Leading && v.Policy != nil {
		b := seal.Bounds{Duration: p.Record.Duration, Skew: p.Record.Skew, Stop: p.Record.Stop}
		// This comes before a Lease can depend on the bounds.
		err := c.Seals.Raise(ctx, v.Key.Namespace, is.Policy, b.Max(v.Policy.Bounds()))
		if c.seals.note(ctx, useOfSeal{v.Key.Namespace, true}, err) {
			return false, fmt.Errorf("%w: %w", errSeal, err)
		}
		if err != nil {
			return false, err
		}
	}
	if written, err = c.ledger.Write(ctx, v.Entry, is); written {
		c.changed(ctx, v, p)
	}
	return written, err
}

// explain records the events of a record, and writes its status, or returns how long to wait. The records of many
// namespaces come first. A status that cannot be written delays no decision.
func (c *Controller) explain(ctx context.Context, v *decide.Snapshot, p decide.Plan) time.Duration {
	if v.Object == nil {
		return 0
	}
	if wait := c.ledger.StatusDueIn(v.Entry); wait > 0 {
		return wait
	}
	status := explain.Status(v, p)
	for _, kind := range []string{v1alpha1.ConditionFrozen, v1alpha1.ConditionFailoverPending} {
		is := meta.FindStatusCondition(status.Conditions, kind)
		if is != nil && !meta.IsStatusConditionPresentAndEqual(v.Object.Status.Conditions, kind, is.Status) {
			v.Events = append(v.Events, ledger.Event{
				Kind: corev1.EventTypeWarning, Reason: reason.Reason(is.Reason), Message: is.Message,
			})
		}
	}
	c.recordEvents(v)
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	if err := c.ledger.WriteStatus(ctx, v.Entry, status); err != nil {
		v.Recheck()
		log.FromContext(ctx).Error(err, "A status could not be written",
			"namespaceLeader", klog.KRef(v.Key.Namespace, v.Key.Name))
		return retrySlowest
	}
	return 0
}

// decide decides. If renewals must stop, they stop before promises are counted: that is possible only when nothing more
// can be promised.
func (c *Controller) decide(v *decide.Snapshot) decide.Plan {
	closed := v.State.Record.State != election.Leading
	if closed {
		c.members.stopRenewing(v.Key)
	}
	p := v.Decide(c.now(), c.sent(v.Key, closed), false)
	paced := p.Planned && !c.moves.begin(v)
	waits := p.Planned && !paced && !c.following.givesWay(v)
	c.moves.setWaiting(v.Key, waits)
	if p.Record.State == election.Leading && !p.Planned || paced {
		c.following.leadsOn(v.Key)
	}
	paced = paced || waits
	if paced {
		p = v.Decide(c.now(), c.sent(v.Key, closed), true)
	}
	if p.StopRenewing {
		c.members.stopRenewing(v.Key)
		p = v.Decide(c.now(), c.sent(v.Key, true), paced)
	}
	return p
}

// sent returns what this tenure has promised for the namespace. closed means that no publisher may stamp a Lease
// for it any more.
func (c *Controller) sent(key types.NamespacedName, closed bool) election.Sent {
	p := c.promises.Get(key)
	return election.Sent{
		Until: p.Until, BootUntil: p.BootUntil, Skew: p.Skew, Stop: p.Stop, Final: closed,
		EarlierEnd: p.EarlierEnd, BootEarlierEnd: p.BootEarlierEnd,
	}
}

// changed logs a change, and queues its event.
func (c *Controller) changed(ctx context.Context, v *decide.Snapshot, p decide.Plan) {
	was, is := v.State.Record, p.Record
	falls := is.Duration < was.Duration || is.Skew < was.Skew || is.Stop < was.Stop
	if v.Policy != nil && (falls || !slices.Equal(was.OpenLocks, is.OpenLocks)) {
		c.policyQueue.addIn(time.Second, client.ObjectKeyFromObject(v.Policy.Object)) // the cache shows the record by then
	}
	if e, declared := explain.FenceEvent(was, is); declared {
		v.Events = append(v.Events, e)
	}
	if was.State == is.State && was.Leader == is.Leader && was.Epoch == is.Epoch {
		return
	}
	log.FromContext(ctx).Info("Leadership changed", "namespaceLeader", klog.KRef(v.Key.Namespace, v.Key.Name),
		"leader", is.Leader, "epoch", is.Epoch, "state", is.State, "reason", is.Reason)
	planned := is.State == election.Ending && election.Planned(is.Reason)
	if planned && is.Reason != reason.Ordered {
		return // the end of the change has an event
	}
	kind := corev1.EventTypeNormal
	if is.State == election.Vacant || is.State == election.Ending && !planned {
		kind = corev1.EventTypeWarning
	}
	v.Events = append(v.Events, ledger.Event{Kind: kind, Reason: is.Reason, Message: explain.Describe(p.Decision)})
}

// recordEvents records the events of a record that are pending.
func (c *Controller) recordEvents(v *decide.Snapshot) {
	for _, e := range v.Events {
		c.events.Eventf(v.Object, nil, e.Kind, string(e.Reason), "Decide", "%s", e.Message)
	}
	v.Events = nil
}

// assign has every publisher of the fleet write what the persisted record asks for.
func (c *Controller) assign(v *decide.Snapshot, p decide.Plan) {
	first := p.Record.Epoch != 0 && v.Granted == p.Record.Epoch && c.promises.Get(v.Key).Epoch != p.Record.Epoch
	timings := v.Policy.LeaseTimings(p.Record)
	for _, a := range v.Assignments(p, first) {
		a.Member.Publisher.Assign(a.Key, a.Assignment, timings)
	}
}

// finish deletes a record that nothing depends on any more.
func (c *Controller) finish(ctx context.Context, v *decide.Snapshot) error {
	deleted, err := c.ledger.Delete(ctx, v.Entry)
	if deleted {
		c.drop(v.Entry)
	}
	return err
}

// noteClaim remembers which policies claim a namespace. If that has changed, it enqueues their statuses.
func (c *Controller) noteClaim(v *decide.Snapshot) {
	var now ledger.Claim
	if v.Policy != nil {
		now.Owner = v.Policy.Object.Name
	}
	var losers []string
	for _, p := range v.Losers {
		losers = append(losers, p.Object.Name)
	}
	now.Losers = strings.Join(losers, ",")
	was := c.ledger.SetClaim(v.Entry, now)
	if was == now {
		return
	}
	for _, list := range []string{was.Owner, was.Losers, now.Owner, now.Losers} {
		for name := range strings.SplitSeq(list, ",") {
			if name != "" {
				c.policyQueue.add(types.NamespacedName{Namespace: v.Key.Namespace, Name: name})
			}
		}
	}
}
