package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/skew"
)

// noteClaim remembers which policies claim a namespace. If that has changed, it enqueues their statuses.
func (c *Controller) noteClaim(v *view) {
	var now claim
	if v.policy != nil {
		now.owner = v.policy.object.Name
	}
	var losers []string
	for _, p := range v.losers {
		losers = append(losers, p.object.Name)
	}
	now.losers = strings.Join(losers, ",")
	if c.recall(v.key).claim == now {
		return
	}
	s := c.namespace(v.key)
	c.mu.Lock()
	was := s.claim
	if s.claim = now; now == (claim{}) && v.object == nil && s.highest == 0 {
		delete(c.namespaces, v.key) // most namespaces of a member are unowned
	}
	c.mu.Unlock()
	for _, list := range []string{was.owner, was.losers, now.owner, now.losers} {
		for name := range strings.SplitSeq(list, ",") {
			if name != "" {
				c.policies.add(types.NamespacedName{Namespace: v.key.Namespace, Name: name})
			}
		}
	}
}

// claimsOf returns how many namespaces a policy owns, and the ones that it selects and another policy owns.
func (c *Controller) claimsOf(key types.NamespacedName) (owned int, lost []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ns, s := range c.namespaces {
		cl := s.claim
		if ns.Namespace != key.Namespace {
			continue
		}
		if cl.owner == key.Name {
			owned++
		}
		if slices.Contains(strings.Split(cl.losers, ","), key.Name) {
			lost = append(lost, fmt.Sprintf("%s (to %s)", ns.Name, cl.owner))
		}
	}
	slices.Sort(lost)
	return owned, lost
}

// reconcilePolicy writes the status of a policy, and has the members of its fleet probed for it.
func (c *Controller) reconcilePolicy(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	if !c.Tenure.Holds() {
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	if err := c.setProbing(ctx, req.Namespace); err != nil {
		return reconcile.Result{}, err
	}
	object := &v1alpha1.LeadershipPolicy{}
	err := c.client.Get(ctx, req.NamespacedName, object)
	if apierrors.IsNotFound(err) {
		c.forgetStandsBack(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if c.standsBack(object.Namespace) {
		c.recordStandsBack(ctx, object)
		return reconcile.Result{RequeueAfter: standBackAgain}, nil
	}
	policies, err := c.policiesOf(ctx, object.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	before := object.DeepCopy()
	after := c.fillPolicyStatus(ctx, policies, object)
	lowers, err := c.lowerSeal(ctx, object.Namespace, policies)
	if err != nil {
		return reconcile.Result{}, err
	}
	after.RequeueAfter = soonest(after.RequeueAfter, lowers)
	if equality.Semantic.DeepEqual(before.Status, object.Status) {
		return after, nil
	}
	err = c.client.Status().Update(ctx, object)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return after, nil // the other writer's event enqueues it again
	}
	return after, err
}

// fillPolicyStatus fills in the status of a policy. It returns when to check again.
func (c *Controller) fillPolicyStatus(ctx context.Context, policies []*policy, object *v1alpha1.LeadershipPolicy) reconcile.Result {
	p := parsePolicy(object)
	if i := slices.IndexFunc(policies, func(p *policy) bool { return p.object.Name == object.Name }); i >= 0 {
		p = policies[i]
	}
	s := &object.Status
	s.ObservedGeneration = object.Generation
	owned, lost := c.claimsOf(client.ObjectKeyFromObject(object))
	s.Namespaces = ptr.To(int32(owned))
	clusters := int32(0)
	var result reconcile.Result
	var members []memberView
	now := c.now()
	for _, m := range c.Fleet.Members(object.Namespace) {
		if m.Gone || m.PriorityReason != "" || !p.selects(m) {
			continue
		}
		clusters++
		mv := memberView{
			Member: m, takesPart: true, verdict: m.Health(p.thresholds), clock: m.Clock(now, p.election.Timings.Skew),
		}
		members = append(members, mv)
		if n := mv.verdict.Next; n > 0 && (result.RequeueAfter == 0 || n < result.RequeueAfter) {
			result.RequeueAfter = n
		}
	}
	s.Clusters = &clusters
	s.UnreachableAfterMilliseconds = int32(p.thresholds.UnreachableAfter.Milliseconds())
	s.RecoverAfterMilliseconds = ptr.To(int32(p.thresholds.RecoverAfter.Milliseconds()))
	managed, recount := c.allManaged(ctx, p)
	for _, cond := range []metav1.Condition{
		managed,
		accepted(p, lost, leaseRefused(policies, p, members), hubLossWarning(p.election.Timings, c.Tenure.ElectionDuration())),
		clustersReachable(mostUnreachable(members, p.thresholds.UnreachableAfter), members),
		clocksAgree(members),
		secretsGranted(c.Fleet.MissingGrant(object.Namespace), c.brokenSeal(object.Namespace)),
	} {
		cond.ObservedGeneration = object.Generation
		meta.SetStatusCondition(&s.Conditions, cond)
	}
	result.RequeueAfter = soonest(result.RequeueAfter, recount)
	if !c.source.synced() { // a fence may be missing in a Cluster that is not known yet
		result.RequeueAfter = notYet
		return result
	}
	c.noteFences(ctx, policies, p, object, members, c.lostNames(ctx, p, policies))
	c.noteFenceTargets(object, members)
	ready := policyReady(s.Conditions)
	ready.ObservedGeneration = object.Generation
	meta.SetStatusCondition(&s.Conditions, ready)
	return result
}

// accepted returns the condition of a policy that has lost namespaces to others, and whose Leases are refused.
// warning is added to the message of a policy that is accepted.
func accepted(p *policy, lost []string, refused, warning string) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: string(reason.Accepted),
		Message: "the policy is valid and acted on" + warning,
	}
	switch {
	case p.invalid != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(reason.InvalidPolicy), cut(p.invalid.Error(), 1024)
	case len(lost) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, string(reason.Conflict)
		c.Message = cut("other policies own these namespaces, so this one has no effect there: "+strings.Join(lost, ", "), 1024)
	case refused != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(reason.Conflict), cut(refused, 1024)
	}
	return c
}

// hubLossWarning returns what an accepted policy warns of: terms may lapse when a hub replica is lost. h is the
// duration of the hub's own election.
func hubLossWarning(t lease.Timings, h time.Duration) string {
	if t.SurvivesHubLoss(h) {
		return ""
	}
	return fmt.Sprintf("; if a hub replica is lost, terms may lapse: renewIntervalMilliseconds, %gs for its election, "+
		"requestTimeoutMilliseconds and maxClockSkewMilliseconds add up to more than leaseDurationMilliseconds (%v)",
		h.Seconds(), t.Duration)
}

// worstOf returns the worst of conditions as one: False before Unknown before True. Its message has the messages of
// all that are as bad.
func worstOf(kind string, conditions []metav1.Condition) metav1.Condition {
	worst := metav1.Condition{Type: kind}
	for _, status := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown, metav1.ConditionTrue} {
		var messages []string
		for _, c := range conditions {
			if c.Status == status {
				worst.Status, worst.Reason = status, cmp.Or(worst.Reason, c.Reason)
				messages = append(messages, c.Message)
			}
		}
		if len(messages) > 0 {
			worst.Message = cut(strings.Join(messages, "; "), 1024)
			return worst
		}
	}
	return worst
}

