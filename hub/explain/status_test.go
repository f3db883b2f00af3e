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
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
)

var statusNow = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// candidateOf is a candidate about which something was reported.
func candidateOf(detail string) decide.Candidate {
	return decide.Candidate{Detail: detail, Member: &decide.Member{}}
}

func TestTheStatusSaysWhatWasDecided(t *testing.T) {
	v := shopView(eastLeads(19))
	east, west := candidateOf(""), candidateOf("it is ill")
	east.Name, east.Priority, east.Fitness, east.Reason = "east", 9, election.Fit, reason.Eligible
	west.Name, west.Priority, west.Fitness, west.Reason = "west", 5, election.Unfit, reason.Unreachable
	s := Status(v, decide.Plan{Decision: election.Decision{Record: eastLeads(20)},
		Candidates: []decide.Candidate{west, east}})
	if s.Message != "east leads in epoch 20" || s.ObservedPolicyGeneration != 7 {
		t.Errorf("message %q, by generation %d of the policy", s.Message, s.ObservedPolicyGeneration)
	}
	if want := []v1alpha1.Candidate{
		{Name: "east", Priority: 9, Eligible: true, Reason: reason.Eligible},
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

func TestWhatIsAChangeInTheHistory(t *testing.T) {
	first := eastLeads(20)
	first.Since = statusNow
	later := func(change func(*election.Record)) election.Record {
		r := eastLeads(20)
		r.Since = statusNow.Add(time.Second)
		change(&r)
		return r
	}
	for name, test := range map[string]struct {
		now  election.Record
		want bool
	}{
		"nothing":        {first, false},
		"another reason": {later(func(r *election.Record) { r.Reason = reason.Resumed }), false},
		"another leader": {later(func(r *election.Record) { r.Leader = "west" }), true},
		"another state":  {later(func(r *election.Record) { r.State = election.Draining }), true},
		"another epoch":  {later(func(r *election.Record) { r.Epoch = 21 }), true},
	} {
		t.Run(name, func(t *testing.T) {
			got := ledger.History(test.now, ledger.History(first, nil))
			if changed := len(got) == 2; changed != test.want {
				t.Fatalf("history %+v, want a change: %v", got, test.want)
			}
			want := v1alpha1.Change{
				Time: metav1.NewMicroTime(statusNow.Add(time.Second)), Leader: test.now.Leader, Epoch: test.now.Epoch,
				State: v1alpha1.RecordState(test.now.State), Reason: test.now.Reason,
			}
			if test.want && got[0] != want {
				t.Errorf("the newest change, which comes first, is %+v, want %+v", got[0], want)
			}
		})
	}
}

func TestTheHistoryKeepsTheNewestChanges(t *testing.T) {
	var past []v1alpha1.Change
	for epoch := int64(1); epoch <= v1alpha1.MaxHistory+3; epoch++ {
		past = ledger.History(eastLeads(epoch), past)
		if n := len(past); n != int(min(epoch, v1alpha1.MaxHistory)) || past[0].Epoch != epoch {
			t.Fatalf("after %d changes %d are kept, the newest of epoch %d", epoch, n, past[0].Epoch)
		}
	}
}

// An error that names another port each time is no news, and must not be written each time.
func TestWordsStayWhileAFickleReasonDoes(t *testing.T) {
	of := func(r reason.Reason, f election.Fitness, words string) decide.Candidate {
		c := candidateOf(words)
		c.Name, c.Reason, c.Fitness = "east", r, f
		return c
	}
	old := func(name string, r reason.Reason, eligible bool) map[string]v1alpha1.Candidate {
		return map[string]v1alpha1.Candidate{
			"south": {Name: "south", Reason: r, Eligible: eligible, Message: "of another"}, name: {
				Name: name, Reason: r, Eligible: eligible, Message: "old",
			},
		}
	}
	for _, r := range []reason.Reason{reason.Unreachable, reason.Recovering, reason.NeverReached, reason.Forbidden,
		reason.ClockSkewed} {
		if got := statusOf(nil, new(of(r, election.Unfit, "new")), old("east", r, false)); got.Message != "old" {
			t.Errorf("%s: %q", r, got.Message)
		}
	}
	for name, test := range map[string]struct {
		is  decide.Candidate
		was map[string]v1alpha1.Candidate
	}{
		"another reason":             {of(reason.Unreachable, election.Unfit, "new"), old("east", reason.Recovering, false)},
		"another cluster":            {of(reason.Unreachable, election.Unfit, "new"), old("west", reason.Unreachable, false)},
		"another verdict":            {of(reason.ClockSkewed, election.Unfit, "new"), old("east", reason.ClockSkewed, true)},
		"a reason that is no excuse": {of(reason.Paused, election.RetainOnly, "new"), old("east", reason.Paused, false)},
		"nothing was said before":    {of(reason.Unreachable, election.Unfit, "new"), nil},
	} {
		if got := statusOf(nil, &test.is, test.was); got.Message != "new" {
			t.Errorf("%s: %q", name, got.Message)
		}
	}
}

func TestWordsAreCutToWhatTheRecordTakes(t *testing.T) {
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
	if got := statusOf(nil, &c, nil); len(got.Message) != 1024 {
		t.Errorf("a message of %d bytes", len(got.Message))
	}
	m := changed(measured("east", agrees), func(m *decide.Member) {
		m.Sync = publish.SyncStatus{Problem: reason.Unwritable, Message: long}
	})
	if got := leasesInPlace(shopView(eastLeads(20), m)); len(got.Message) != 1024 {
		t.Errorf("a condition of %d bytes", len(got.Message))
	}
}

// Once a Lease of the term has stood, the term is ready: a renewal that is late is no news.
func TestWhenALeaderIsReady(t *testing.T) {
	placed := func(name string, in bool) decide.Member {
		return changed(measured(name, agrees), func(m *decide.Member) { m.Sync.InPlace = in })
	}
	draining := eastLeads(20)
	draining.State, draining.Reason = election.Draining, reason.Unreachable
	for name, test := range map[string]struct {
		was, now  election.Record
		stood     bool
		explained int64 // the epoch that the status speaks of
		members   []decide.Member
		want      bool
	}{
		"its Lease is written": {
			eastLeads(20), eastLeads(20), false, 20, []decide.Member{placed("east", true), placed("west", false)}, true,
		},
		"its Lease is not written yet": {
			eastLeads(20), eastLeads(20), false, 20, []decide.Member{placed("east", false)}, false,
		},
		"only the Lease of another is": {
			eastLeads(20), eastLeads(20), false, 20, []decide.Member{placed("east", false), placed("west", true)}, false,
		},
		"its Lease is late": {
			eastLeads(20), eastLeads(20), true, 20, []decide.Member{placed("east", false)}, true,
		},
		"it was ready in an earlier term": {
			eastLeads(20), eastLeads(20), true, 19, []decide.Member{placed("east", false)}, false,
		},
		"it is granted now": {
			eastLeads(19), eastLeads(20), true, 20, []decide.Member{placed("east", true)}, false,
		},
		"it resumes: nobody may act before that": {
			draining, eastLeads(20), true, 20, []decide.Member{placed("east", true)}, false,
		},
		"it is being replaced": {
			eastLeads(20), draining, true, 20, []decide.Member{placed("east", true)}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := shopView(test.was, test.members...)
			v.Object = &v1alpha1.NamespaceLeader{}
			status := metav1.ConditionFalse
			if test.stood {
				status = metav1.ConditionTrue
			}
			meta.SetStatusCondition(&v.Object.Status.Conditions,
				metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: "Elected"})
			v.Object.Status.History = []v1alpha1.Change{{Epoch: test.explained}}
			got := ready(v, planOf(election.Decision{Record: test.now}))
			if (got.Status == metav1.ConditionTrue) != test.want || got.Type != v1alpha1.ConditionReady ||
				got.Reason != string(test.now.Reason) || got.Message != Describe(election.Decision{Record: test.now}) {
				t.Errorf("%+v, want it true: %v", got, test.want)
			}
		})
	}
	v := shopView(eastLeads(20), placed("east", false))
	if got := ready(v, planOf(election.Decision{Record: eastLeads(20)})); got.Status != metav1.ConditionFalse {
		t.Errorf("a record that is new: %+v", got)
	}
	v.Object = &v1alpha1.NamespaceLeader{}
	v.Object.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	if got := ready(v, planOf(election.Decision{Record: eastLeads(20)})); got.Status != metav1.ConditionFalse {
		t.Errorf("a status that was ready and has lost its history: %+v", got)
	}
	for want, d := range map[reason.Reason]election.Decision{
		reason.Moved: {Waiting: reason.Moved}, reason.NoCandidate: {}, reason.Elected: {
			Record: eastLeads(20), Waiting: reason.Moved,
		},
	} {
		if got := ready(v, planOf(d)); got.Reason != string(want) {
			t.Errorf("reason %s, want %s", got.Reason, want)
		}
	}
}

