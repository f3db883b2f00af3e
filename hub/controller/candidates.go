package controller

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/skew"
	"github.com/leasecast/leasecast/hub/worker"
)

// candidate is a member as a candidate, with messages for people.
type candidate struct {
	election.Candidate
	message string
	hint    string
	readers int
}

// candidates returns the members that take part. It includes the leader of a policy that takes no part any more.
// after is when the health of one of them may change by time alone, or zero.
func (v *view) candidates() (cs []candidate, after time.Duration) {
	hubInDoubt := hubClockInDoubt(v.members)
	for i := range v.members {
		m := &v.members[i]
		c := candidate{hint: m.Hint, readers: m.readers}
		c.Name, c.Priority = m.Name, m.Priority
		if !m.takesPart {
			if m.Name == v.state.Record.Leader && v.policy != nil {
				c.Fitness = election.Unfit
				c.Reason, c.message = takesNoPart(m.Member)
				cs = append(cs, c)
			}
			continue
		}
		c.Fitness, c.Reason, c.message = v.fitness(m)
		if c.Reason == reason.ClockSkewed && hubInDoubt {
			c.Fitness = election.RetainOnly
		}
		c.message = advise(c.Reason, c.message)
		if m.PriorityReason == reason.InvalidPriority {
			c.illegible(m.Labels[v1alpha1.PriorityLabel], v.state.Record.Observed)
		}
		c.Answering, c.Unfenced = m.verdict.Answering, fenceOf(m.byLease)
		c.Refused = m.facts.Refused && m.facts.MinRenewTime.Equal(v.state.Record.Since)
		c.Prepared = m.facts.InPlace && m.facts.MinRenewTime.Equal(v.state.Record.Since)
		cs = append(cs, c)
		if n := m.verdict.Next; n > 0 && (after == 0 || n < after) {
			after = n
		}
	}
	return cs, after
}

// fenceOf converts the error of fences of locks and schedules.
func fenceOf(err error) election.Fence {
	switch {
	case err == nil:
		return election.FenceInForce
	case errors.Is(err, worker.ErrUnchecked):
		return election.FenceUnchecked
	default:
		return election.FenceMissing
	}
}

// takesNoPart returns why a member takes no part under the policy.
func takesNoPart(m fleet.Member) (reason.Reason, string) {
	switch {
	case m.Gone:
		return reason.Gone, "the Cluster does not exist any more"
	case m.PriorityReason == reason.NoPriority:
		return reason.NoPriority, "the Cluster has no label " + v1alpha1.PriorityLabel + ", so it takes no part"
	default:
		return reason.NotSelected, "the clusterSelector of the policy does not match the Cluster"
	}
}

// illegible judges a candidate whose priority cannot be parsed. A typing error costs no leadership: the candidate
// keeps what it has, with the priority that counted last, but is never newly chosen. A reason for which it must not
// lead at all takes precedence.
func (c *candidate) illegible(label string, counted map[string]int32) {
	c.Priority = counted[c.Name]
	if c.Fitness == election.Unfit {
		return
	}
	if c.Fitness == election.Fit {
		c.Fitness = election.RetainOnly
	}
	c.Reason = reason.InvalidPriority
	c.message = invalidPriority(label) + "; until then it keeps what it leads, and is never newly chosen"
}

// invalidPriority explains what is wrong with a priority label.
func invalidPriority(label string) string {
	return fmt.Sprintf("the label %s is %q: set it to an integer from 0 to %d", v1alpha1.PriorityLabel, label, math.MaxInt32)
}

