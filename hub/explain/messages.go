package explain

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/skew"
)

// messages explain the reasons that say the same of every candidate.
var messages = map[reason.Reason]string{
	reason.Gone:                 "the Cluster does not exist any more",
	reason.NoPriority:           "the Cluster has no label " + v1alpha1.PriorityLabel + ", so it takes no part",
	reason.NotSelected:          "the clusterSelector of the policy does not match the Cluster",
	reason.NamespaceMissing:     "the namespace does not exist there, or does not match the policy",
	reason.NamespaceTerminating: "the namespace is being deleted there",
	reason.Paused:               "the Cluster is paused: it keeps what it has, and is never newly chosen",
	reason.NeverReached:         "the hub has not reached the cluster yet",
	reason.Fenced: "an operator has declared that it is off: it leads nothing until the annotation " +
		v1alpha1.FencedAnnotation + " is gone",
}

// message explains why a candidate is what it is, and what to do.
func message(v *decide.Snapshot, c *decide.Candidate) string {
	m := c.Member
	if c.Detail != "" {
		return advise(c.Reason, c.Detail)
	}
	switch c.Reason {
	case reason.InvalidPriority:
		return invalidPriority(m.Labels[v1alpha1.PriorityLabel]) +
			"; until then it keeps what it leads, and is never newly chosen"
	case reason.ClockSkewed:
		return skewed(m.ClockVerdict, v.Policy.Election.Timings.Skew)
	case reason.Unguarded:
		return "the policy that protects the Leases is not in force: " + missingMessage(m.Unguarded)
	case reason.Unfenced:
		return "a fence that the policy asks for is not in force: " + missingMessage(m.Unfenced)
	case reason.InvalidFence:
		return invalidFence(m.Member)
	case reason.Drained:
		return fmt.Sprintf("it is drained %s: it gets no namespace, and goes on where no other cluster may lead", m.Drain)
	default:
		return messages[c.Reason]
	}
}

// invalidPriority explains what is wrong with a priority label.
func invalidPriority(label string) string {
	return fmt.Sprintf("the label %s is %q: set it to an integer from 0 to %d", v1alpha1.PriorityLabel, label,
		math.MaxInt32)
}

// skewed explains that a member's clock is off. Only a proof counts: a clock that was not measured closely enough
// is not held against its member.
func skewed(clock skew.Verdict, eps time.Duration) string {
	return fmt.Sprintf("%s, and maxClockSkewMilliseconds is %d: set that clock right (NTP or chrony on the machine), "+
		"or the hub's if no cluster agrees with it", clock, eps.Milliseconds())
}

// missingMessage explains why the guard or a fence is not in force. It leaves out the member's answer, which may differ
// each time.
func missingMessage(err error) string {
	if guard.DeniedIn(err) != nil {
		return err.Error()
	}
	for _, cause := range []error{guard.ErrForbidden, guard.ErrUnsupported, guard.ErrNotEnforced} {
		if errors.Is(err, cause) {
			return cause.Error()
		}
	}
	if apierrors.IsInvalid(err) {
		return "the cluster does not store a fence that the policy asks for: change the policy"
	}
	return guard.ErrUnchecked.Error()
}

// advise adds what to do to a message that states only the problem.
func advise(r reason.Reason, message string) string {
	if r != reason.Forbidden {
		return message
	}
	return message + "; grant the hub's user there the rules of config/member"
}

// Describe explains the record of a decision in words.
func Describe(d election.Decision) string {
	r, waiting := d.Record, d.Waiting
	successor, at := cmp.Or(r.Next, "nobody yet"), r.NotBefore.UTC().Format("15:04:05.000Z")
	switch {
	case r.State == election.Leading && r.UnfencedLeader != "":
		return fmt.Sprintf("%s leads in epoch %d; a fence was missing in %s, which led before: programs there may still act",
			r.Leader, r.Epoch, r.UnfencedLeader)
	case r.State == election.Leading:
		return fmt.Sprintf("%s leads in epoch %d", r.Leader, r.Epoch)
	case r.State == election.Ending:
		return describeEnding(r, waiting, successor, at)
	case r.State == election.Retired:
		return "no policy claims the namespace; the record stays until everything promised has passed"
	case waiting == reason.OtherHub:
		return "another hub writes the Leases, so this one decides nothing; see the condition LeasesInPlace"
	case waiting == reason.Moved:
		return "the record came from another hub; nobody is chosen before the Leases in all clusters are this hub's"
	case waiting == reason.WaitingForExpiry:
		return fmt.Sprintf("an earlier promise may still stand; next is %s, not before %s", successor, at)
	case r.Reason == reason.WaitingForClusters:
		return fmt.Sprintf("%s ranks higher and is not ready yet; if it does not become so in time, next is %s; see "+
			"candidates for the reasons", cmp.Or(d.Awaited, "another cluster"), successor)
	default:
		return "no cluster is eligible; see candidates for the reasons"
	}
}