// policyReady returns the sum of a policy's other conditions.
func policyReady(conditions []metav1.Condition) metav1.Condition {
	var others []metav1.Condition
	for _, c := range conditions {
		if c.Type != v1alpha1.ConditionReady {
			c.Message = c.Type + ": " + c.Message
			others = append(others, c)
		}
	}
	ready := worstOf(v1alpha1.ConditionReady, others)
	if ready.Status == metav1.ConditionTrue {
		ready.Reason, ready.Message = "Ready", ""
	}
	return ready
}

func clustersReachable(most bool, ms []memberView) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionClustersReachable, Status: metav1.ConditionTrue, Reason: "Reachable"}
	if !most {
		return c
	}
	var names []string
	for _, m := range ms {
		if m.verdict.State == health.Unhealthy {
			names = append(names, m.Name)
		}
	}
	c.Status, c.Reason = metav1.ConditionFalse, string(reason.MostUnreachable)
	c.Message = cut("most clusters became unreachable at once, so it may be the hub that is cut off: "+strings.Join(names, ", "), 1024)
	return c
}

// clocksAgree names the clusters with a clock that is off, or that was not measured yet. The candidates' messages
// have the offsets, because here they would change the status all the time.
func clocksAgree(ms []memberView) metav1.Condition {
	var off, open []string
	for _, m := range ms {
		switch m.clock.State {
		case skew.Beyond:
			off = append(off, m.Name)
		case skew.Unknown:
			open = append(open, m.Name)
		case skew.Within:
		}
	}
	c := metav1.Condition{Type: v1alpha1.ConditionClocksAgree, Status: metav1.ConditionTrue, Reason: "Agree"}
	switch {
	case len(off) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, string(reason.ClockSkewed)
		c.Message = cut("the clock is farther from the hub's than maxClockSkewMilliseconds in "+strings.Join(off, ", ")+
			"; where no cluster agrees with the hub, its own clock may be off", 1024)
	case len(open) > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, "NotMeasured"
		c.Message = cut("not measured closely enough yet: "+strings.Join(open, ", "), 1024)
	}
	return c
}

// secretsGranted names a missing grant, or what is wrong with the seal's Secret.
func secretsGranted(missing, brokenSeal string) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionSecretsGranted, Status: metav1.ConditionTrue, Reason: "Granted"}
	switch {
	case missing != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "GrantMissing", cut(missing, 1024)
	case brokenSeal != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(reason.InvalidSeal), brokenSeal
	}
	return c
}

// setProbing has the members of a fleet probed, and their clocks judged, for each policy there that selects them.
func (c *Controller) setProbing(ctx context.Context, fleetName string) error {
	policies, err := c.policiesOf(ctx, fleetName)
	if err != nil {
		return err
	}
	var by []fleet.Probing
	for _, p := range policies {
		if t := p.election.Timings; !p.unknown {
			by = append(by, fleet.Probing{Clusters: p.clusters, Interval: t.Renew, Timeout: t.Timeout, Skew: t.Skew})
		}
	}
	c.Fleet.SetProbing(fleetName, by)
	return nil
}

// timings returns the timings of all valid policies, from a cache.
func (c *Controller) timings(ctx context.Context) ([]lease.Timings, error) {
	var list v1alpha1.LeadershipPolicyList
	if err := c.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // they are not changed
		return nil, err
	}
	var ts []lease.Timings
	for i := range list.Items {
		if t := parsePolicy(&list.Items[i]).election.Timings; t.Validate() == nil {
			ts = append(ts, t)
		}
	}
	return ts, nil
}
