package controller

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/worker"
)

// noteFenceTargets sets the policy's condition that reports whether its fenced locks have holders in the cluster that
// leads, and whether its fenced service accounts exist in a cluster.
func (c *Controller) noteFenceTargets(object *v1alpha1.LeadershipPolicy, members []memberView) {
	var targets []metav1.Condition
	if found := c.findLocks(object, members); len(found) > 0 {
		targets = append(targets, locksHeld(found))
	}
	if found := c.findAccounts(object, members); len(found) > 0 {
		targets = append(targets, accountsFound(found))
	}
	if len(targets) == 0 {
		meta.RemoveStatusCondition(&object.Status.Conditions, v1alpha1.ConditionFenceTargetsFound)
		return
	}
	cond := worstOf(v1alpha1.ConditionFenceTargetsFound, targets)
	cond.ObservedGeneration = object.Generation
	meta.SetStatusCondition(&object.Status.Conditions, cond)
}

func (c *Controller) findLocks(object *v1alpha1.LeadershipPolicy, members []memberView) (found []lockFinding) {
	for _, f := range guard.Fences(c.HubID, object, nil) {
		if lock, is := f.Lock(); is {
			found = append(found, c.findLock(f, lock.String(), members))
		}
	}
	return found
}

// lockFinding is what was seen of a lock in the member that leads. An empty member means that nothing was seen.
type lockFinding struct {
	lock, member string
	state        worker.LockState
}

func (c *Controller) findLock(f guard.Fence, lock string, members []memberView) lockFinding {
	for _, m := range members {
		w := c.worker(m.Key)
		if w == nil {
			continue
		}
		if state := w.LockOf(f); state != worker.LockUnseen {
			return lockFinding{lock, m.Name, state}
		}
	}
	return lockFinding{lock: lock}
}

// locksHeld warns of locks without a holder, and names those that were not seen yet.
func locksHeld(found []lockFinding) metav1.Condition {
	var idle, open []string
	for _, l := range found {
		switch l.state {
		case worker.LockMissing:
			idle = append(idle, fmt.Sprintf("there is no Lease %s in %s, which leads", l.lock, l.member))
		case worker.LockIdle:
			idle = append(idle, fmt.Sprintf("nobody renews the Lease %s in %s, which leads", l.lock, l.member))
		case worker.LockUnseen:
			open = append(open, l.lock)
		case worker.LockHeld:
		}
	}
	c := metav1.Condition{
		Status: metav1.ConditionTrue, Reason: string(reason.TargetsFound),
		Message: "each fenced lock has a holder in the cluster that leads",
	}
	switch {
	case len(idle) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, string(reason.LockIdle)
		c.Message = cut("compare leaderElectionLocks with the Lease that the controller elects itself with, and see that it runs there with its election on: "+
			strings.Join(idle, "; "), 1024)
	case len(open) > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, string(reason.LockUnseen)
		c.Message = cut("nobody was seen to hold these locks since a cluster leads: "+strings.Join(open, ", "), 1024)
	}
	return c
}
