package explain

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/publish"
)

// planOf is the plan of a decision about some candidates.
func planOf(d election.Decision, cs ...decide.Candidate) decide.Plan {
	return decide.Plan{Decision: d, Candidates: cs}
}

// candidateOf is a candidate about which something was reported.
func candidateOf(detail string) decide.Candidate {
	return decide.Candidate{Detail: detail, Member: &member{}}
}

func TestStatus(t *testing.T) {
	v := shopView(eastLeads(19))
	east, west := candidateOf(""), candidateOf("it is ill")
	east.Name, east.Priority, east.Fitness, east.Reason = "east", 9, election.Fit, reason.Eligible
	east.Member.Readers = 3
	west.Name, west.Priority, west.Fitness, west.Reason = "west", 5, election.Unfit, reason.Unreachable
	s := Status(v, planOf(election.Decision{Record: eastLeads(20)}, west, east))
	if s.Message != "east leads in epoch 20" || s.ObservedPolicyGeneration != 7 {
		t.Errorf("message %q, by generation %d of the policy", s.Message, s.ObservedPolicyGeneration)
	}
	if want := []v1alpha1.Candidate{
		{Name: "east", Priority: 9, Eligible: true, Reason: reason.Eligible, Readers: 3},
		{Name: "west", Priority: 5, Reason: reason.Unreachable, Message: "it is ill"},
	}; !slices.Equal(s.Candidates, want) {
		t.Errorf("candidates, the best first: %+v", s.Candidates)
	}
	if len(s.Conditions) != 2 {
		t.Errorf("conditions: %+v", s.Conditions)
	}
	v.Object = &v1alpha1.NamespaceLeader{Status: s}
	v.Policy = nil
	if s := Status(v, planOf(election.Decision{Record: eastLeads(20)})); s.ObservedPolicyGeneration != 7 {
		t.Errorf("without a policy the generation of the last one is not named any more: %d", s.ObservedPolicyGeneration)
	}
}

// An error that names another port each time is no change, and must not be written each time.
func TestMessageStaysWhileAFickleReasonDoes(t *testing.T) {
	for name, test := range map[string]struct {
		now, was        reason.Reason
		cluster         string // that had the reason
		eligible, stays bool
	}{
		"what a member answered":      {reason.Unreachable, reason.Unreachable, "east", false, true},
		"what is measured":            {reason.ClockSkewed, reason.ClockSkewed, "east", false, true},
		"another reason":              {reason.Unreachable, reason.Recovering, "east", false, false},
		"another cluster":             {reason.Unreachable, reason.Unreachable, "west", false, false},
		"it was eligible":             {reason.ClockSkewed, reason.ClockSkewed, "east", true, false},
		"a reason that is not fickle": {reason.Paused, reason.Paused, "east", false, false},
	} {
		c := candidateOf("new")
		c.Name, c.Reason, c.Fitness = "east", test.now, election.Unfit
		old := map[string]v1alpha1.Candidate{
			"south":      {Name: "south", Reason: test.now, Message: "old"},
			test.cluster: {Name: test.cluster, Reason: test.was, Eligible: test.eligible, Message: "old"},
		}
		if got := statusOf(nil, &c, old); (got.Message == "old") != test.stays {
			t.Errorf("%s: %q", name, got.Message)
		}
	}
}

// Once a Lease of the term has stood, the term is ready, although a renewal is late.
func TestReady(t *testing.T) {
	here, away := func(m *member) { m.Sync.InPlace = true }, func(m *member) { m.Sync.InPlace = false }
	ending := eastLeads(20)
	ending.State, ending.Reason = election.Ending, reason.Unreachable
	for name, test := range map[string]struct {
		was, now   election.Record
		stood      bool
		explained  int64 // the epoch that the status explains; 0: no history
		east, west func(*member)
		want       bool
	}{
		"its Lease is written":          {eastLeads(20), eastLeads(20), false, 20, here, away, true},
		"only another Lease is written": {eastLeads(20), eastLeads(20), false, 20, away, here, false},
		"its Lease is late":             {eastLeads(20), eastLeads(20), true, 20, away, away, true},
		"an earlier term was ready":     {eastLeads(20), eastLeads(20), true, 19, away, away, false},
		"the history is lost":           {eastLeads(20), eastLeads(20), true, 0, away, away, false},
		"it is granted now":             {eastLeads(19), eastLeads(20), true, 20, here, away, false},
		"it resumes":                    {ending, eastLeads(20), true, 20, here, away, false},
		"it is replaced":                {eastLeads(20), ending, true, 20, here, away, false},
	} {
		v := shopView(test.was, measured("east", agrees, test.east), measured("west", agrees, test.west))
		was := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Elected"}
		if test.stood {
			was.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&v.Object.Status.Conditions, was)
		if test.explained > 0 {
			v.Object.Status.History = []v1alpha1.Change{{Epoch: test.explained}}
		}
		d := election.Decision{Record: test.now}
		if got := ready(v, planOf(d)); (got.Status == metav1.ConditionTrue) != test.want || got.Message != Describe(d) ||
			got.Type != v1alpha1.ConditionReady || got.Reason != string(test.now.Reason) {
			t.Errorf("%s: %+v, want it true: %v", name, got, test.want)
		}
	}
	elected := election.Decision{Record: eastLeads(20), Waiting: reason.Moved}
	for want, d := range map[reason.Reason]election.Decision{reason.Elected: elected, reason.NoCandidate: {},
		reason.Moved: {Waiting: reason.Moved}} {
		if got := ready(shopView(eastLeads(20)), planOf(d)); got.Reason != string(want) {
			t.Errorf("reason %s, want %s", got.Reason, want)
		}
	}
}

