package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/skew"
)

// The statuses of conditions.
const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown

// condition cuts the message to what an API server stores.
func condition(kind string, is metav1.ConditionStatus, why reason.Reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: is, Reason: string(why), Message: cut(message, 1024)}
}

// Accepted returns the condition of a policy that has lost namespaces to others, and whose Leases are refused. warning
// is added to the message of a policy that is accepted.
func Accepted(p *decide.Policy, lost []string, refused, warning string) metav1.Condition {
	const kind = v1alpha1.ConditionAccepted
	switch {
	case p.Invalid != nil:
		return condition(kind, no, reason.InvalidPolicy, p.Invalid.Error())
	case len(lost) > 0:
		return condition(kind, no, reason.Conflict,
			"other policies own these namespaces, so this one has no effect there: "+strings.Join(lost, ", "))
	case refused != "":
		return condition(kind, no, reason.Conflict, refused)
	default:
		return condition(kind, yes, reason.Accepted, "the policy is valid and acted on"+warning)
	}
}

// HubLossWarning returns what an accepted policy warns of: terms may lapse when a hub replica is lost. h is the
// duration of the hub's own election.
func HubLossWarning(t lease.Timings, h time.Duration) string {
	if t.SurvivesHubLoss(h) {
		return ""
	}
	return fmt.Sprintf("; if a hub replica is lost, terms may lapse: renewIntervalMilliseconds, %gs for its election, "+
		"requestTimeoutMilliseconds and maxClockSkewMilliseconds add up to more than leaseDurationMilliseconds (%v)",
		h.Seconds(), t.Duration)
}

// OrdersWarning returns what an accepted policy warns of: it prefers clusters that take no part, or an annotation
// cannot be read.
func OrdersWarning(p *decide.Policy, members []decide.Member, now time.Time) (warning string) {
	takesPart := map[string]bool{}
	for i := range members {
		takesPart[members[i].Name] = true
	}
	var unknown []string
	for _, o := range p.Object.Spec.Overrides {
		if !takesPart[o.Cluster] {
			unknown = append(unknown, o.Namespace+" ("+o.Cluster+")")
		}
	}
	if len(unknown) > 0 {
		warning = cut("; overrides name Clusters that take no part, for "+strings.Join(unknown, ", "), 1024)
	}
	if why := p.Rebalance.At(now).Invalid; why != "" {
		warning += "; " + why
	}
	return warning
}

// PolicyReady returns the sum of a policy's other conditions: the worst of them, False before Unknown before True. Its
// message has the messages of all that are as bad.
func PolicyReady(conditions []metav1.Condition) metav1.Condition {
	for _, status := range []metav1.ConditionStatus{no, unknown} {
		var why string
		var messages []string
		for _, c := range conditions {
			if c.Type != v1alpha1.ConditionReady && c.Status == status {
				why, messages = cmp.Or(why, c.Reason), append(messages, c.Type+": "+c.Message)
			}
		}
		if len(messages) > 0 {
			return condition(v1alpha1.ConditionReady, status, reason.Reason(why), strings.Join(messages, "; "))
		}
	}
	return condition(v1alpha1.ConditionReady, yes, reason.Ready, "")
}

// ClustersReachable names the unreachable clusters, if most are.
func ClustersReachable(most bool, ms []decide.Member) metav1.Condition {
	const kind = v1alpha1.ConditionClustersReachable
	if !most {
		return condition(kind, yes, reason.Reachable, "")
	}
	var names []string
	for _, m := range ms {
		if m.Lost() {
			names = append(names, m.Name)
		}
	}
	return condition(kind, no, reason.MostUnreachable, "most clusters became unreachable at once, so it may be the hub "+
		"that is cut off: "+strings.Join(names, ", "))
}

// ClocksAgree names the clusters with a clock that is off, or that was not measured yet. The candidates' messages
// have the offsets, because here they would change the status all the time.
func ClocksAgree(ms []decide.Member) metav1.Condition {
	const kind = v1alpha1.ConditionClocksAgree
	var off, open []string
	for _, m := range ms {
		switch m.ClockVerdict.State {
		case skew.Beyond:
			off = append(off, m.Name)
		case skew.Unknown, skew.Suspected:
			open = append(open, m.Name)
		case skew.Within:
		}
	}
	switch {
	case len(off) > 0:
		return condition(kind, no, reason.ClockSkewed,
			"the clock is farther from the hub's than maxClockSkewMilliseconds in "+strings.Join(off, ", ")+
				"; where no cluster agrees with the hub, its own clock may be off")
	case len(open) > 0:
		return condition(kind, unknown, reason.NotMeasured, "not measured closely enough yet: "+strings.Join(open, ", "))
	default:
		return condition(kind, yes, reason.Agree, "")
	}
}

// SecretsGranted names a missing grant, or why Secrets cannot be listed, or what is wrong with the seal's Secret.
func SecretsGranted(missing, brokenSeal string) metav1.Condition {
	const kind = v1alpha1.ConditionSecretsGranted
	switch {
	case missing != "":
		return condition(kind, no, reason.GrantMissing, missing)
	case brokenSeal != "":
		return condition(kind, no, reason.InvalidSeal, brokenSeal)
	default:
		return condition(kind, yes, reason.Granted, "")
	}
}

// AllManaged reports which namespaces a policy does not manage, because more than most exist in one cluster only.
func AllManaged(left string, most int) metav1.Condition {
	if left == "" {
		return condition(v1alpha1.ConditionAllManaged, yes, reason.AllManaged, "")
	}
	return condition(v1alpha1.ConditionAllManaged, no, reason.TooManyNamespaces, fmt.Sprintf(
		"the selector matches namespaces that exist in one cluster only and are not managed: %s; "+
			"at most %d such namespaces are, those with a record first, then the oldest: create them in a second cluster, "+
			"name them in spec.namespaces.names, or narrow the selector", left, most))
}

// cut shortens a text to n bytes.
func cut(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }
