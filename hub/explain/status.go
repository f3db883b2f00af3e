package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/ledger"
)

// Status returns the status that explains a plan, once it is persisted.
func Status(v *decide.Snapshot, p decide.Plan) v1alpha1.NamespaceLeaderStatus {
	var s v1alpha1.NamespaceLeaderStatus
	v.Object.Status.DeepCopyInto(&s)
	// They are maps, because a tenant may have made hundreds.
	earlier, named := map[string]v1alpha1.Candidate{}, map[string]*decide.Candidate{}
	for _, o := range s.Candidates {
		earlier[o.Name] = o
	}
	ranked := make([]election.Candidate, len(p.Candidates))
	for i := range p.Candidates {
		c := &p.Candidates[i]
		ranked[i], named[c.Name] = c.Candidate, c
	}
	election.Rank(ranked)
	s.Candidates = make([]v1alpha1.Candidate, 0, len(ranked))
	for _, r := range ranked {
		s.Candidates = append(s.Candidates, statusOf(v, named[r.Name], earlier))
	}
	s.Decisions = decisions(p.Record)
	some := ShownCandidates(s.Candidates, p.Record.Leader)
	s.Candidates, s.OmittedCandidates = some, int32(min(len(s.Candidates)-len(some), math.MaxInt32))
	if v.Policy != nil {
		s.ObservedPolicyGeneration = v.Policy.Object.Generation
	}
	for _, is := range slices.Backward(v.Changes) {
		s.History = ledger.Newest(is, s.History)
	}
	s.History = ledger.History(p.Record, s.History)
	isReady := ready(v, p)
	s.Message = isReady.Message
	meta.SetStatusCondition(&s.Conditions, isReady)
	meta.SetStatusCondition(&s.Conditions, leasesInPlace(v))
	setFrozen(&s.Conditions, p)
	setFailoverPending(&s.Conditions, v, p)
	return s
}

// decisions has the leader, for other controllers. The API server refuses null for a list.
func decisions(r election.Record) []v1alpha1.ClusterDecision {
	if r.State != election.Leading {
		return []v1alpha1.ClusterDecision{}
	}
	return []v1alpha1.ClusterDecision{{ClusterName: r.Leader, Reason: r.Reason}}
}

// setFrozen sets or removes the condition that people have frozen who leads.
func setFrozen(conditions *[]metav1.Condition, p decide.Plan) {
	const kind = v1alpha1.ConditionFrozen
	switch {
	case p.Frozen:
		meta.SetStatusCondition(conditions, condition(kind, yes, reason.Frozen,
			fmt.Sprintf("frozen %s: the leader is renewed, and no other cluster is chosen", p.Freeze)))
	case p.Freeze.Invalid != "":
		meta.SetStatusCondition(conditions, condition(kind, no, reason.InvalidFreeze, p.Freeze.Invalid))
	default:
		meta.RemoveStatusCondition(conditions, kind)
	}
}

// statusOf returns a candidate as the status shows it. While a fickle reason stays, its message stays too: an error
// that names another port each time is no change.
func statusOf(v *decide.Snapshot, c *decide.Candidate, earlier map[string]v1alpha1.Candidate) v1alpha1.Candidate {
	out := v1alpha1.Candidate{
		Name: c.Name, Priority: c.Priority, Eligible: c.Fitness == election.Fit && !c.Drained,
		Reason: c.Reason, Message: cut(message(v, c), 1024),
		Readers: int32(min(c.Member.Readers, math.MaxInt32)),
	}
	if o := earlier[out.Name]; o.Reason == out.Reason && o.Eligible == out.Eligible && fickle(o.Reason) {
		out.Message = o.Message
	}
	return out
}

// fickle reports whether a reason's message comes from what a member answered, or did not, or from what is measured
// all the time.
func fickle(r reason.Reason) bool {
	switch r {
	case reason.Unreachable, reason.Recovering, reason.NeverReached, reason.Forbidden, reason.ClockSkewed,
		reason.RequiredUnknown:
		return true
	default:
		return false
	}
}

// ready returns the condition that a leader is granted and its Lease was written. Once True it stays True for the
// term, also when a renewal is late.
func ready(v *decide.Snapshot, p decide.Plan) metav1.Condition {
	c := condition(v1alpha1.ConditionReady, no, cmp.Or(p.Record.Reason, p.Waiting, reason.NoCandidate),
		Describe(p.Decision))
	if p.Record.State != election.Leading || v.State.Record.State != election.Leading ||
		v.State.Record.Epoch != p.Record.Epoch {
		return c
	}
	written := slices.ContainsFunc(v.Members, func(m decide.Member) bool {
		return m.Name == p.Record.Leader && m.Sync.InPlace
	})
	stood := meta.IsStatusConditionTrue(v.Object.Status.Conditions, v1alpha1.ConditionReady) &&
		len(v.Object.Status.History) > 0 && v.Object.Status.History[0].Epoch == p.Record.Epoch
	if written || stood {
		c.Status = yes
	}
	return c
}

// leasesInPlace names the members whose Leases cannot be made what they should be. The candidates show which
// members cannot be reached.
func leasesInPlace(v *decide.Snapshot) metav1.Condition {
	var in []string
	why := reason.Reason("")
	for _, m := range v.Members {
		switch p := m.Sync.Problem; p {
		case reason.ForeignLease, reason.OtherHub, reason.WrongCluster, reason.Forbidden, reason.Unwritable:
			in = append(in, fmt.Sprintf("%s: %s", m.Name, m.Sync.Message))
			why = p
		}
	}
	if len(in) == 0 {
		return condition(v1alpha1.ConditionLeasesInPlace, yes, reason.InPlace, "")
	}
	return condition(v1alpha1.ConditionLeasesInPlace, no, why, strings.Join(in, "; "))
}

// ShownCandidates returns the candidates that a status shows, in their order, as many as a person reads. It has the
// leader. Those that may lead get half of the other places before those that may not: a problem must be seen.
func ShownCandidates(all []v1alpha1.Candidate, leader string) (some []v1alpha1.Candidate) {
	left, shown := v1alpha1.MaxCandidates, make([]bool, len(all))
	show := func(most int, matches func(v1alpha1.Candidate) bool) {
		for i, c := range all {
			if most > 0 && !shown[i] && matches(c) {
				shown[i] = true
				most--
				left--
			}
		}
	}
	show(left, func(c v1alpha1.Candidate) bool { return c.Name == leader })
	show(left/2, func(c v1alpha1.Candidate) bool { return c.Eligible })
	show(left, func(c v1alpha1.Candidate) bool { return !c.Eligible })
	show(left, func(v1alpha1.Candidate) bool { return true })
	for i, c := range all {
		if shown[i] {
			some = append(some, c)
		}
	}
	return some
}
