package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/guard/locks"
	"github.com/leasecast/leasecast/hub/worker"
)

// noteFences sets the policy's condition that names the members in which a fence is missing. policies are all
// policies of the fleet, oldest first. lost are the namespaces that the policy names and does not own.
func (c *Controller) noteFences(ctx context.Context, policies []*policy, p *policy, object *v1alpha1.LeadershipPolicy, members []memberView, lost []string) {
	conditions := &object.Status.Conditions
	fences := p.fencesBut(c.HubID, lost)
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
			open = append(open, m.Name+" ("+unfencedMessage(err)+answerIn(err)+")")
		}
	}
	cond := metav1.Condition{
		Type: v1alpha1.ConditionFenced, Status: metav1.ConditionTrue, Reason: "InForce",
		Message: fmt.Sprintf("in force in all %d clusters", len(members)), ObservedGeneration: object.Generation,
	}
	if closed := c.closedLocks(ctx, p); len(closed) > 0 {
		cond.Message += "; refused in every cluster until each earlier holder must have stopped: " + strings.Join(closed, ", ")
	}
	if l := p.slowestLock(); l != nil {
		cond.Message += fmt.Sprintf("; a change of leader takes %v more, for the lock %s: shorten its elector's durations to shorten that",
			l.StopTime(), l.NamespacedName)
	}
	if fences[0].Warns() {
		cond.Reason, cond.Message = "Warns", "every cluster warns, and nothing is refused"
	}
	effective := slices.DeleteFunc(slices.Clone(policies), func(p *policy) bool {
		return len(p.locks) > 0 && c.lostItsNamespace(ctx, p, policies)
	})
	if why := lockRefused(effective, object, members); why != "" {
		open = append(open, why)
	}
	if p.unknown {
		open = []string{"the policy is invalid: the fences that it had stay as they were"}
	}
	if len(open) > 0 {
		cond.Status, cond.Reason = metav1.ConditionFalse, string(reason.Unfenced)
		cond.Message = cut(strings.Join(open, "; "), 1024)
	}
	cond.Message = cut(cond.Message, 1024)
	meta.SetStatusCondition(conditions, cond)
}

// closedLocks returns the policy's locks that no cluster may hold yet, by the cached record.
func (c *Controller) closedLocks(ctx context.Context, p *policy) (closed []string) {
	if len(p.election.Locks) == 0 || len(p.object.Spec.Namespaces.Names) == 0 {
		return nil
	}
	key := types.NamespacedName{Namespace: p.object.Namespace, Name: p.object.Spec.Namespaces.Names[0]}
	o := &v1alpha1.NamespaceLeader{}
	if err := c.client.Get(ctx, key, o, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return nil
	}
	for _, lock := range p.election.Locks {
		if !slices.Contains(o.Spec.OpenLocks, lock) {
			closed = append(closed, lock)
		}
	}
	return closed
}

// answerIn returns a member's answer in an error, after a colon, or "" without one.
func answerIn(err error) string {
	if s := apierrors.APIStatus(nil); errors.As(err, &s) {
		return ": " + cut(s.Status().Message, 256)
	}
	return ""
}

// missingFence returns why fences are missing in a member, or nil. In a member without a worker they were not
// checked.
func (c *Controller) missingFence(m memberView, fences []guard.Fence) error {
	w := c.worker(m.Key)
	if w == nil {
		return worker.ErrUnchecked
	}
	var errs []error
	var denied guard.NotAllowedError
	for _, f := range fences {
		err := w.Unfenced(f, "")
		errs = append(errs, err)
		denied.Namespaces = append(denied.Namespaces, guard.DeniedIn(err)...)
	}
	if len(denied.Namespaces) > 0 { // one command for all namespaces
		slices.Sort(denied.Namespaces)
		denied.Namespaces = slices.Compact(denied.Namespaces)
		return denied
	}
	return errors.Join(errs...)
}

