package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/skew"
)

var (
	agrees   = skew.Verdict{State: skew.Within}
	vague    = skew.Verdict{}
	twoAhead = skew.Verdict{State: skew.Beyond, Offset: skew.Interval{Lo: 1990 * time.Millisecond, Hi: 2010 * time.Millisecond}}
)

// measured is a member that nothing is wrong with but, perhaps, its clocks.
func measured(name string, clock skew.Verdict) memberView {
	return memberView{
		Member:    fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}, Connected: true},
		takesPart: true, isRead: true, publisher: &publish.Publisher{},
		namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		verdict:   health.Verdict{State: health.Healthy, Answering: true},
		clock:     clock,
	}
}

func changed(m memberView, change func(*memberView)) memberView {
	change(&m)
	return m
}

func TestClocksDecideWhoMayLead(t *testing.T) {
	for name, tc := range map[string]struct {
		members []memberView
		want    election.Fitness // of the first
		why     reason.Reason
	}{
		"a clock that agrees":              {[]memberView{measured("east", agrees), measured("west", agrees)}, election.Fit, reason.Eligible},
		"what is not known harms nobody":   {[]memberView{measured("east", vague), measured("west", agrees)}, election.Fit, reason.Eligible},
		"a clock that is off":              {[]memberView{measured("east", twoAhead), measured("west", agrees)}, election.Unfit, reason.ClockSkewed},
		"most clocks are off, but not all": {[]memberView{measured("east", twoAhead), measured("west", twoAhead), measured("south", agrees)}, election.Unfit, reason.ClockSkewed},
		"all clocks are off: the hub's is": {[]memberView{measured("east", twoAhead), measured("west", twoAhead)}, election.RetainOnly, reason.ClockSkewed},
		"no other cluster is measured closely enough to agree with the hub": {
			[]memberView{measured("east", twoAhead), measured("west", vague), measured("south", vague)}, election.RetainOnly, reason.ClockSkewed},
		"the only cluster": {[]memberView{measured("east", twoAhead)}, election.RetainOnly, reason.ClockSkewed},
		"one that takes no part does not count": {[]memberView{measured("east", twoAhead), changed(measured("west", agrees), func(m *memberView) { m.takesPart = false })},
			election.RetainOnly, reason.ClockSkewed},
		"silence is the graver word": {[]memberView{changed(measured("east", twoAhead), func(m *memberView) {
			m.verdict = health.Verdict{State: health.Unhealthy, Reason: reason.Unreachable}
		}), measured("west", agrees)}, election.Unfit, reason.Unreachable},
		"a clock that is off is graver than a pause": {[]memberView{changed(measured("east", twoAhead), func(m *memberView) { m.Paused = true }), measured("west", agrees)},
			election.Unfit, reason.ClockSkewed},
	} {
		t.Run(name, func(t *testing.T) {
			v := &view{
				key: types.NamespacedName{Namespace: "fleet", Name: "shop"}, members: tc.members,
				policy: &policy{names: map[string]bool{"shop": true}, election: election.Policy{Timings: lease.Timings{Skew: time.Second}}},
			}
			cs, _ := v.candidates()
			if got := cs[0]; got.Fitness != tc.want || got.Reason != tc.why {
				t.Errorf("fitness %v, reason %s (%s); want %v, %s", got.Fitness, got.Reason, got.message, tc.want, tc.why)
			} else if got.Reason == reason.ClockSkewed && !strings.Contains(got.message, "the API server's clock is 1.99s to 2.01s ahead of the hub's, and maxClockSkewMilliseconds is 1000") {
				t.Errorf("message %q", got.message)
			}
		})
	}
}

// lateClocks sees members whose clocks are behind.
type lateClocks struct {
	memberSource
	behind map[string]time.Duration
}

func (lateClocks) health(fleet.Member, health.Thresholds) health.Verdict { return health.Verdict{} }

func (s lateClocks) clock(_ lease.Reading, m fleet.Member, _ time.Duration) skew.Verdict {
	d := s.behind[m.Name]
	return skew.Verdict{State: skew.Beyond, Offset: skew.Interval{Lo: -d, Hi: -d}}
}

func TestTheBoundWaitsForTheLeadersClockOnly(t *testing.T) {
	c := &Controller{source: lateClocks{behind: map[string]time.Duration{"east": 2 * time.Second, "west": 9 * time.Second}}}
	v := &view{policy: &policy{}, members: []memberView{measured("east", vague), measured("west", vague)}}
	v.state.Record.Leader = "east"
	for i := range v.members {
		c.addHealth(v, &v.members[i], lease.Reading{})
	}
	if got := v.state.Behind; got != 2*time.Second {
		t.Errorf("waits for %v, want the 2s of east", got)
	}
}

func TestThePolicySaysWhoseClockIsOff(t *testing.T) {
	for name, tc := range map[string]struct {
		members []memberView
		want    metav1.ConditionStatus
		words   string
	}{
		"nobody's":        {[]memberView{measured("east", agrees), measured("west", agrees)}, metav1.ConditionTrue, ""},
		"nobody is there": {nil, metav1.ConditionTrue, ""},
		"not measured":    {[]memberView{measured("east", agrees), measured("west", vague)}, metav1.ConditionUnknown, "not measured closely enough yet: west"},
		"one's":           {[]memberView{measured("east", twoAhead), measured("west", vague)}, metav1.ConditionFalse, "maxClockSkewMilliseconds in east;"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := clocksAgree(tc.members); got.Status != tc.want || !strings.Contains(got.Message, tc.words) {
				t.Errorf("%+v, want %s, %q", got, tc.want, tc.words)
			}
		})
	}
}
