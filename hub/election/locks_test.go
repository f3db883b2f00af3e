package election_test

import (
	"slices"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// fencing is a policy that fences these locks, with a stop time of 17 s.
func fencing(names ...string) func(*election.Policy) {
	return func(p *election.Policy) { p.Locks, p.StopTime = names, 17*second }
}

// opened is a record whose Leases list these locks.
func opened(names ...string) func(*election.Record) {
	return func(r *election.Record) { r.OpenLocks, r.Stop = names, 17*second }
}

// refusedEverywhere says that every cluster refuses the lock shop/stock since zero.
func refusedEverywhere(s *election.State) {
	s.RefusedSince = map[string]time.Duration{"shop/stock": boot(0)}
}

// Rule 16: D + ε + the stop time are 33 s here.
func TestLockOpensWhenEveryEarlierHolderMustHaveStopped(t *testing.T) {
	east, west := fit("east", 100), prepared(fit("west", 50))
	tests := map[string]struct {
		seconds float64
		state   election.State
		policy  *election.Policy
		among   []election.Candidate
		open    []string
		after   time.Duration
	}{
		"a lock that clusters may still admit stays closed, whatever time passes": {
			seconds: 1000, state: leading(), policy: policy(fencing("shop/stock")),
		},
		"a lock that every cluster refuses stays closed for D + ε + the stop time": {
			seconds: 32.999, state: leading(refusedEverywhere), policy: policy(fencing("shop/stock")), after: time.Millisecond,
		},
		"then it opens in the same term": {
			seconds: 33, state: leading(refusedEverywhere), policy: policy(fencing("shop/stock")), open: []string{"shop/stock"},
		},
		"a larger D and ε of another policy count, because its Lease may admit the holder": {
			seconds: 64.75, policy: policy(fencing("shop/stock")), after: 250 * time.Millisecond,
			state: leading(refusedEverywhere, func(s *election.State) { s.FleetDuration, s.FleetSkew = 45*second, 3*second }),
		},
		"so does a slower lock of another policy: it may be this one, which has moved": {
			seconds: 170.75, policy: policy(fencing("shop/stock")), after: 250 * time.Millisecond,
			state: leading(refusedEverywhere, func(s *election.State) { s.FleetStop = 155 * second }),
		},
		"an open lock stays open": {
			seconds: 5, state: leading(recorded(opened("shop/stock"))), policy: policy(fencing("shop/stock")), open: []string{"shop/stock"},
		},
		"a second lock closes no first one": {
			seconds: 5, state: leading(recorded(opened("shop/stock"))), policy: policy(fencing("shop/stock", "shop/till")),
			open: []string{"shop/stock"},
		},
		"a lock that the policy does not fence any more is not listed": {
			seconds: 5, state: leading(recorded(opened("shop/stock", "shop/till"))), policy: policy(fencing("shop/stock")),
			open: []string{"shop/stock"},
		},
		"a new term keeps open locks open": {
			seconds: 33, policy: policy(fencing("shop/stock")), open: []string{"shop/stock"},
			state: draining(reason.Unreachable, recorded(opened("shop/stock")), having(stopping(17*second, sent(0)))),
			among: []election.Candidate{unfit("east", 100, reason.Unreachable), west},
		},
		"a new term opens no lock that clusters may still admit": {
			seconds: 33, policy: policy(fencing("shop/stock")),
			state: draining(reason.Unreachable, having(stopping(17*second, sent(0)))),
			among: []election.Candidate{unfit("east", 100, reason.Unreachable), west},
		},
		"a lost record has no open locks": {
			seconds: 100, policy: policy(fencing("shop/stock")), among: []election.Candidate{east},
			state: election.State{Record: election.Record{OpenLocks: []string{"shop/stock"}}, Tenure: settled(), Sent: closed()},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.among == nil {
				test.among = []election.Candidate{east, west}
			}
			d := election.Next(at(test.seconds), test.policy, test.state, test.among)
			if d.Record.State != election.Leading || !slices.Equal(d.Record.OpenLocks, test.open) || d.After != test.after {
				t.Errorf("%s, open %v, again after %v; want open %v, after %v", say(d), d.Record.OpenLocks, d.After, test.open, test.after)
			}
		})
	}
}

