package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/worker"
)

// claimsOf returns how many namespaces a policy owns, and the ones that it selects and another policy owns.
func (st *policyStatuses) claimsOf(key types.NamespacedName) (owned int, lost []string) {
	st.ledger.Claims(key.Namespace, func(namespace string, cl ledger.Claim) {
		if cl.Owner == key.Name {
			owned++
		}
		if slices.Contains(strings.Split(cl.Losers, ","), key.Name) {
			lost = append(lost, fmt.Sprintf("%s (to %s)", namespace, cl.Owner))
		}
	})
	slices.Sort(lost)
	return owned, lost
}

// policyStatuses writes the statuses of policies.
type policyStatuses struct {
	*hub
	members  *members
	policies *policies
	lone     *loneNamespaces
	seals    *seals
}

// reconcilePolicy writes the status of a policy, and has the members of its fleet probed for it.
func (st *policyStatuses) reconcilePolicy(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	if !st.Tenure.Holds() {
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	policies, err := st.policies.valid(ctx, req.Namespace, st.source.Members(req.Namespace))
	if err != nil {
		return reconcile.Result{}, err
	}
	st.policies.setProbing(req.Namespace, policies)
	i := slices.IndexFunc(policies, func(p *decide.Policy) bool { return p.Object.Name == req.Name })
	if i < 0 { // it is being deleted, or gone
		st.lone.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	object := &v1alpha1.LeadershipPolicy{}
	if err := st.Client.Get(ctx, req.NamespacedName, object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // the event of its deletion enqueues it again
	}
	if _, other := st.source.Served(object.Namespace); other != "" {
		// What is recorded again is counted by the recorder, and kept from expiring.
		st.events.Eventf(object, nil, corev1.EventTypeWarning, string(reason.OtherHub), "StandBack", "%s",
			explain.StandsBack(object.Namespace, other, st.OwnNamespace))
		return reconcile.Result{RequeueAfter: standBackAgain}, nil
	}
	if !st.source.synced() { // a fence may be missing in a Cluster that is not known yet
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	if object.Status.ObservedGeneration == object.Generation && st.decisionsPending(ctx, object.Namespace) {
		return reconcile.Result{RequeueAfter: notYet}, nil // what an earlier tenure wrote stands
	}
	before := object.DeepCopy()
	again := st.fillPolicyStatus(ctx, policies, policies[i], object)
	lowers, failed := st.seals.lower(ctx, object.Namespace, policies)
	if !equality.Semantic.DeepEqual(before.Status, object.Status) {
		err := st.Client.Status().Update(ctx, object) // it may say why the bounds cannot be lowered
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return reconcile.Result{}, errors.Join(err, failed)
		}
	}
	if failed != nil {
		return reconcile.Result{}, failed
	}
	// The event of another writer enqueues it again.
	return reconcile.Result{RequeueAfter: election.Soonest(again, lowers)}, nil
}

// decisionsPending reports whether this tenure has not decided yet on a namespace of a fleet that has a record. So it
// does not know all claims. After the time that one decision may take, it reports false: some are never decided on.
func (st *policyStatuses) decisionsPending(ctx context.Context, fleetName string) bool {
	if started, _ := st.Tenure.Started(); st.now().Boot-started.Boot >= decideTimeout {
		return false
	}
	records, err := st.ledger.Cached(ctx, fleetName)
	claimed := map[string]bool{}
	st.ledger.Claims(fleetName, func(namespace string, cl ledger.Claim) { claimed[namespace] = cl != ledger.Claim{} })
	return err != nil || slices.ContainsFunc(records, func(o v1alpha1.NamespaceLeader) bool {
		return o.Spec.State != v1alpha1.StateRetired && !claimed[o.Name]
	})
}

// fillPolicyStatus fills in the status of a policy. It returns when to check again.
func (st *policyStatuses) fillPolicyStatus(
	ctx context.Context, policies []*decide.Policy, p *decide.Policy, object *v1alpha1.LeadershipPolicy,
) (again time.Duration) {
	s := &object.Status
	s.ObservedGeneration = object.Generation
	owned, lost := st.claimsOf(client.ObjectKeyFromObject(object))
	s.Namespaces = ptr.To(int32(owned))
	var members []decide.Member
	now := st.now()
	for _, m := range st.Fleet.Members(object.Namespace) {
		if !p.Includes(&decide.Member{Member: m}) {
			continue
		}
		mv := decide.Member{
			Member: m, TakesPart: true, Verdict: m.Health(p.Thresholds), ClockVerdict: m.Clock(now, p.Election.Timings.Skew),
		}
		members = append(members, mv)
		again = election.Soonest(again, mv.Verdict.Next)
	}
	s.Clusters = ptr.To(int32(len(members)))
	s.UnreachableAfterMilliseconds = int32(p.Thresholds.UnreachableAfter.Milliseconds())
	s.RecoverAfterMilliseconds = ptr.To(int32(p.Thresholds.RecoverAfter.Milliseconds()))
	set := func(cond metav1.Condition) { setCondition(object, cond, true) }
	managed, recount := st.lone.allManaged(ctx, p)
	warning := explain.HubLossWarning(p.Election.Timings, st.Tenure.ElectionDuration())
	warning += explain.OrdersWarning(p, members, now.Wall)
	set(managed)
	set(explain.Accepted(p, lost, explain.LeaseRefused(policies, p, members), warning))
	most, settled := st.mostUnreachable(p, members, now)
	set(explain.ClustersReachable(most, members))
	set(explain.ClocksAgree(members))
	set(explain.SecretsGranted(st.Fleet.MissingGrant(object.Namespace), st.seals.why(object.Namespace)))
	checked := st.noteFences(ctx, explain.Fences{
		Policy: p, Wanted: p.FencesBut(st.HubID, st.policies.lostNames(ctx, p, policies)), Members: members,
	}, object)
	targets, applies := explain.TargetsFound(st.findLocks(object, members))
	setCondition(object, targets, applies)
	set(explain.PolicyReady(s.Conditions))
	return election.Soonest(again, settled, recount, checked)
}

// mostUnreachable reports whether most members are lost. Members that this tenure has not reached yet do not count at
// its start. It returns after how long they will.
func (st *policyStatuses) mostUnreachable(
	p *decide.Policy, members []decide.Member, now lease.Reading,
) (most bool, settled time.Duration) {
	window := p.Thresholds.UnreachableAfter
	started, _ := st.Tenure.Started()
	if settled = max(0, started.Boot+window-now.Boot); settled > 0 {
		members = slices.DeleteFunc(slices.Clone(members), func(m decide.Member) bool {
			return m.Verdict.State == health.Unknown
		})
	}
	return decide.MostUnreachable(members, window, started), settled
}

// noteFences sets the policy's condition that names the members in which a fence is missing. It returns after how long
// one that could not be checked counts as missing, or zero.
func (st *policyStatuses) noteFences(
	ctx context.Context, f explain.Fences, object *v1alpha1.LeadershipPolicy,
) (young time.Duration) {
	if len(f.Wanted) == 0 {
		meta.RemoveStatusCondition(&object.Status.Conditions, v1alpha1.ConditionFencesInForce)
		return 0
	}
	started, _ := st.Tenure.Started()
	young = max(0, started.Boot+time.Minute-st.now().Boot)
	f.Young = young > 0
	f.Closed = st.policies.closedLocks(ctx, f.Policy)
	for _, m := range f.Members {
		f.Missing = append(f.Missing, st.missingFence(m, f.Wanted))
	}
	setCondition(object, explain.Fenced(f), true)
	return young
}

// setCondition sets a condition of a policy, or removes it unless it applies.
func setCondition(object *v1alpha1.LeadershipPolicy, cond metav1.Condition, applies bool) {
	if cond.ObservedGeneration = object.Generation; applies {
		meta.SetStatusCondition(&object.Status.Conditions, cond)
	} else {
		meta.RemoveStatusCondition(&object.Status.Conditions, cond.Type)
	}
}

// findLocks returns what was seen of the locks that a policy fences.
func (st *policyStatuses) findLocks(
	object *v1alpha1.LeadershipPolicy, members []decide.Member,
) (found []explain.LockFinding) {
	for _, f := range guard.Fences(st.HubID, object, nil) {
		lock, is := f.Lock()
		if !is {
			continue
		}
		finding := explain.LockFinding{Lock: lock.String()}
		for _, m := range members {
			if w := st.members.worker(m.Key); w != nil {
				if finding.State = w.LockOf(f); finding.State != worker.LockUnseen {
					finding.Member = m.Name
					break
				}
			}
		}
		found = append(found, finding)
	}
	return found
}

// missingFence returns why fences are missing in a member, or nil. In a member without a worker they were not
// checked.
func (st *policyStatuses) missingFence(m decide.Member, fences []guard.Fence) error {
	w := st.members.worker(m.Key)
	if w == nil {
		return guard.ErrUnchecked
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