// fitness judges one member; the first rule that applies decides. Reasons that exclude a member permanently come
// first, then missing knowledge, then reasons that may pass.
func (v *view) fitness(m *memberView) (election.Fitness, reason.Reason, string) {
	switch p := m.Problem; {
	case excludes(p.Reason):
		return election.Unfit, p.Reason, p.Message
	case m.Deleting:
		return election.Unfit, reason.Deleting, "the Cluster is being deleted"
	case !m.Connected || m.publisher == nil || !m.isRead || m.verdict.State == health.Unknown:
		return unknown(m)
	case m.verdict.State == health.Unhealthy:
		return election.Unfit, m.verdict.Reason, m.verdict.Message
	case m.namespace == nil || v.policy == nil || !v.policy.matches(v.key.Name, m.namespace.Labels):
		return election.Unfit, reason.NamespaceMissing, "the namespace does not exist there, or does not match the policy"
	case m.namespace.Status.Phase == corev1.NamespaceTerminating || !m.namespace.DeletionTimestamp.IsZero():
		return election.Unfit, reason.NamespaceTerminating, "the namespace is going away there"
	}
	switch f := m.facts; {
	case m.clock.State == skew.Beyond:
		return election.Unfit, reason.ClockSkewed, skewed(m.clock, v.policy.election.Timings.Skew)
	case f.Problem == reason.ForeignLease, f.Problem == reason.OtherHub, f.Problem == reason.WrongCluster,
		f.Problem == reason.Forbidden, f.Problem == reason.Unwritable:
		return election.Unfit, f.Problem, f.Message
	}
	if why, message := m.onlyRetains(); why != "" {
		return election.RetainOnly, why, message
	}
	if v.failing(m) {
		return election.Unfit, m.facts.Failing, "the last Lease could not be written: " + m.facts.Failure
	}
	why, message := m.eligible()
	return election.Fit, why, message
}

// onlyRetains returns why a member keeps what it has but is never newly chosen, or "".
func (m *memberView) onlyRetains() (reason.Reason, string) {
	switch {
	case m.unguarded != nil:
		return reason.Unguarded, unguardedMessage(m.unguarded)
	case m.unfenced != nil:
		return reason.Unfenced, unfencedMessage(m.unfenced)
	case m.Paused:
		return reason.Paused, "the Cluster is paused: it keeps what it has, and is never newly chosen"
	default:
		return "", ""
	}
}

// eligible returns the reason and message of a member that may lead. A member whose watches do not last is listed
// instead. Of a member with too many objects, only the first ones are known.
func (m *memberView) eligible() (reason.Reason, string) {
	if m.Problem.Reason == reason.Unwatched || m.Problem.Reason == reason.TooManyObjects {
		return m.Problem.Reason, m.Problem.Message
	}
	return reason.Eligible, ""
}

// failing reports whether a member cannot be written, although it may answer other requests: a term there would
// never begin. Its syncer keeps trying, and a leader's syncer does so as long as its term lasts. A leader that is
// being replaced is not tried, so only the reason of its replacement counts against it. Nothing is tried where
// there never was a leader: there the first term shows it.
func (v *view) failing(m *memberView) bool {
	r := v.state.Record
	switch {
	case m.facts.Failing == "", r.Epoch == 0:
		return false
	case m.Name != r.Leader:
		return true
	}
	switch r.Reason {
	case reason.LeaseLost, reason.Forbidden, reason.Unwritable:
		return r.State != election.Leading
	default:
		return false
	}
}

// hubClockInDoubt reports whether a member's clock is off, and no member's clock is proved to agree with the hub's. Then
// the hub's own clock may be the one that is off. The members keep what they lead, but a hub with such a clock promises
// nothing new.
func hubClockInDoubt(ms []memberView) bool {
	has := func(state skew.State) bool {
		return slices.ContainsFunc(ms, func(m memberView) bool { return m.takesPart && m.clock.State == state })
	}
	return has(skew.Beyond) && !has(skew.Within)
}

// skewed explains that a member's clock is off. Only a proof counts: a clock that was not measured closely enough
// is not held against its member.
func skewed(clock skew.Verdict, eps time.Duration) string {
	return fmt.Sprintf("%s, and maxClockSkewMilliseconds is %d: set that clock right (NTP or chrony on the machine), "+
		"or the hub's if no cluster agrees with it", clock, eps.Milliseconds())
}

// excludes reports whether a problem makes a member no candidate. Other problems only explain why it is not
// connected, or warn.
func excludes(r reason.Reason) bool {
	switch r {
	case reason.NameTooLong, reason.WrongCluster, reason.DuplicateCluster, reason.SendsTooMuch, reason.Deleting, reason.Gone:
		return true
	default:
		return false
	}
}

