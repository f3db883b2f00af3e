package decide

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/skew"
)

// Candidate is a member as a candidate. Detail is what was reported about its Reason, or empty.
type Candidate struct {
	election.Candidate
	Member *Member
	Detail string
}

// candidates returns the members that take part. It includes the leader of a policy that takes no part any more.
// after is when one of them may change by time alone, or zero.
func (v *Snapshot) candidates(now time.Time) (cs []Candidate, after time.Duration) {
	hubInDoubt, move := HubClockInDoubt(v.Members), v.Move()
	cs = make([]Candidate, 0, len(v.Members))
	for i := range v.Members {
		m := &v.Members[i]
		c := Candidate{Member: m}
		c.Name, c.Priority, c.Ordered = m.Name, m.Priority, m.Name == move.To
		if c.Answering = m.Verdict.Answering; m.IsFenced() {
			c.Fenced, c.Answered = m.UID, m.Answered
		}
		c.Unfenced = fenceOf(m.UnfencedByLease)
		if !m.TakesPart {
			if m.Name == v.State.Record.Leader && v.Policy != nil {
				c.Fitness = election.Unfit
				c.Reason = takesNoPart(m.Member)
				cs = append(cs, c)
			}
			continue
		}
		v.Policy.place(&c, v.Key.Name)
		c.Fitness, c.Reason, c.Detail = v.fitness(m, now)
		if c.Reason == reason.ClockSkewed && hubInDoubt {
			c.Fitness = election.RetainOnly
		}
		if m.PriorityReason == reason.InvalidPriority {
			c.keepWithoutPriority(v.State.Record.Observed)
		}
		if c.Drained = m.Drain.In(now); c.Drained {
			c.drain()
			after = election.Soonest(after, m.Drain.Until.Sub(now))
		}
		c.Required = m.required()
		c.Refused = m.Sync.Refused && m.Sync.MinRenewTime.Equal(v.State.Record.Since)
		c.Prepared = m.Sync.InPlace && m.Sync.MinRenewTime.Equal(v.State.Record.Since)
		cs = append(cs, c)
		after = election.Soonest(after, m.Verdict.Next)
	}
	return cs, after
}

// drain shows a candidate as drained, unless it must not lead at all.
func (c *Candidate) drain() {
	if c.Fitness == election.Fit || c.Fitness == election.RetainOnly {
		c.Reason, c.Detail = reason.Drained, ""
	}
}

// fenceOf converts the error of fences of locks and schedules.
func fenceOf(err error) election.Fence {
	switch {
	case err == nil:
		return election.FenceInForce
	case errors.Is(err, guard.ErrUnchecked):
		return election.FenceUnchecked
	default:
		return election.FenceMissing
	}
}

// takesNoPart returns why a member takes no part under the policy.
func takesNoPart(m fleet.Member) reason.Reason {
	switch {
	case m.Gone:
		return reason.Gone
	case m.PriorityReason == reason.NoPriority:
		return reason.NoPriority
	default:
		return reason.NotSelected
	}
}

// keepWithoutPriority judges a candidate whose priority cannot be parsed. A typing error costs no leadership: the
// candidate keeps what it has, with the priority that counted last, but is never newly chosen. A reason for which it
// must not lead at all takes precedence.
func (c *Candidate) keepWithoutPriority(counted map[string]int32) {
	c.Priority = max(0, counted[c.Name])
	if c.Fitness == election.Unfit {
		return
	}
	if c.Fitness == election.Fit {
		c.Fitness = election.RetainOnly
	}
	c.Reason, c.Detail = reason.InvalidPriority, ""
}

// fitness judges one member that takes part, so that there is a policy; the first rule that applies decides. Reasons
// that exclude a member permanently come first, then missing knowledge, then reasons that may pass.
func (v *Snapshot) fitness(m *Member, now time.Time) (election.Fitness, reason.Reason, string) {
	switch p := m.Problem; {
	case m.IsFenced():
		return election.Unfit, reason.Fenced, ""
	case excludes(p.Reason):
		return election.Unfit, p.Reason, p.Message
	case !m.Connected || m.Publisher == nil || !m.IsRead || m.Verdict.State == health.Unknown:
		return unknown(m)
	case m.Verdict.State == health.Unhealthy:
		return election.Unfit, m.Verdict.Reason, m.Verdict.Message
	case m.Namespace == nil || !v.Policy.Matches(v.Key.Name, m.Namespace.Labels):
		return election.Unfit, reason.NamespaceMissing, ""
	case m.Namespace.Status.Phase == corev1.NamespaceTerminating || !m.Namespace.DeletionTimestamp.IsZero():
		return election.Unfit, reason.NamespaceTerminating, ""
	}
	switch f := m.Sync; {
	case m.ClockVerdict.State == skew.Beyond:
		return election.Unfit, reason.ClockSkewed, ""
	case f.Problem == reason.ForeignLease, f.Problem == reason.OtherHub, f.Problem == reason.WrongCluster,
		f.Problem == reason.Forbidden, f.Problem == reason.Unwritable:
		return election.Unfit, f.Problem, f.Message
	}
	if why := m.onlyRetains(); why != "" {
		return election.RetainOnly, why, ""
	}
	if v.failing(m, now) {
		return election.Unfit, m.Sync.Failing, "the last Lease could not be written: " + m.Sync.Failure
	}
	why, message := m.eligible()
	return election.Fit, why, message
}