func TestWhichLeasesAreNotInPlace(t *testing.T) {
	with := func(name string, r reason.Reason) decide.Member {
		return changed(measured(name, agrees), func(m *decide.Member) {
			m.Sync = publish.SyncStatus{Problem: r, Message: fmt.Sprintf("the words of %s", r)}
		})
	}
	for _, r := range []reason.Reason{reason.ForeignLease, reason.OtherHub, reason.WrongCluster, reason.Forbidden,
		reason.Unwritable} {
		got := leasesInPlace(shopView(eastLeads(20), with("east", r), with("west", "")))
		want := metav1.Condition{
			Type: v1alpha1.ConditionLeasesInPlace, Status: metav1.ConditionFalse, Reason: string(r),
			Message: "east: the words of " + string(r),
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	got := leasesInPlace(shopView(eastLeads(20), with("east", reason.OtherHub), with("west", reason.Unwritable)))
	if got.Message != "east: the words of OtherHub; west: the words of Unwritable" {
		t.Errorf("two: %q", got.Message)
	}
	if got := leasesInPlace(shopView(eastLeads(20),
		with("east", reason.Unreachable))); got.Status != metav1.ConditionTrue || got.Reason != "InPlace" ||
		got.Type != v1alpha1.ConditionLeasesInPlace {
		t.Errorf("one that cannot be reached is told of elsewhere: %+v", got)
	}
}

func TestTheStatusShowsHowManyReadersAreRegistered(t *testing.T) {
	for name, test := range map[string]struct {
		registered int
		want       int32
	}{
		"as many as there are":      {3, 3},
		"or as many as a field has": {math.MaxInt, math.MaxInt32},
	} {
		c := candidateOf("")
		c.Name, c.Member.Readers = "east", test.registered
		if got := statusOf(nil, &c, nil); got.Readers != test.want {
			t.Errorf("%s: %d readers are shown, want %d", name, got.Readers, test.want)
		}
	}
}

// A status goes on from the one before: what it said of a candidate whose reason stays, and what changed earlier.
func TestAStatusGoesOnFromTheOneBefore(t *testing.T) {
	west := candidateOf("no answer from port 2")
	west.Name, west.Fitness, west.Reason = "west", election.Unfit, reason.Unreachable
	v := shopView(eastLeads(22))
	v.Object = &v1alpha1.NamespaceLeader{}
	v.Object.Status = v1alpha1.NamespaceLeaderStatus{
		Candidates: []v1alpha1.Candidate{{Name: "west", Reason: reason.Unreachable, Message: "no answer from port 1"}},
		History:    []v1alpha1.Change{{Leader: "east", Epoch: 19}},
	}
	v.Changes = []v1alpha1.Change{{Leader: "east", Epoch: 21}, {Leader: "west", Epoch: 20}}
	s := Status(v, decide.Plan{Decision: election.Decision{Record: eastLeads(22)}, Candidates: []decide.Candidate{west}})
	if got := s.Candidates[0].Message; got != "no answer from port 1" {
		t.Errorf("of west it says %q", got)
	}
	var epochs []int64
	for _, change := range s.History {
		epochs = append(epochs, change.Epoch)
	}
	if want := []int64{22, 21, 20, 19}; !slices.Equal(epochs, want) {
		t.Errorf("the changes, newest first, are of epochs %v, want %v", epochs, want)
	}
}

// A status that is too large is refused, and then explains nothing.
func TestStatusCountsTheCandidatesThatItOmits(t *testing.T) {
	var cs []decide.Candidate
	for n := range 1000 {
		c := candidateOf(strings.Repeat("x", 1024))
		c.Name, c.Fitness = fmt.Sprintf("c%d", n), election.Unfit
		cs = append(cs, c)
	}
	for _, all := range []int{3, 32, 33, 1000} {
		s := Status(shopView(eastLeads(20)), decide.Plan{Decision: election.Decision{Record: eastLeads(20)},
			Candidates: cs[:all]})
		if len(s.Candidates) != min(all, 32) || int(s.OmittedCandidates) != max(0, all-32) {
			t.Errorf("of %d it shows %d and omits %d", all, len(s.Candidates), s.OmittedCandidates)
		}
	}
}

func TestStatusShowsTheLeaderThenThoseThatMayLead(t *testing.T) {
	var all []v1alpha1.Candidate
	for n := range 100 {
		all = append(all, v1alpha1.Candidate{Name: fmt.Sprint(n), Eligible: n >= 50 && n < 60})
	}
	got := ShownCandidates(all, "99")
	var want []v1alpha1.Candidate // the first of those that may not lead fill up
	want = append(append(append(want, all[:21]...), all[50:60]...), all[99])
	if !slices.Equal(got, want) {
		t.Errorf("shows %d: %+v", len(got), got)
	}
	if got := ShownCandidates(all[:32], "0"); len(got) != 32 {
		t.Errorf("of 32 it shows %d", len(got))
	}
}