// unknown returns why the state of a member is unknown.
func unknown(m *memberView) (election.Fitness, reason.Reason, string) {
	if m.Problem.Reason != "" {
		return election.Unknown, m.Problem.Reason, m.Problem.Message
	}
	if m.verdict.Reason != "" {
		return election.Unknown, m.verdict.Reason, m.verdict.Message
	}
	return election.Unknown, reason.NeverReached, "the hub has not reached the cluster yet"
}

func unguardedMessage(err error) string {
	switch {
	case errors.Is(err, guard.ErrForbidden):
		return "the cluster does not let the hub install the policy that protects the Leases: apply config/member there"
	case errors.Is(err, guard.ErrUnsupported):
		return "the cluster knows no ValidatingAdmissionPolicies, so nothing can protect the Leases: it needs Kubernetes 1.30 or later"
	case errors.Is(err, guard.ErrNotEnforced):
		return "the policy that protects the Leases does not refuse yet what it must"
	default:
		return "the policy that protects the Leases has not been checked yet"
	}
}

func unfencedMessage(err error) string {
	switch {
	case guard.DeniedIn(err) != nil:
		return err.Error()
	case errors.Is(err, guard.ErrForbidden):
		return "the cluster does not let the hub install the fences that the policy asks for: apply config/fencing there, or see who refuses it"
	case apierrors.IsInvalid(err):
		return "the cluster does not store a fence that the policy asks for: change the policy"
	case errors.Is(err, guard.ErrUnsupported):
		return "the cluster knows no ValidatingAdmissionPolicies, so nothing can be fenced: it needs Kubernetes 1.30 or later"
	case errors.Is(err, guard.ErrNotEnforced):
		return "a fence that the policy asks for does not refuse yet what it must"
	default:
		return "a fence that the policy asks for has not been checked yet"
	}
}

// advise adds what to do to a message that states only the problem.
func advise(r reason.Reason, message string) string {
	if r != reason.Forbidden {
		return message
	}
	return message + "; grant the hub's user there the rules of config/member"
}

// elected returns the part of the candidates that decisions rest on.
func elected(cs []candidate) []election.Candidate {
	out := make([]election.Candidate, len(cs))
	for i := range cs {
		out[i] = cs[i].Candidate
	}
	return out
}

// describe explains the record of a decision in words.
func describe(d election.Decision) string {
	r, waiting := d.Record, d.Waiting
	successor := r.Next
	if successor == "" {
		successor = "nobody yet"
	}
	switch r.State {
	case election.Leading:
		words := fmt.Sprintf("%s leads in epoch %d", r.Leader, r.Epoch)
		if r.UnfencedLeader != "" {
			words += fmt.Sprintf("; a fence was missing in %s, which led before: programs there may still act", r.UnfencedLeader)
		}
		return words
	case election.Draining:
		if waiting == reason.MostUnreachable {
			return fmt.Sprintf("%s is lost, but so are most clusters: nobody is chosen until one comes back", r.Leader)
		}
		if waiting == reason.WaitingForReaders {
			return fmt.Sprintf("%s was told to stop (%s); next is %s, as soon as all registered readers have stopped, or else at %s",
				r.Leader, r.Reason, successor, r.NotBefore.UTC().Format("15:04:05.000Z"))
		}
		return fmt.Sprintf("%s is being replaced (%s); next is %s, not before %s",
			r.Leader, r.Reason, successor, r.NotBefore.UTC().Format("15:04:05.000Z"))
	case election.Retired:
		return "no policy claims the namespace; the record stays until everything promised has passed"
	}
	switch waiting {
	case reason.OtherHub:
		return "another hub writes the Leases, so this one decides nothing; see the condition LeasesInPlace"
	case reason.Moved:
		return "the record came from another hub; nobody is chosen before the Leases in all clusters are this hub's"
	}
	switch r.Reason {
	case reason.WaitingForExpiry:
		return fmt.Sprintf("an earlier promise may still stand; next is %s, not before %s", successor, r.NotBefore.UTC().Format("15:04:05.000Z"))
	case reason.WaitingForClusters:
		return fmt.Sprintf("%s ranks higher and is not ready yet; if it does not become so in time, next is %s; see candidates for the reasons",
			cmp.Or(d.Awaited, "another cluster"), successor)
	default:
		return "no cluster is eligible; see candidates for the reasons"
	}
}