// eligible returns the reason and message of a member that may lead. Of a member with too many objects, only the first
// ones are known. An order that cannot be read has no effect.
func (m *Member) eligible() (reason.Reason, string) {
	if m.Problem.Reason == reason.TooManyObjects {
		return m.Problem.Reason, m.Problem.Message
	}
	if m.Drain.Invalid != "" {
		return reason.InvalidDrain, m.Drain.Invalid
	}
	if m.Fenced != "" {
		return reason.InvalidFence, ""
	}
	switch m.required() {
	case election.RequiredUnhealthy:
		return reason.RequiredUnhealthy, m.Required.Unhealthy
	case election.RequiredUnknown:
		return reason.RequiredUnknown, m.Required.Err.Error()
	default:
		return reason.Eligible, ""
	}
}

// onlyRetains returns why a member keeps what it has but is never newly chosen, or "".
func (m *Member) onlyRetains() reason.Reason {
	switch {
	case m.ClockVerdict.State == skew.Suspected:
		return reason.ClockSkewed
	case m.Unguarded != nil:
		return reason.Unguarded
	case m.Unfenced != nil:
		return reason.Unfenced
	case m.Paused:
		return reason.Paused
	default:
		return ""
	}
}

// failing reports whether a member cannot be written, although it may answer other requests: a term there would
// never begin. Its syncer keeps trying, and a leader's syncer does so as long as its term lasts. A leader that is
// being replaced is not tried, so only the reason of its replacement counts against it. Where nobody else may follow,
// not even that does: another term shows it. Nothing is tried where there never was a leader: there the first term
// shows it.
func (v *Snapshot) failing(m *Member, now time.Time) bool {
	r := v.State.Record
	switch {
	case m.Sync.Failing == "", r.Epoch == 0:
		return false
	case m.Name != r.Leader:
		return true
	case v.Policy.Election.ManualFailover, v.Policy.freezeOf(v.Object, now).In(now):
		return false
	}
	switch r.Reason {
	case reason.LeaseLost, reason.Forbidden, reason.Unwritable:
		return r.State != election.Leading
	default:
		return false
	}
}

// excludes reports whether a problem makes a member no candidate. Other problems only explain why it is not
// connected, or warn.
func excludes(r reason.Reason) bool {
	switch r {
	case reason.NameTooLong, reason.WrongCluster, reason.DuplicateCluster, reason.Deleting:
		return true
	default:
		return false
	}
}

// unknown returns why the state of a member is unknown.
func unknown(m *Member) (election.Fitness, reason.Reason, string) {
	if m.Problem.Reason != "" {
		return election.Unknown, m.Problem.Reason, m.Problem.Message
	}
	if m.Verdict.Reason != "" {
		return election.Unknown, m.Verdict.Reason, m.Verdict.Message
	}
	return election.Unknown, reason.NeverReached, ""
}

// place sets what the policy prefers for a namespace, beside priorities.
func (p *Policy) place(c *Candidate, namespace string) {
	if p.Overrides[namespace] == c.Name {
		c.Priority = math.MaxInt32
	}
	if p.Spread {
		c.Weight = Weight(namespace, c.Member.UID)
	}
}

// Weight spreads namespaces over clusters by rendezvous hashing (Thaler and Ravishankar, 1998): each namespace goes to
// the cluster with the highest weight. A cluster that goes leaves what it led to all others, and moves nothing else.
func Weight(namespace, cluster string) uint64 {
	sum := sha256.Sum256([]byte(namespace + "/" + cluster))
	return binary.BigEndian.Uint64(sum[:])
}

// failRequired marks the candidates in which something required has been unhealthy for so long. It returns when time
// alone changes what is known of one of them, or zero.
func (p *Plan) failRequired(now, after time.Duration) (next time.Duration) {
	for i := range p.Candidates {
		c := &p.Candidates[i]
		if since, fit := p.FitSince[c.Name]; fit {
			next = election.Soonest(next, after-(now-since))
		}
		if c.Required != election.RequiredUnhealthy {
			continue
		}
		if rest := after - (now - p.UnhealthySince[c.Name]); rest > 0 {
			next = election.Soonest(next, rest)
		} else {
			c.Required = election.RequiredFailed
		}
	}
	return next
}

// elected returns the part of the candidates that decisions rest on.
func elected(cs []Candidate) []election.Candidate {
	out := make([]election.Candidate, len(cs))
	for i := range cs {
		out[i] = cs[i].Candidate
	}
	return out
}

