package election_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

func manual(p *election.Policy) { p.ManualFailover = true }

func failback(p *election.Policy) { p.Failback = 300 * second }

func rebalanceAt(seconds float64) func(*election.Policy) {
	return func(p *election.Policy) { p.RebalanceAt = wall(seconds) }
}

// fitSince is since which second clusters have been able to lead.
func fitSince(since map[string]float64) func(*election.State) {
	return func(s *election.State) {
		s.FitSince = map[string]time.Duration{}
		for name, seconds := range since {
			s.FitSince[name] = boot(seconds)
		}
	}
}

// ableSince is since which second a cluster has been able to lead.
func ableSince(name string, seconds float64) func(*election.State) {
	return func(s *election.State) { s.AbleSince = map[string]time.Duration{name: boot(seconds)} }
}

// Rule 21: an operator orders a move to one cluster.
func TestOrderedMove(t *testing.T) {
	const begins = "Ending east 20 Ordered next west after 11s persist"
	decide(t, map[string]decision{
		"to a cluster of a lower priority: begins": {now: at(5), state: leading(), among: "east 100, west 50 ordered",
			want: begins},
		"to the leader: nothing to do": {now: at(5), state: leading(), among: "east 100 ordered, west 50", want: kept},
		"from a leader that is being replaced while most cannot be reached: goes to that cluster": {now: at(16),
			state: ending(reason.Unreachable, mostUnreachable), among: "east 100 Unreachable, west 50 ordered prepared",
			want: "Leading west 21 FailedOver persist"},
		"from a leader that this hub has never reached: begins": {now: at(5), state: leading(),
			among: "east 100 unknown, west 50 ordered", want: begins},
		"from a leader that has begun to answer: kept until it is known": {now: at(5), state: leading(),
			among: "east 100 unknown answering, west 50 ordered", want: kept + " after 11s"},
		"its term has ended: goes to that cluster": {now: at(16), state: ending(reason.Ordered),
			among: "east 100, south 70 prepared, west 50 ordered prepared",
			want:  "Leading west 21 HandedOver next east persist"},
	})
}

func TestRefusedOrder(t *testing.T) {
	for name, test := range map[string]struct {
		now     float64
		state   election.RecordState
		among   string
		refused bool
		waiting reason.Reason
	}{
		"the cluster may lead":             {5, election.Leading, "east 100, west 50 ordered", false, ""},
		"the leader is named":              {5, election.Leading, "east 100 ordered, west 50", false, ""},
		"the leader is named, and is lost": {5, election.Leading, "east 100 Unreachable ordered, west 50", true, ""},
		"it is lost, another one may answer": {5, election.Leading, "east 100, south 70 unknown, west 50 Unreachable ordered",
			true, ""},
		"there is no such cluster": {5, election.Leading, "east 100, west 50", true, ""},
		"the cluster cannot be reached": {5, election.Leading, "east 100, west 50 Unreachable ordered",
			true, ""},
		"the cluster is drained": {5, election.Leading, "east 100, west 50 drained ordered",
			true, ""},
		"this hub has just started": {5, election.Leading, "east 100, west 50 unknown ordered",
			false, ""},
		"this hub has started, and the cluster is silent": {15, election.Leading, "east 100, west 50 unknown ordered",
			true, ""},
		"a change is under way, and the cluster is lost": {5, election.Ending, "east 100, west 50 Unreachable ordered",
			false, ""},
		"nobody leads, and there is no such cluster either": {5, election.Vacant, "east 100", true, ""},
		"nobody else gets a term, and the cluster is lost": {5, election.Ending, "east 100, west 50 Unreachable ordered",
			true,
			reason.FailoverPending},
	} {
		s := leading(during(young()))
		d := election.Decision{Record: record(test.state, "east"), Waiting: test.waiting}
		got := election.RefusesOrder(at(test.now), *policy(), s, d, among(test.among))
		if got != test.refused {
			t.Errorf("%s: refused %t", name, got)
		}
	}
}