func TestLeasesInPlace(t *testing.T) {
	with := func(name string, r reason.Reason) member {
		is := publish.SyncStatus{Problem: r, Message: "text of " + string(r)}
		return measured(name, agrees, func(m *member) { m.Sync = is })
	}
	west, worse := with("west", ""), with("west", reason.Unwritable)
	for want, ms := range map[string][]member{
		"False ForeignLease east: text of ForeignLease":                     {with("east", reason.ForeignLease), west},
		"False WrongCluster east: text of WrongCluster":                     {with("east", reason.WrongCluster)},
		"False Forbidden east: text of Forbidden":                           {with("east", reason.Forbidden)},
		"False Unwritable east: text of OtherHub; west: text of Unwritable": {with("east", reason.OtherHub), worse},
		"True InPlace": {with("east", reason.Unreachable)},
	} {
		got := leasesInPlace(shopView(eastLeads(20), ms...))
		if brief(got) != want || got.Type != v1alpha1.ConditionLeasesInPlace {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

// A status goes on from the one before: what it said of a candidate whose reason stays, and what changed earlier.
func TestStatusContinuesTheOneBefore(t *testing.T) {
	west := candidateOf("no answer from port 2")
	west.Name, west.Fitness, west.Reason = "west", election.Unfit, reason.Unreachable
	v := shopView(eastLeads(22))
	v.Object.Status = v1alpha1.NamespaceLeaderStatus{
		Candidates: []v1alpha1.Candidate{{Name: "west", Reason: reason.Unreachable, Message: "no answer from port 1"}},
		History:    []v1alpha1.Change{{Leader: "east", Epoch: 19}},
	}
	v.Changes = []v1alpha1.Change{{Leader: "east", Epoch: 21}, {Leader: "west", Epoch: 20}}
	s := Status(v, planOf(election.Decision{Record: eastLeads(22)}, west))
	if got := s.Candidates[0].Message; got != "no answer from port 1" {
		t.Errorf("of west it says %q", got)
	}
	for i, want := range []int64{22, 21, 20, 19} {
		if len(s.History) != 4 || s.History[i].Epoch != want {
			t.Errorf("change %d of %+v is not of epoch %d", i, s.History, want)
		}
	}
}

// A person reads 32 candidates: the leader, and those that may lead beside those that may not.
func TestStatusShowsABoundedNumberOfCandidates(t *testing.T) {
	many := func(n int, eligible func(int) bool) (all []v1alpha1.Candidate) {
		for i := range n {
			all = append(all, v1alpha1.Candidate{Name: fmt.Sprint(i), Eligible: eligible(i)})
		}
		return all
	}
	all, most := many(100, func(i int) bool { return i >= 50 && i < 60 }), many(41, func(i int) bool { return i < 40 })
	for name, test := range map[string]struct {
		all    []v1alpha1.Candidate
		leader string
		want   []v1alpha1.Candidate
	}{
		"few":                   {all[:32], "99", all[:32]},
		"few may lead":          {all, "99", slices.Concat(all[:21], all[50:60], all[99:])},
		"most may lead":         {most, "0", slices.Concat(most[:31], most[40:])},
		"none may, nobody does": {all[:50], "", all[:32]},
	} {
		if got := ShownCandidates(test.all, test.leader); !slices.Equal(got, test.want) {
			t.Errorf("%s: shows %d: %+v", name, len(got), got)
		}
	}
	var cs []decide.Candidate
	for n := range 33 {
		c := candidateOf("")
		c.Name = fmt.Sprint(n)
		cs = append(cs, c)
	}
	s := Status(shopView(eastLeads(20)), planOf(election.Decision{Record: eastLeads(20)}, cs...))
	if len(s.Candidates) != 32 || s.OmittedCandidates != 1 {
		t.Errorf("of 33 it shows %d and omits %d", len(s.Candidates), s.OmittedCandidates)
	}
}

func TestFrozen(t *testing.T) {
	until := decidetest.Start.Wall.Add(time.Second)
	for want, p := range map[string]decide.Plan{
		"": {},
		"True Frozen frozen until 2026-01-01T00:00:01Z (an incident): the leader is renewed, and no other cluster is " +
			"chosen": {Frozen: true, Freeze: act.Act{Until: until, Reason: "an incident"}},
		"False InvalidFreeze in May": {Freeze: act.Act{Invalid: "in May"}},
	} {
		v := shopView(eastLeads(20), measured("east", agrees))
		v.Object.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFrozen, Status: metav1.ConditionTrue}}
		got := ""
		if c := meta.FindStatusCondition(Status(v, p).Conditions, v1alpha1.ConditionFrozen); c != nil {
			got = brief(*c)
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