func describeEnding(r election.Record, waiting reason.Reason, successor, at string) string {
	switch {
	case waiting == reason.Frozen:
		return fmt.Sprintf("%s cannot lead (%s), and the namespace is frozen: no other cluster is chosen", r.Leader, r.Reason)
	case waiting == reason.FailoverPending:
		return fmt.Sprintf("%s cannot lead (%s), and the policy leaves it to you to replace it; see the condition "+
			"FailoverPending", r.Leader, r.Reason)
	case waiting == reason.MostUnreachable:
		return fmt.Sprintf("%s is lost, but so are most clusters: nobody is chosen until one comes back", r.Leader)
	case r.Fence.UID != "" && !r.Fence.Voided:
		return fmt.Sprintf("%s counts as off (%s), and must stay off until %s; next is %s, without that wait", r.Leader,
			r.Reason, at, successor)
	case waiting == reason.WaitingForReaders:
		return fmt.Sprintf("%s was told to stop (%s); next is %s, as soon as all registered readers have stopped, or "+
			"else at %s", r.Leader, r.Reason, successor, at)
	default:
		return fmt.Sprintf("%s is being replaced (%s); next is %s, not before %s", r.Leader, r.Reason, successor, at)
	}
}

// Problem returns the problem that the owner of a Cluster should know and may have to fix.
func Problem(m fleet.Member) fleet.Problem {
	switch {
	case m.PriorityReason == reason.InvalidPriority:
		return fleet.Problem{Reason: m.PriorityReason, Message: invalidPriority(m.Labels[v1alpha1.PriorityLabel])}
	case m.Drain.Invalid != "":
		return fleet.Problem{Reason: reason.InvalidDrain, Message: m.Drain.Invalid}
	case m.Fenced != "" && !m.IsFenced():
		return fleet.Problem{Reason: reason.InvalidFence, Message: invalidFence(m)}
	case m.Problem.Reason == reason.NeverReached, m.Problem.Reason == reason.Deleting, m.Problem.Reason == reason.Gone:
		return fleet.Problem{} // no fault
	case m.Problem.Reason == "":
		if clock, eps := m.Skewed(); clock.State == skew.Beyond {
			return fleet.Problem{Reason: reason.ClockSkewed, Message: skewed(clock, eps)}
		}
		return fleet.Problem{}
	default:
		return fleet.Problem{Reason: m.Problem.Reason, Message: advise(m.Problem.Reason, m.Problem.Message)}
	}
}

// BrokenSeal explains what people have to repair before the seal can be used. It is empty if a retry may succeed.
func BrokenSeal(err error) string {
	switch {
	case errors.Is(err, seal.ErrBroken):
		return err.Error()
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return cut(err.Error(), 512) + ": the hub must be able to update this Secret: if it is immutable, delete it " +
			"while the hub runs, " +
			"which makes it again; else have the webhook or policy that refuses let the hub write it"
	default:
		return ""
	}
}

// StandsBack explains which hub serves a fleet, and how to have the other one serve it.
func StandsBack(fleetName, other, own string) string {
	return fmt.Sprintf("the hub in namespace %s serves the Clusters of this namespace, so the one in %s changes "+
		"nothing for them. "+
		"If the one in %s is to serve them: stop the other one for good; in every cluster run "+
		"kubectl delete leases -A -l %s; then run kubectl -n %s annotate secret %s %s-",
		other, own, own, v1alpha1.ManagedLabel, fleetName, seal.SecretName, v1alpha1.HubAnnotation)
}