// Rule 22: where operators fail over by hand, the hub replaces no leader because it cannot reach it.
func TestManualFailover(t *testing.T) {
	const pending = "Leading east 20 Elected next west waiting FailoverPending"
	day := policy(manual, duration(24*time.Hour)) // the hub has begun at zero, and a promise of a day may stand
	began := []func(*election.State){during(young()), having(nothing()), recorded(lasting(24 * time.Hour))}
	rows := map[string]decision{
		"it was not reached for a minute since the hub began: pending": {now: at(60), policy: day,
			state: leading(began...), among: "east 100 unknown, west 50", want: pending + " after 23h59m1s"},
		"it was not reached for less than that: again then": {now: at(59), policy: day,
			state: leading(began...), among: "east 100 unknown, west 50", want: kept + " after 1s"},
		"it was not reached, and no other cluster may lead: kept": {now: at(60), policy: day, state: leading(began...),
			among: "east 100 unknown, west 50 Unreachable", want: "Leading east 20 Elected after 23h59m1s persist"},
		"it was not reached, and the namespace is frozen: kept": {now: at(60), policy: day,
			state: leading(append(began, frozen)...), among: "east 100 unknown, west 50", want: kept + " after 23h59m1s"},
		"it is reached: kept, and nothing is pending": {now: at(60), policy: day, state: leading(began...),
			among: "east 100, west 50", want: kept},
		"the leader cannot be reached: kept": {now: at(5), among: "east 100 Unreachable, west 50", want: pending},
		"its clock is off: kept":             {now: at(5), among: "east 100 ClockSkewed, west 50", want: pending},
		"its Cluster is deleted: replaced": {now: at(5), among: "east 100 Deleting, west 50",
			want: "Ending east 20 Deleting next west after 11s persist"},
		"it was being replaced when the policy changed, and its term has ended: nobody else leads": {now: at(16),
			state: ending(reason.Unreachable), among: "east 100 Unreachable, west 50 prepared",
			want: "Ending east 20 Unreachable next west waiting FailoverPending"},
		"its Lease was lost, and it is reached again: a new term": {now: at(16), state: ending(reason.LeaseLost),
			among: "east 100, west 50 prepared", want: "Leading east 21 NewTerm next west persist"},
		"it was drained, and is switched off: replaced": {now: at(5), among: "east 100 Unreachable drained, west 50",
			want: "Ending east 20 Drained next west after 11s persist"},
		"a planned change was under way, and it cannot be reached: the change goes on": {now: at(16),
			state: ending(reason.PriorityChanged), among: "east 10 Unreachable, west 50 prepared",
			want: "Leading west 21 HandedOver persist"},
		"its fence is missing, its term has ended, and a move is ordered: the cluster leads": {now: at(16),
			state: ending(reason.LeaseLost), among: "east 100 Unfenced unfenced keeps, west 50 ordered prepared",
			want: "Leading west 21 FailedOver persist"},
	}
	for name, row := range rows {
		if row.policy == nil {
			row.policy = policy(manual)
		}
		if row.state.Record.Lost() {
			row.state = leading()
		}
		rows[name] = row
	}
	decide(t, rows)
}

// Rule 23: a better cluster gets the lead back when it has been able to lead for long enough.
func TestFailback(t *testing.T) {
	east := func(r *election.Record) { r.Observed["east"] = 100 }
	led := func(changes ...func(*election.State)) election.State {
		return leading(append(changes, recorded(ledBy("west"), followedBy("east"), east))...)
	}
	seenSouth := recorded(func(r *election.Record) { r.Observed["south"] = 70 })
	const stays, moves = "Leading west 20 Elected next east", "Ending west 20 Failback next east after 11s persist"
	rows := map[string]decision{
		"for less than that: stays": {now: at(5), state: led(fitSince(map[string]float64{"east": -290})),
			among: "east 100, west 50", want: stays + " after 5s"},
		"for less than that, and a worse one for longer: stays": {now: at(5),
			state: led(fitSince(map[string]float64{"east": -200, "south": -290})), among: "east 100, west 50, south 10",
			want: stays + " after 1m35s persist"},
		"for long enough: moves": {now: at(5), state: led(fitSince(map[string]float64{"east": -295})),
			among: "east 100, west 50", want: moves},
		"for long enough, but a move was ordered since: stays": {now: at(5),
			state: led(fitSince(map[string]float64{"east": -900}),
				recorded(func(r *election.Record) { r.AcquireTime = wall(0) })),
			among: "east 100, west 50", want: stays + " after 4m55s"},
		"for long enough, but drained: stays": {now: at(5), state: led(fitSince(map[string]float64{"east": -295})),
			among: "east 100 drained, west 50", want: "Leading west 20 Elected persist"},
		"the best one is not settled, the next one is: moves to that": {now: at(5),
			state: led(seenSouth, fitSince(map[string]float64{"south": -295, "east": 4})),
			among: "south 70, east 100, west 50",
			want:  "Ending west 20 Failback next south after 11s persist"},
	}
	for name, row := range rows {
		row.policy = policy(failback)
		rows[name] = row
	}
	decide(t, rows)
	decide(t, map[string]decision{
		"the policy does not fail back: stays": {now: at(5), state: led(fitSince(map[string]float64{"east": -900})),
			among: "east 100, west 50", want: stays},
	})
}