// Rule 16: while a lock is not fenced, any cluster may take it.
func TestLockThatIsNotFencedAnyMoreClosesInEveryState(t *testing.T) {
	east, west := fit("east", 100), fit("west", 50)
	for name, state := range map[string]election.State{
		"Leading":  leading(recorded(opened("shop/stock"))),
		"Draining": draining(reason.Unreachable, recorded(opened("shop/stock"))),
		"Vacant":   {Record: record(election.Vacant, "", opened("shop/stock")), Tenure: settled(), Sent: closed()},
		"Retired":  {Record: record(election.Retired, "east", opened("shop/stock")), Tenure: settled(), Sent: sent(0)},
	} {
		t.Run(name, func(t *testing.T) {
			d := election.Next(at(1), policy(), state, []election.Candidate{east, west})
			if len(d.Record.OpenLocks) > 0 || !d.Persist {
				t.Errorf("open %v, persisted %v (%s)", d.Record.OpenLocks, d.Persist, say(d))
			}
			d = election.Next(at(1), nil, state, nil)
			if len(d.Record.OpenLocks) > 0 || !d.Persist {
				t.Errorf("without a policy: open %v, persisted %v (%s)", d.Record.OpenLocks, d.Persist, say(d))
			}
		})
	}
}

// Rule 15: programs in a cluster whose fence is missing go on after the term.
func TestPlannedChangeWaitsWhileTheFenceOfTheLeaderIsMissing(t *testing.T) {
	overtaken := leading(recorded(counting(map[string]int32{"east": 100, "west": 50})))
	without := func(f election.Fence) []election.Candidate {
		east := fit("east", 100)
		east.Unfenced = f
		return []election.Candidate{east, fit("west", 200)}
	}
	decide(t, map[string]decision{
		"a raised priority moves the lead away from a fenced leader": {
			now: at(5), state: overtaken, among: without(election.FenceInForce),
			want: "Draining east 20 PriorityChanged next west after 11s persist",
		},
		"it waits while the fence is known to be missing": {
			now: at(5), state: overtaken, among: without(election.FenceMissing), want: kept,
		},
		"it waits until the fence was checked": {
			now: at(5), state: overtaken, among: without(election.FenceUnchecked), want: kept,
		},
	})
}

func TestRecordNamesFormerLeaderWhoseFenceIsMissing(t *testing.T) {
	lost, reached := unfit("east", 100, reason.Unreachable), fit("east", 100)
	type step struct {
		name    string
		seconds float64
		east    election.Candidate
		fence   election.Fence
		want    string
	}
	for name, steps := range map[string][]step{
		"missing when the leader is lost": {
			{"the leader is lost, and its fence was missing", 0, lost, election.FenceMissing, "east"},
			{"another cluster leads", 20, lost, election.FenceMissing, "east"},
			{"nothing is known of the former leader", 21, lost, election.FenceUnchecked, "east"},
			{"its fence is in force", 22, reached, election.FenceInForce, ""},
		},
		"missing while the leader is being replaced": {
			{"the leader is lost", 0, lost, election.FenceInForce, ""},
			{"its fence is removed", 5, lost, election.FenceMissing, "east"},
			{"another cluster leads", 20, lost, election.FenceMissing, "east"},
		},
		"missing at the next grant": {
			{"the leader is lost", 0, lost, election.FenceInForce, ""},
			{"another cluster leads", 20, lost, election.FenceMissing, "east"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := leading()
			for _, step := range steps {
				former := step.east
				former.Unfenced = step.fence
				d := election.Next(at(step.seconds), policy(), state, []election.Candidate{former, prepared(fit("west", 50))})
				if d.Record.UnfencedLeader != step.want {
					t.Errorf("%s: the record names %q, want %q (%s)", step.name, d.Record.UnfencedLeader, step.want, say(d))
				}
				state.Record = d.Record
			}
			if state.Record.Leader != "west" {
				t.Errorf("%s leads at the end, want west", state.Record.Leader)
			}
		})
	}
}
