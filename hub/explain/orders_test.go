package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/worker"
)

func unreached(m *member) {
	m.Verdict = health.Verdict{State: health.Unhealthy, Reason: "Unreachable", Message: "no answer", Since: lease.Reading{
		Wall: time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC),
	}}
}

func TestHowAnOrderEnds(t *testing.T) {
	for name, test := range map[string]struct {
		to   string
		ms   []member
		want string // empty: it goes on
	}{
		"there is no order":    {"", []member{measured("east", agrees)}, ""},
		"the leader was named": {"east", []member{measured("east", agrees)}, "Normal Ordered east leads, as ordered"},
		"another one may lead": {"west", []member{measured("east", agrees), measured("west", agrees)}, ""},
		"nobody has that name": {"west", []member{measured("east", agrees)}, "(no Cluster of that name takes part)"},
		"that one is not reached": {"west", []member{measured("west", agrees, unreached), measured("east", agrees)},
			"Warning OrderRefused the order to move to west is refused (Unreachable: no answer): order it again when that " +
				"is mended"},
	} {
		v := shopView(eastLeads(20), test.ms...)
		v.Policy.Election.LeaseName = "leasecast"
		v.Object.Annotations = map[string]string{v1alpha1.MoveToAnnotation: test.to}
		p := v.Decide(decidetest.Start, election.Sent{Final: true}, false)
		e, ended := OrderEnd(v, p)
		got := strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Kind, e.Reason, e.Message))
		if ended != (test.want != "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: ended %t: %q, want %q", name, ended, got, test.want)
		}
	}
}

// leftToYou ends the message of the condition FailoverPending.
const leftToYou = ", and the policy leaves it to you to replace it: kubectl annotate nsleader -n fleet shop " +
	"leasecast.dev/move-to=west"

func TestFailoverPending(t *testing.T) {
	const lost = "True Unreachable the leader east cannot go on (Unreachable since 2026-03-01T12:00:00Z)" + leftToYou
	const stood = "True Unreachable as it was"
	reached := func(m *member) { m.Verdict.Since = lease.Reading{Wall: decidetest.Start.Wall.Add(-24 * time.Hour)} }
	sick := func(m *member) { m.Required.Unhealthy = "a Deployment is not Available" }
	silent := func(m *member) { m.Verdict = health.Verdict{} }
	ended := func(why reason.Reason) func(*decide.Snapshot) {
		return func(v *decide.Snapshot) {
			r := &v.State.Record
			r.State, r.Reason, r.Next = election.Ending, why, "west"
		}
	}
	automatic := func(v *decide.Snapshot) { v.Policy.Election.ManualFailover = false }
	starts := func(v *decide.Snapshot) {
		v.Policy.Election.Timings.Duration, v.State.Tenure.Started = 15*time.Second, decidetest.Start
	}
	stands := func(v *decide.Snapshot) {
		v.Object.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionFailoverPending, Status: yes, Reason: "Unreachable", Message: "as it was",
		}}
	}
	east, west := measured("east", agrees, reached), measured("west", agrees, reached)
	gone, starting := measured("east", agrees, unreached), []member{measured("east", agrees, silent), west}
	type changes []func(*decide.Snapshot)
	for name, test := range map[string]struct {
		changes changes
		ms      []member
		want    string
	}{
		"the leader is lost":                          {nil, []member{gone, west}, lost},
		"the leader is lost, and the hub replaces it": {changes{automatic}, []member{gone, west}, ""},
		"the leader is lost, and nobody could follow": {nil, []member{gone}, ""},
		"the leader is fit again":                     {changes{stands}, []member{east, west}, ""},
		"the leader's clock is off, and it goes on": {nil, []member{measured("east", twoAhead, reached), west},
			"True ClockSkewed the leader east should be replaced (ClockSkewed)" + leftToYou},
		"what is required is not healthy, and it goes on": {nil,
			[]member{measured("east", agrees, reached, sick), west},
			"True RequiredUnhealthy the leader east should be replaced (RequiredUnhealthy)" + leftToYou},
		"the leader's clock is off, and its term has ended": {changes{ended(reason.Unreachable)},
			[]member{measured("east", twoAhead, reached), west},
			"True ClockSkewed the leader east cannot go on (ClockSkewed)" + leftToYou},
		"the hub starts, and the leader was lost": {changes{starts, stands}, starting, stood},
		"the hub started a minute ago, and nobody could follow": {changes{starts, stands, func(v *decide.Snapshot) {
			v.State.Tenure.Started.Boot -= time.Minute
		}}, starting[:1], ""},
		"the hub starts, and is to replace it": {changes{starts, stands, automatic}, starting, ""},
		"the hub starts, and a move is under way": {changes{starts, stands, ended(reason.Ordered)},
			starting, ""},
	} {
		v := shopView(eastLeads(20), test.ms...)
		v.Policy.Election.ManualFailover, v.Policy.Election.LeaseName = true, "leasecast"
		v.Policy.Requires, v.Policy.Election.UnhealthyAfter = &worker.Requires{Reader: true}, 30*time.Second
		v.UnhealthySince, v.FitSince = map[string]time.Duration{"east": 0}, map[string]time.Duration{"west": 0}
		for _, change := range test.changes {
			change(v)
		}
		p := v.Decide(decidetest.Start, election.Sent{Final: true}, false)
		got := ""
		if c := meta.FindStatusCondition(Status(v, p).Conditions, v1alpha1.ConditionFailoverPending); c != nil {
			got = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestOrdersWarning(t *testing.T) {
	p := &decide.Policy{Object: &v1alpha1.LeadershipPolicy{}}
	p.Object.Spec.Overrides = []v1alpha1.Override{
		{Namespace: "shop", Cluster: "east"}, {Namespace: "cart", Cluster: "west"},
	}
	p.Rebalance = act.Rebalance(map[string]string{v1alpha1.RebalanceAtAnnotation: "soon"})
	const want = "; overrides name Clusters that take no part, for cart (west); " +
		"the annotation leasecast.dev/rebalance-at is \"soon\": set it to an instant like 2026-01-31T18:00:00Z"
	if got := OrdersWarning(p, []member{measured("east", agrees)}, decidetest.Start.Wall); got != want {
		t.Errorf("%q", got)
	}
	both := []member{measured("east", agrees), measured("west", agrees)}
	p.Rebalance = act.Act{}
	if got := OrdersWarning(p, both, decidetest.Start.Wall); got != "" {
		t.Errorf("where nothing is wrong: %q", got)
	}
}

// An operator who has declared a cluster to be off sees what the hub made of it, once.
func TestEventOfADeclaration(t *testing.T) {
	accepted, none := eastLeads(20), eastLeads(20)
	accepted.Fence = election.Acceptance{UID: "uid", At: decidetest.Start.Wall}
	accepted.NotBefore = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	voided := accepted
	voided.Fence.Voided = true
	for name, test := range map[string]struct {
		was, is election.Record
		want    string
	}{
		"it is accepted": {none, accepted,
			"Warning Fenced east counts as off: if it acts before 2026-03-01T12:00:00Z, two clusters lead"},
		"it is voided": {accepted, voided, "Warning Fenced east has answered although it was declared to be off: " +
			"the next term waits until 2026-03-01T12:00:00Z"},
		"it stays accepted": {accepted, accepted, ""},
		"it was taken back": {accepted, none, ""},
	} {
		e, is := FenceEvent(test.was, test.is)
		got := strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Kind, e.Reason, e.Message))
		if got != test.want || is != (test.want != "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
