package election_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

func unhealthyAfter(p *election.Policy) { p.UnhealthyAfter = 30 * second }

// long has all clusters healthy for long enough, where they are healthy at all.
var long = fitSince(map[string]float64{"east": -25, "west": -25, "south": -25})

// Rule 26: what the policy requires must be healthy where a leader is.
func TestRequired(t *testing.T) {
	const begins = "Ending east 20 RequiredUnhealthy next west after 11s persist"
	rows := map[string]decision{
		"it has not been healthy for long enough elsewhere: kept": {now: at(5),
			state: leading(fitSince(map[string]float64{"west": -20})), among: "east 100 failed, west 50",
			want: "Leading east 20 Elected next west"},
		"the term has ended, and it was sick for a moment elsewhere: the leader goes on": {now: at(16),
			state: ending(reason.RequiredUnhealthy, fitSince(map[string]float64{"west": 0})),
			among: "east 100 failed, west 50 prepared", want: "Leading east 21 NewTerm next west persist"},
		"it has failed in the leader's cluster: begins": {now: at(5), state: leading(), among: "east 100 failed, west 50",
			want: begins},
		"it has failed everywhere: kept": {now: at(5), state: leading(), among: "east 100 failed, west 50 failed",
			want: "Leading east 20 Elected next west"},
		"it is healthy in the last one only: that one is next": {now: at(5), state: leading(),
			among: "east 100 failed, south 70 unreadable, west 50", want: begins},
		"the healthy one is drained: kept": {now: at(5), state: leading(), among: "east 100 failed, west 50 drained",
			want: "Leading east 20 Elected persist"},
		"operators fail over by hand: they are asked": {now: at(5), policy: policy(manual, unhealthyAfter),
			state: leading(), among: "east 100 failed, west 50",
			want: "Leading east 20 Elected next west waiting FailoverPending"},

		"the term has ended: the healthy one leads": {now: at(16), state: ending(reason.RequiredUnhealthy),
			among: "east 100 failed, south 70 unreadable prepared, west 50 prepared",
			want:  "Leading west 21 HandedOver next south persist"},
		"the leader is lost, and it has failed in all others: the best of them is next": {now: at(5), state: leading(),
			among: "east 100 Unreachable, south 70 failed, west 50 failed",
			want:  "Ending east 20 Unreachable next south after 11s persist"},
		"nobody leads, and it has failed everywhere": {now: at(500), state: vacant(),
			among: "east 100 failed, west 50 failed", want: "Leading east 480 Elected next west persist"},
	}
	for name, row := range rows {
		if row.policy == nil {
			row.policy = policy(unhealthyAfter)
		}
		if row.state.FitSince == nil {
			long(&row.state)
		}
		rows[name] = row
	}
	decide(t, rows)
}

// What people order does not bring a leader from where it is healthy to where it has failed.
func TestRequiredComesBeforeOrders(t *testing.T) {
	ordered := "Ending east 20 Ordered next west after 11s persist"
	decide(t, map[string]decision{
		"an order, the leader is lost, and it has failed in all others": {now: at(5), state: leading(),
			policy: policy(manual), among: "east 100 Unreachable, west 50 ordered failed", want: ordered},
	})
	refused := election.RefusesOrder(at(5), *policy(), leading(), election.Decision{Record: record(election.Leading,
		"east")},
		among("east 100, west 50 ordered failed"))
	if !refused {
		t.Error("a move to where it has failed is not refused")
	}
}

// Rule 26: a planned change begins because of one cluster, and goes to no better one in which what is required is
// worse.
func TestPlannedChangeGoesWhereWhatIsRequiredIsNoWorse(t *testing.T) {
	const clusters, next = "east 100%s, west 80%s prepared, south 50%s prepared", " next south after 11s persist"
	const sick, blind = " unhealthy", " unreadable"
	decide(t, map[string]decision{
		"the leader is drained, and the better cluster is unhealthy": {now: at(5), state: leading(),
			among: fmt.Sprintf(clusters, " drained", sick, ""), want: "Ending east 20 Drained" + next},
		"it is drained, its term has ended, and the better cluster cannot be read": {now: at(16),
			state: ending(reason.Drained), among: fmt.Sprintf(clusters, " drained", blind, ""),
			want: "Leading south 21 HandedOver next west persist"},
		"it is drained, its term has ended, and no other cluster is as healthy": {now: at(16), state: ending(reason.Drained),
			among: fmt.Sprintf(clusters, " drained", blind, sick), want: "Leading east 21 NewTerm next west persist"},
		"it is drained, its term has ended, and it is lost": {now: at(16), state: ending(reason.Drained),
			among: fmt.Sprintf(clusters, " drained Unreachable", blind, ""),
			want:  "Leading west 21 HandedOver next south persist"},
		"another one is raised, and the better cluster is unhealthy": {now: at(5), state: leading(),
			among: fmt.Sprintf("east 100, west 900%s, south 200", sick), want: "Ending east 20 PriorityChanged" + next},
	})
}

// What is counted is how long every decision found it unhealthy.
func TestUnhealthySince(t *testing.T) {
	before := map[string]time.Duration{"east": boot(1), "west": boot(2), "south": boot(3)}
	got := election.UnhealthySince(at(9), before,
		among("east 100 unhealthy, west 50, south 70 unreadable, north 10 unhealthy, far 10 unreadable"))
	want := map[string]time.Duration{"east": boot(1), "south": boot(3), "north": boot(9)}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	fit := election.FitSince(at(9), nil, among("east 100 unhealthy, west 50, south 70 unreadable, north 10 failed"))
	if want := map[string]time.Duration{"west": boot(9)}; !maps.Equal(fit, want) {
		t.Errorf("able to lead: got %v, want %v", fit, want)
	}
}