// Case is what a decision rests on: all that election.Next takes.
type Case struct {
	Namespace string
	// Patience is how long a cluster may be silent before it counts as unreachable.
	Patience   time.Duration
	Now        lease.Reading
	Policy     *election.Policy
	State      election.State
	Candidates []election.Candidate
}

// Next decides the case.
func (c Case) Next() election.Decision { return election.Next(c.Now, c.Policy, c.State, c.Candidates) }

// Plan is what a decision makes of a Snapshot.
type Plan struct {
	election.Decision
	Case       Case
	Candidates []Candidate
	// Health is when a candidate may change, or a freeze ends, by time alone, or zero.
	Health time.Duration
	// Freeze and Move are what people have ordered for the namespace, and Frozen is whether the freeze counts.
	Freeze act.Act
	Frozen bool
	Move   act.Move
	// Refused: the cluster that Move names may not lead, and no change is under way.
	Refused bool
	// AbleSince, FitSince and UnhealthySince are what the next decision has to remember; see package election.
	AbleSince, FitSince, UnhealthySince map[string]time.Duration
}

// Move returns what people have ordered for the namespace. An order in a record of another hub is that hub's.
func (v *Snapshot) Move() act.Move {
	if v.Object == nil || v.Moved {
		return act.Move{}
	}
	return act.MoveOf(v.Object.Annotations)
}

// freezeOf returns the order that freezes a namespace under the policy, or else one that has no effect. Both policy and
// record may be nil.
func (p *Policy) freezeOf(record *v1alpha1.NamespaceLeader, now time.Time) (freeze act.Act) {
	if p != nil {
		freeze = p.Freeze.At(now)
	}
	if record == nil || freeze.In(now) {
		return freeze
	}
	if own := act.Freeze(record.Annotations).At(now); own.In(now) || own.Invalid != "" {
		return own
	}
	return freeze
}

// Decides reports whether this hub decides who leads: a policy claims the namespace, and no other hub has it.
func (v *Snapshot) Decides(p Plan) bool {
	return v.Policy != nil && p.Waiting != reason.OtherHub && p.Waiting != reason.Moved
}

// IsCurrent reports whether the record of a plan is no older than the Leases that were read, and the leader's is one of
// them, or its cluster has not answered in time.
func (v *Snapshot) IsCurrent(p Plan) bool {
	return p.Record.Epoch >= v.State.Highest && (!v.State.LeaderUnread || !p.Unanswered)
}

// Order returns the words of the operator who ordered the change that a plan begins, or what was not healthy, or "".
func (p Plan) Order() string {
	for _, c := range p.Candidates {
		switch {
		case p.Record.Reason == reason.Drained && c.Name == p.Record.Leader:
			return c.Member.Drain.Reason
		case p.Record.Reason == reason.RequiredUnhealthy && c.Name == p.Record.Leader:
			return act.Cut(c.Member.Required.Unhealthy)
		case p.Record.Reason == reason.Ordered && c.Ordered:
			return p.Move.Reason
		}
	}
	return ""
}

// Decide calls the election. sent is what this tenure has promised. paced: no planned change may begin. If the plan
// says StopRenewing, all renewals must stop before anything is decided: stop them, and decide again with what was
// sent until then.
func (v *Snapshot) Decide(now lease.Reading, sent election.Sent, paced bool) (p Plan) {
	var policy *election.Policy
	if v.Policy != nil {
		policy = &v.Policy.Election
	}
	state := v.State
	p.Candidates, p.Health = v.candidates(now.Wall)
	p.Freeze = v.Policy.freezeOf(v.Object, now.Wall)
	if p.Frozen = p.Freeze.In(now.Wall); p.Frozen {
		p.Health = election.Soonest(p.Health, p.Freeze.Until.Sub(now.Wall))
	}
	p.Move = v.Move()
	requires := policy != nil && v.Policy.Requires != nil
	p.AbleSince = election.AbleSince(now, v.AbleSince, elected(p.Candidates))
	if requires || policy != nil && policy.Failback > 0 {
		p.FitSince = election.FitSince(now, v.FitSince, elected(p.Candidates))
	}
	if requires {
		p.UnhealthySince = election.UnhealthySince(now, v.UnhealthySince, elected(p.Candidates))
		p.Health = election.Soonest(p.Health, p.failRequired(now.Boot, policy.UnhealthyAfter))
	}
	state.Sent, state.Paced, state.Frozen = sent, paced, p.Frozen
	state.AbleSince, state.FitSince = p.AbleSince, p.FitSince
	p.Case = Case{Namespace: v.Key.Name, Now: now, Policy: policy, State: state, Candidates: elected(p.Candidates)}
	if v.Policy != nil {
		p.Case.Patience = v.Policy.Thresholds.UnreachableAfter
	}
	p.Decision = p.Case.Next()
	if policy != nil && p.Move.To != "" {
		p.Health = election.Soonest(p.Health, time.Second) // candidates have a bounded time to become ready
		p.Refused = election.RefusesOrder(now, *policy, state, p.Decision, p.Case.Candidates)
	}
	return p
}
