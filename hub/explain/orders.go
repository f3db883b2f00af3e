package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/ledger"
)

// OrderEnd returns the event of an order to move the namespace that has ended, or false while there is none, or while
// it waits or is carried out.
func OrderEnd(v *decide.Snapshot, p decide.Plan) (ledger.Event, bool) {
	to := p.Move.To
	switch {
	case p.Record.State == election.Leading && p.Record.Leader == to:
		return ledger.Event{Kind: corev1.EventTypeNormal, Reason: reason.Ordered, Message: to + " leads, as ordered"}, true
	case !p.Refused:
		return ledger.Event{}, false
	}
	why := "no Cluster of that name takes part"
	if i := slices.IndexFunc(p.Candidates, func(c decide.Candidate) bool { return c.Name == to }); i >= 0 {
		c := &p.Candidates[i]
		why = fmt.Sprintf("%s: %s", c.Reason, cut(message(v, c), 512))
	}
	return ledger.Event{
		Kind: corev1.EventTypeWarning, Reason: reason.OrderRefused,
		Message: fmt.Sprintf("the order to move to %.253s is refused (%s): order it again when that is mended", to, why),
	}, true
}

// setFailoverPending sets or removes the condition that an operator has to replace the leader. After a start of the hub
// it stays as it was, while a leader that was not reached yet has time to answer: an alert would end and begin again.
func setFailoverPending(conditions *[]metav1.Condition, v *decide.Snapshot, p decide.Plan) {
	i := slices.IndexFunc(p.Candidates, func(c decide.Candidate) bool { return c.Name == p.Record.Leader })
	if p.Waiting != reason.FailoverPending || i < 0 {
		if i < 0 || p.Candidates[i].Fitness != election.Unknown || !p.Unanswered || p.Frozen ||
			!v.Policy.Election.ManualFailover || election.Planned(p.Record.Reason) {
			meta.RemoveStatusCondition(conditions, v1alpha1.ConditionFailoverPending)
		}
		return
	}
	c, problem, since := &p.Candidates[i], "cannot go on", ""
	switch verdict := c.Member.Verdict; {
	case verdict.State == health.Unhealthy:
		since = " since " + verdict.Since.Wall.UTC().Format(time.RFC3339)
	case verdict.State == health.Healthy && p.Record.State == election.Leading:
		problem = "should be replaced" // it goes on, and is renewed
	}
	meta.SetStatusCondition(conditions, condition(v1alpha1.ConditionFailoverPending, yes, c.Reason,
		fmt.Sprintf("the leader %s %s (%s%s), and the policy leaves it to you to replace it: kubectl annotate "+
			"nsleader -n %s %s %s=%s", c.Name, problem, c.Reason, since, v.Key.Namespace, v.Key.Name,
			v1alpha1.MoveToAnnotation, cmp.Or(p.Record.Next, "CLUSTER"))))
}

// invalidFence explains what is wrong with the declaration that a cluster is off.
func invalidFence(m fleet.Member) string {
	return fmt.Sprintf("the annotation %s is %.64q, and the UID of the cluster is %q: set it to that, or remove it",
		v1alpha1.FencedAnnotation, m.Fenced, m.UID)
}

// fenced explains that a declaration was accepted, or is not in force any more.
func fenced(r election.Record) string {
	until := r.NotBefore.UTC().Format(time.RFC3339)
	if r.Fence.Voided {
		return fmt.Sprintf("%s has answered although it was declared to be off: the next term waits until %s", r.Leader,
			until)
	}
	return fmt.Sprintf("%s counts as off: if it acts before %s, two clusters lead", r.Leader, until)
}

// FenceEvent returns the event of a declaration that a decision has accepted or voided, or false.
func FenceEvent(was, is election.Record) (ledger.Event, bool) {
	if is.Fence.UID == "" || was.Fence == is.Fence {
		return ledger.Event{}, false
	}
	return ledger.Event{Kind: corev1.EventTypeWarning, Reason: reason.Fenced, Message: fenced(is)}, true
}