// A better cluster that fails every few seconds for an hour gets the lead back once at most: when it has stopped.
func TestFlappingClusterMovesNothing(t *testing.T) {
	p, s, moves := policy(failback), leading(recorded(ledBy("west"), followedBy("east"))), 0
	for second := range 3600 + 400 {
		now, clusters := at(float64(second)), "east 100, west 50"
		if second < 3600 && second%7 < 3 {
			clusters = "east 100 Unreachable, west 50"
		}
		s.FitSince = election.FitSince(now, s.FitSince, among(clusters))
		s.Sent = sent(float64(second) - 1)
		if s.Record.State == election.Ending {
			s.Sent = sent(-100) // all that was promised has passed
			clusters = "east 100 prepared, west 50"
		}
		d := election.Next(now, p, s, among(clusters))
		if d.Record.Leader != s.Record.Leader {
			moves++
		}
		s.Record = d.Record
		if second < 3600 && s.Record.State != election.Leading {
			t.Fatalf("after %d s: %s", second, say(d))
		}
	}
	if moves != 1 || s.Record.Leader != "east" {
		t.Errorf("%d moves, and %s leads", moves, s.Record.Leader)
	}
}

// Rule 24: from an instant on, all priorities count as edited, once.
func TestRebalance(t *testing.T) {
	const moves = "Ending west 20 PriorityChanged next east after 11s persist"
	const lost = "east 100 Unreachable, west 50"
	for name, test := range map[string]struct {
		at          float64
		among, want string
		then        string // a second later
		thenMoves   bool
	}{
		"the instant has come: moves": {5, "east 100, west 50", moves, "east 100, west 50", true},
		"it has not come: stays, and looks again": {9, "east 100, west 50", "Leading west 20 Elected next east after 4s",
			"east 100, west 50", false},
		"the leader is the best: it has been counted": {5, "east 10, west 50", "Leading west 20 Elected next east persist",
			"east 10, west 50", false},
		"spread over equal clusters: moves to the heavier one": {5, "east 50 heavy, west 50 light", moves,
			"east 50 heavy, west 50 light", true},
		"the better cluster cannot be reached: moves when it can": {5, lost, "Leading west 20 Elected persist",
			"east 100, west 50", true},
	} {
		s := leading(recorded(ledBy("west"), followedBy("east")))
		d := election.Next(at(5), policy(rebalanceAt(test.at)), s, among(test.among))
		if got := say(d); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, test.want)
		}
		if s.Record = d.Record; s.Record.State == election.Ending {
			continue
		}
		again := election.Next(at(6), policy(rebalanceAt(test.at)), s, among(test.then))
		if moves := again.Record.State == election.Ending; moves != test.thenMoves {
			t.Errorf("%s: a second later %s", name, say(again))
		}
	}
}

// An equal cluster that joins takes nothing where namespaces are spread. One whose priority is edited does.
func TestSpread(t *testing.T) {
	decide(t, map[string]decision{
		"a heavier cluster joins: stays": {now: at(5), state: leading(), among: "east 100 light, new 100 heavy, west 50",
			want: "Leading east 20 Elected next new persist"},
	})
}