// fencesIn returns the fences that policies, oldest first, ask for in a member. A lock has one fence: the oldest
// policy's. It has no fence if an older policy has Leases of its name. The fences of an invalid policy that was
// never valid are not known, so the installed ones stay. lost returns the namespaces of the member that a policy
// selects and does not own. A cluster that a policy does not select any more keeps its fences while leads reports
// that it leads by a record.
func fencesIn(
	hub string, policies []*policy, m fleet.Member, lost func(*policy) ([]string, error), leads func(*policy) bool,
) (fs []guard.Fence, invalid []string, err error) {
	taken := map[types.NamespacedName]bool{}
	for i, p := range policies {
		if p.unknown {
			invalid = append(invalid, p.object.Name)
			continue
		}
		if p.object.Spec.Fencing == nil || !p.selects(m) && !leads(p) {
			continue
		}
		elsewhere, err := lost(p)
		if err != nil {
			return nil, nil, err
		}
		for _, f := range p.fencesBut(hub, elsewhere) {
			lock, is := f.Lock()
			if is && (taken[lock.NamespacedName] || writer(policies[:i], lock.Name) != "") {
				continue
			}
			if is {
				taken[lock.NamespacedName] = true
			}
			fs = append(fs, f)
		}
	}
	return fs, invalid, nil
}

// writer returns the policy for which the hub writes Leases of this name, or "". A fence of such a lock would
// reject the hub's own writes.
func writer(policies []*policy, name string) string {
	for _, p := range policies {
		if p.object.LeaseName() == name {
			return p.object.Name
		}
	}
	return ""
}

// olderThan returns the policies that are older than object.
func olderThan(policies []*policy, object *v1alpha1.LeadershipPolicy) []*policy {
	return policies[:max(0, slices.IndexFunc(policies, func(p *policy) bool { return p.object.Name == object.Name }))]
}

// lockRefused returns why a lock of a policy is not fenced, or "". Either an older policy fences it in one of these
// members, or the hub itself writes it.
func lockRefused(policies []*policy, object *v1alpha1.LeadershipPolicy, members []memberView) string {
	mine, older := locks.Of(object.Spec.Fencing), olderThan(policies, object)
	for _, l := range mine {
		if by := writer(older, l.Name); by != "" {
			return fmt.Sprintf("the lock %s has the name of the Leases that the hub writes for the policy %s: take it out of leaderElectionLocks", l, by)
		}
	}
	for _, p := range older {
		if !p.unknown && !slices.ContainsFunc(members, func(m memberView) bool { return p.selects(m.Member) }) {
			continue
		}
		for _, l := range locks.Of(p.object.Spec.Fencing) {
			switch {
			case !slices.ContainsFunc(mine, func(m locks.Lock) bool { return m.NamespacedName == l.NamespacedName }):
			case p.unknown:
				return fmt.Sprintf("the policy %s is invalid, and a fence that it had may refuse the lock %s everywhere: mend it, or delete it", p.object.Name, l)
			default:
				return fmt.Sprintf("the policy %s fences the lock %s: take it out of one of the two", p.object.Name, l)
			}
		}
	}
	return ""
}

// leaseRefused returns why the hub cannot write the Leases of a policy somewhere, or "". An older policy may fence
// a lock of their name in one of these members, in a namespace that this policy names.
func leaseRefused(policies []*policy, p *policy, members []memberView) string {
	for _, older := range olderThan(policies, p.object) {
		warns := older.object.Spec.Fencing != nil && older.object.Spec.Fencing.Enforcement == v1alpha1.EnforcementWarn
		if warns || !slices.ContainsFunc(members, func(m memberView) bool { return older.selects(m.Member) }) {
			continue
		}
		for _, l := range locks.Of(older.object.Spec.Fencing) {
			if l.Name == p.object.LeaseName() && p.names[l.Namespace] {
				return fmt.Sprintf("the policy %s fences the lock %s, so there is no Lease of that name for this policy: "+
					"create it again with another leaseName", older.object.Name, l)
			}
		}
	}
	return ""
}
