package controller

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
	"github.com/leasecast/leasecast/hub/election"
)

// statusOf returns the status that explains a decision. v still holds the record from before the decision.
// unexplained are the changes since the status was last written, newest first.
func (v *view) statusOf(d election.Decision, cs []candidate, unexplained []v1alpha1.Change) v1alpha1.NamespaceLeaderStatus {
	var s v1alpha1.NamespaceLeaderStatus
	if v.object != nil {
		v.object.Status.DeepCopyInto(&s)
	}
	old, named := map[string]v1alpha1.Candidate{}, map[string]candidate{} // maps, because a tenant may have made hundreds
	for _, o := range s.Candidates {
		old[o.Name] = o
	}
	for _, c := range cs {
		named[c.Name] = c
	}
	ranked := elected(cs)
	election.Rank(ranked)
	s.Candidates = make([]v1alpha1.Candidate, 0, len(ranked))
	for _, r := range ranked {
		s.Candidates = append(s.Candidates, shown(named[r.Name], old))
	}
	s.Message = describe(d)
	some := showable(s.Candidates, d.Record.Leader)
	s.Candidates, s.OmittedCandidates = some, int32(min(len(s.Candidates)-len(some), math.MaxInt32))
	if v.policy != nil {
		s.ObservedPolicyGeneration = v.policy.object.Generation
	}
	for _, is := range slices.Backward(unexplained) {
		s.History = newest(is, s.History)
	}
	s.History = history(d.Record, s.History)
	meta.SetStatusCondition(&s.Conditions, ready(v, d))
	meta.SetStatusCondition(&s.Conditions, leasesInPlace(v))
	return s
}

// history puts a record before the past changes.
func history(r election.Record, past []v1alpha1.Change) []v1alpha1.Change {
	is := v1alpha1.Change{Leader: r.Leader, Epoch: r.Epoch, State: v1alpha1.RecordState(r.State), Reason: r.Reason}
	if since := microTime(r.Since); since != nil {
		is.Time = *since
	}
	return newest(is, past)
}

// newest puts a change before the past ones, unless it has the leader, epoch and state of the last one.
func newest(is v1alpha1.Change, past []v1alpha1.Change) []v1alpha1.Change {
	if len(past) > 0 && past[0].Leader == is.Leader && past[0].Epoch == is.Epoch && past[0].State == is.State {
		return past
	}
	past = slices.Insert(past, 0, is)
	return past[:min(len(past), v1alpha1.MaxHistory)]
}

// shown returns a candidate as the status shows it. While a fickle reason stays, its message stays too: an error
// that names another port each time is no change.
func shown(c candidate, old map[string]v1alpha1.Candidate) v1alpha1.Candidate {
	out := v1alpha1.Candidate{
		Name: c.Name, Priority: c.Priority, Eligible: c.Fitness == election.Fit,
		Reason: c.Reason, Message: cut(c.message, 1024), Hint: cut(c.hint, 256),
		Readers: int32(min(c.readers, math.MaxInt32)),
	}
	if o := old[out.Name]; o.Reason == out.Reason && o.Eligible == out.Eligible && fickle(o.Reason) {
		out.Message = o.Message
	}
	return out
}

// fickle reports whether a reason's message comes from what a member answered, or did not, or from what is measured
// all the time.
func fickle(r reason.Reason) bool {
	switch r {
	case reason.Unreachable, reason.Recovering, reason.NeverReached, reason.Forbidden, reason.ClockSkewed:
		return true
	default:
		return false
	}
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// ready returns the condition that a leader is granted and its Lease was written. Once True it stays True for the
// term, also when a renewal is late.
func ready(v *view, d election.Decision) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: string(cmp.Or(d.Record.Reason, d.Waiting, reason.NoCandidate)), Message: describe(d)}
	if d.Record.State != election.Leading {
		return c
	}
	written := false
	for _, m := range v.members {
		written = written || m.Name == d.Record.Leader && m.facts.InPlace
	}
	sameTerm := v.state.Record.State == election.Leading && v.state.Record.Epoch == d.Record.Epoch
	stood := v.object != nil && meta.IsStatusConditionTrue(v.object.Status.Conditions, v1alpha1.ConditionReady) &&
		len(v.object.Status.History) > 0 && v.object.Status.History[0].Epoch == d.Record.Epoch
	if sameTerm && (written || stood) {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// leasesInPlace names the members whose Leases cannot be made what they should be. The candidates show which
// members cannot be reached.
func leasesInPlace(v *view) metav1.Condition {
	var in []string
	why := reason.Reason("")
	for _, m := range v.members {
		switch p := m.facts.Problem; p {
		case reason.ForeignLease, reason.OtherHub, reason.WrongCluster, reason.Forbidden, reason.Unwritable:
			in = append(in, fmt.Sprintf("%s: %s", m.Name, m.facts.Message))
			why = p
		}
	}
	if len(in) == 0 {
		return metav1.Condition{Type: v1alpha1.ConditionLeasesInPlace, Status: metav1.ConditionTrue, Reason: "InPlace"}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionLeasesInPlace, Status: metav1.ConditionFalse,
		Reason: string(why), Message: cut(strings.Join(in, "; "), 1024),
	}
}
