package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/guard/locks"
	"github.com/leasecast/leasecast/hub/worker"
)

// noteFences says in the status of a policy in which members a fence is missing. It gets all policies of the fleet, the
// oldest first.
func (c *Controller) noteFences(policies []*policy, object *v1alpha1.LeadershipPolicy, members []memberView) {
	conditions := &object.Status.Conditions
	fences := guard.Fences(c.HubID, object)
	if len(fences) == 0 {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionFenced)
		return
	}
	var open []string
	if len(members) == 0 {
		open = append(open, "no cluster takes part yet")
	}
	for _, m := range members {
		if err := c.missingFence(m, fences); err != nil {
			open = append(open, m.Name+" ("+unfencedMessage(err)+")")
		}
	}
	cond := metav1.Condition{
		Type: v1alpha1.ConditionFenced, Status: metav1.ConditionTrue, Reason: "InForce",
		Message: "every cluster refuses what it must", ObservedGeneration: object.Generation,
	}
	if l := slowestLock(object.Spec.Fencing); l != nil {
		cond.Message += fmt.Sprintf("; a change of leader takes %v more, for the lock %s: shorten its elector's durations to shorten that",
			l.StopTime(), l.NamespacedName)
	}
	if fences[0].Warns() {
		cond.Reason, cond.Message = "Warns", "every cluster warns, and nothing is refused"
	}
	if l, by := lockTaken(policies, object, members); l != nil {
		open = append(open, fmt.Sprintf("the policy %s fences the lock %s: take it out of one of the two", by, l))
	}
	if len(open) > 0 {
		cond.Status, cond.Reason = metav1.ConditionFalse, string(reason.Unfenced)
		cond.Message = cut(strings.Join(open, "; "), 1024)
	}
	meta.SetStatusCondition(conditions, cond)
}

// missingFence says why one of the fences is missing in a member. A member that is away may miss all.
func (c *Controller) missingFence(m memberView, fences []guard.Fence) error {
	w := c.worker(m.Key)
	if w == nil {
		return worker.ErrUnchecked
	}
	var errs []error
	for _, f := range fences {
		errs = append(errs, w.Unfenced(f, ""))
	}
	return errors.Join(errs...)
}

// fencesIn are the fences that policies, the oldest first, ask for in a member. A lock has one fence, that of the oldest.
func fencesIn(hub string, policies []*policy, m fleet.Member) (fs []guard.Fence) {
	taken := map[types.NamespacedName]bool{}
	for _, p := range policies {
		if p.invalid != nil || !p.selects(m) {
			continue
		}
		for _, f := range guard.Fences(hub, p.object) {
			lock, is := f.Lock()
			if is && taken[lock.NamespacedName] {
				continue
			}
			if is {
				taken[lock.NamespacedName] = true
			}
			fs = append(fs, f)
		}
	}
	return fs
}

// lockTaken names a lock of a policy that an older one fences in one of these members, and the older policy.
func lockTaken(policies []*policy, object *v1alpha1.LeadershipPolicy, members []memberView) (lock *types.NamespacedName, by string) {
	mine := locks.Of(object.Spec.Fencing)
	for _, p := range policies {
		if p.object.Name == object.Name {
			return nil, ""
		}
		if p.invalid != nil || !slices.ContainsFunc(members, func(m memberView) bool { return p.selects(m.Member) }) {
			continue
		}
		for _, older := range locks.Of(p.object.Spec.Fencing) {
			for _, l := range mine {
				if l.NamespacedName == older.NamespacedName {
					return &l.NamespacedName, p.object.Name
				}
			}
		}
	}
	return nil, ""
}
