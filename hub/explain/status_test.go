package explain

import (
	"fmt"
	"math"
	"slices"
	"strings"
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
		"unreachable":                 {reason.Unreachable, reason.Unreachable, "east", false, true},
		"recovering":                  {reason.Recovering, reason.Recovering, "east", false, true},
		"never reached":               {reason.NeverReached, reason.NeverReached, "east", false, true},
		"forbidden":                   {reason.Forbidden, reason.Forbidden, "east", false, true},
		"a skewed clock":              {reason.ClockSkewed, reason.ClockSkewed, "east", false, true},
		"another reason":              {reason.Unreachable, reason.Recovering, "east", false, false},
		"another cluster":             {reason.Unreachable, reason.Unreachable, "west", false, false},
		"it was eligible":             {reason.ClockSkewed, reason.ClockSkewed, "east", true, false},
		"a reason that is not fickle": {reason.Paused, reason.Paused, "east", false, false},
		"there was no reason before":  {reason.Unreachable, "", "east", false, false},
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

func TestTextsAreCutToWhatTheRecordTakes(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"shorter":                           {"abc", "abc"},
		"as long":                           {"abcd", "abcd"},
		"longer":                            {"abcde", "abcd"},
		"in the middle of what is one sign": {"abcé", "abc"},
	} {
		if got := cut(test.in, 4); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	long := strings.Repeat("x", 2000)
	c := candidateOf(long)
	c.Member.Readers = math.MaxInt
	if got := statusOf(nil, &c, nil); len(got.Message) != 1024 || got.Readers != math.MaxInt32 {
		t.Errorf("a message of %d bytes, %d readers", len(got.Message), got.Readers)
	}
}

// Once a Lease of the term has stood, the term is ready, although a renewal is late.
func TestReady(t *testing.T) {
	here, away := func(m *member) { m.Sync.InPlace = true }, func(m *member) { m.Sync.InPlace = false }
	draining := eastLeads(20)
	draining.State, draining.Reason = election.Draining, reason.Unreachable
	for name, test := range map[string]struct {
		was, now   election.Record
		stood      bool
		explained  int64 // the epoch that the status explains; 0: no history
		east, west func(*member)
		want       bool
	}{
		"its Lease is written":          {eastLeads(20), eastLeads(20), false, 20, here, away, true},
		"its Lease is not written yet":  {eastLeads(20), eastLeads(20), false, 20, away, away, false},
		"only another Lease is written": {eastLeads(20), eastLeads(20), false, 20, away, here, false},
		"its Lease is late":             {eastLeads(20), eastLeads(20), true, 20, away, away, true},
		"an earlier term was ready":     {eastLeads(20), eastLeads(20), true, 19, away, away, false},
		"the history is lost":           {eastLeads(20), eastLeads(20), true, 0, away, away, false},
		"it is granted now":             {eastLeads(19), eastLeads(20), true, 20, here, away, false},
		"it resumes":                    {draining, eastLeads(20), true, 20, here, away, false},
		"it is replaced":                {eastLeads(20), draining, true, 20, here, away, false},
	} {
		v := shopView(test.was, measured("east", agrees, test.east), measured("west", agrees, test.west))
		v.Object = &v1alpha1.NamespaceLeader{}
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
	v := shopView(eastLeads(20), measured("east", agrees, away))
	if got := ready(v, planOf(election.Decision{Record: eastLeads(20)})); got.Status != metav1.ConditionFalse {
		t.Errorf("a new record: %+v", got)
	}
	elected := election.Decision{Record: eastLeads(20), Waiting: reason.Moved}
	for want, d := range map[reason.Reason]election.Decision{reason.Elected: elected, reason.NoCandidate: {},
		reason.Moved: {Waiting: reason.Moved}} {
		if got := ready(v, planOf(d)); got.Reason != string(want) {
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
		"False OtherHub east: text of OtherHub":                             {with("east", reason.OtherHub)},
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
	v.Object = &v1alpha1.NamespaceLeader{}
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

// A status that is too large is refused, and then explains nothing.
func TestStatusCountsOmittedCandidates(t *testing.T) {
	var cs []decide.Candidate
	for n := range 1000 {
		c := candidateOf(strings.Repeat("x", 1024))
		c.Name, c.Fitness = fmt.Sprintf("c%d", n), election.Unfit
		cs = append(cs, c)
	}
	for _, all := range []int{3, 32, 33, 1000} {
		s := Status(shopView(eastLeads(20)), planOf(election.Decision{Record: eastLeads(20)}, cs[:all]...))
		if len(s.Candidates) != min(all, 32) || int(s.OmittedCandidates) != max(0, all-32) {
			t.Errorf("of %d it shows %d and omits %d", all, len(s.Candidates), s.OmittedCandidates)
		}
	}
}

func TestStatusShowsTheLeaderThenEligibleCandidates(t *testing.T) {
	var all []v1alpha1.Candidate
	for n := range 100 {
		all = append(all, v1alpha1.Candidate{Name: fmt.Sprint(n), Eligible: n >= 50 && n < 60})
	}
	got := ShownCandidates(all, "99")
	want := slices.Concat(all[:21], all[50:60], all[99:]) // the first of those that may not lead fill up
	if !slices.Equal(got, want) {
		t.Errorf("shows %d: %+v", len(got), got)
	}
}

func TestStatusShowsACandidateWithAProblemAmongManyEligibleOnes(t *testing.T) {
	var all []v1alpha1.Candidate
	for n := range 40 {
		all = append(all, v1alpha1.Candidate{Name: fmt.Sprint(n), Eligible: true, Reason: reason.Eligible})
	}
	all = append(all, v1alpha1.Candidate{Name: "lost", Reason: reason.Unreachable})
	got := ShownCandidates(all, "0")
	want := slices.Concat(all[:31], all[40:]) // what the problems leave free, eligible ones get
	if !slices.Equal(got, want) {
		t.Errorf("shows %d: %+v", len(got), got)
	}
}

// The order of the policy comes first, then that of the record. One without effect is shown where none counts.
func TestFrozen(t *testing.T) {
	at := func(text string) map[string]string {
		return map[string]string{v1alpha1.FrozenUntilAnnotation: text, v1alpha1.FrozenReasonAnnotation: "an incident"}
	}
	const soon, later, past = "2026-01-01T00:00:01Z", "2026-01-01T01:00:00Z", "2026-01-01T00:00:00Z"
	const frozen = "True Frozen frozen until " + soon +
		" (an incident): the leader is renewed, and no other cluster is chosen"
	const invalid = "False InvalidFreeze the annotation leasecast.dev/frozen-until is \"in May\": " +
		"set it to an instant like 2026-01-31T18:00:00Z"
	for name, test := range map[string]struct {
		policy, record string // until when; empty: no order
		want           string // the condition, or empty
		after          time.Duration
	}{
		"nothing is frozen":                     {"", "", "", 0},
		"the policy is":                         {soon, "", frozen, time.Second},
		"the record is":                         {"", soon, frozen, time.Second},
		"both are: the policy's is shown":       {soon, later, frozen, time.Second},
		"the policy was, the record is":         {past, soon, frozen, time.Second},
		"it was":                                {past, "", "", 0},
		"the policy's order cannot be read":     {"in May", "", invalid, 0},
		"the record's order cannot be read":     {"", "in May", invalid, 0},
		"the policy's cannot, the record's can": {"in May", soon, frozen, time.Second},
		"the record's cannot, the policy's can": {soon, "in May", frozen, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			v := shopView(eastLeads(20), measured("east", agrees))
			v.Object = &v1alpha1.NamespaceLeader{}
			v.Object.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFrozen, Status: metav1.ConditionTrue}}
			if test.policy != "" {
				v.Policy.Freeze = act.Freeze(at(test.policy))
			}
			if test.record != "" {
				v.Object.Annotations = at(test.record)
			}
			p := v.Decide(decidetest.Start, election.Sent{}, false)
			got := ""
			if c := meta.FindStatusCondition(Status(v, p).Conditions, v1alpha1.ConditionFrozen); c != nil {
				got = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
			}
			if got != test.want || p.Health != test.after {
				t.Errorf("%q, again after %v; want %q, %v", got, p.Health, test.want, test.after)
			}
		})
	}
}
