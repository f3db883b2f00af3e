package election_test

import (
	"slices"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// fencing is a policy that fences these locks, with a stop time of 17 s.
func fencing(names ...string) *election.Policy {
	return policy(func(p *election.Policy) { p.Locks, p.StopTime = names, 17*second })
}

// opened is a record whose Leases list these locks.
func opened(names ...string) func(*election.Record) {
	return func(r *election.Record) { r.OpenLocks, r.Stop = names, 17*second }
}

// Rule 16: a lock opens when every earlier holder must have stopped. D + ε + the stop time are 33 s.
func TestLockOpens(t *testing.T) {
	const both, ms = "east 100, west 50", time.Millisecond
	rejected := func(s *election.State) { s.RefusedSince = map[string]time.Duration{"shop/stock": boot(0)} }
	stock := []string{"shop/stock"}
	for name, test := range map[string]struct {
		seconds float64
		state   election.State
		fenced  []string
		among   string
		open    []string
		after   time.Duration
	}{
		"all have rejected it for 1 ms less than D + ε + the stop time: no": {32.999, leading(rejected), stock, both, nil,
			ms},
		"all have rejected it for D + ε + the stop time": {33, leading(rejected), stock, both, stock, 0},
		"another policy has a larger D and ε: a quarter of a second less: no": {
			64.75, leading(rejected, func(s *election.State) { s.FleetDuration, s.FleetSkew = 45*second, 3*second }), stock,
			both, nil, 250 * ms,
		},
		"another policy has a larger stop time: a quarter of a second less than that: no": {
			170.75, leading(rejected, func(s *election.State) { s.FleetStop = 155 * second }), stock, both, nil, 250 * ms,
		},
		"it is open": {5, leading(recorded(opened("shop/stock"))), stock, both, stock, 0},
		"it is open, and all have rejected it for long": {500, leading(rejected, recorded(opened("shop/stock"))), stock, both,
			stock, 0},
		"it is open in a lost record: no": {100,
			lost(recorded(func(r *election.Record) { r.OpenLocks = stock })), stock, both, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := election.Next(at(test.seconds), fencing(test.fenced...), test.state, among(test.among))
			if d.Record.State != election.Leading || !slices.Equal(d.Record.OpenLocks, test.open) || d.After != test.after {
				t.Errorf("%s, open %v; want open %v, after %v", say(d), d.Record.OpenLocks, test.open, test.after)
			}
		})
	}
}

// Rule 16: while a lock is not fenced, any cluster may take it.
func TestLockThatIsNotFencedAnyMoreCloses(t *testing.T) {
	for name, state := range map[string]election.State{
		"leading": leading(recorded(opened("shop/stock"))),
		"ending":  ending(reason.Unreachable, recorded(opened("shop/stock"))),
		"vacant":  vacant(recorded(opened("shop/stock"))),
		"retired": retired(recorded(opened("shop/stock"))),
	} {
		t.Run(name, func(t *testing.T) {
			withPolicy := election.Next(at(1), policy(), state, among("east 100, west 50"))
			for _, d := range []election.Decision{withPolicy, election.Next(at(1), nil, state, nil)} {
				if len(d.Record.OpenLocks) > 0 || !d.Persist {
					t.Errorf("%s, open %v", say(d), d.Record.OpenLocks)
				}
			}
		})
	}
}

// Rule 15: the record names a former leader whose fence was missing, until that fence is in force.
func TestRecordNamesUnfencedLeader(t *testing.T) {
	type step struct {
		seconds float64
		east    string
		want    string
	}
	for name, steps := range map[string][]step{
		"missing when the leader is lost, unchecked later, then in force": {{0, "Unreachable unfenced", "east"},
			{20, "Unreachable unfenced", "east"}, {21, "Unreachable unchecked", "east"}, {22, "Unreachable", ""}},
		"missing while the leader is replaced": {{0, "Unreachable", ""}, {5, "Unreachable unfenced", "east"},
			{20, "Unreachable unfenced", "east"}},
		"missing at the grant": {{0, "Unreachable", ""}, {20, "Unreachable unfenced", "east"}},
		"missing while a cluster that the policy left is replaced": {{0, "NotSelected unfenced", "east"},
			{20, "NotSelected unfenced", "east"}, {21, "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			state := leading()
			for _, step := range steps {
				east := "east 100 " + step.east + ", "
				if step.east == "" {
					east = ""
				}
				d := election.Next(at(step.seconds), policy(), state, among(east+"west 50 prepared"))
				if d.Record.UnfencedLeader != step.want {
					t.Errorf("after %v s the record names %q, want %q (%s)", step.seconds, d.Record.UnfencedLeader, step.want, say(d))
				}
				state.Record = d.Record
			}
			if state.Record.Leader != "west" {
				t.Errorf("%s leads at the end", state.Record.Leader)
			}
		})
	}
}
