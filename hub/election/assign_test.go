package election_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/election"
)

// Rules 2 and 3: the Leases follow from the persisted record.
func TestAssign(t *testing.T) {
	const d = 15 * second
	term := func(holder string) lease.Term {
		r := lease.Term{Epoch: epoch, AcquireTime: wall(-400), Duration: d}
		if holder != "" {
			r.Holder = holder + ".fleet"
		}
		return r
	}
	is := func(role assign.Role, holder string) assign.Assignment {
		return assign.Assignment{Role: role, Term: term(holder)}
	}
	first := is(assign.Lead, "east")
	first.First = true
	fresh := is(assign.Follow, "east")
	fresh.MinRenewTime = wall(0)
	zeroth := is(assign.Hold, "")
	zeroth.Term.Epoch = 0
	drain := record(election.Draining, "east", followedBy("west"))
	tests := map[string]struct {
		record  election.Record
		cluster string
		first   bool
		want    assign.Assignment
	}{
		"the leader's Lease is renewed": {record: record(election.Leading, "east"), cluster: "east", want: is(assign.Lead, "east")},
		"its first Lease is written by the tenure that persisted the grant": {
			record: record(election.Leading, "east"), cluster: "east", first: true, want: first,
		},
		"the others follow": {record: record(election.Leading, "east"), cluster: "west", first: true, want: is(assign.Follow, "east")},
		"a draining leader's Lease is renewed by nobody": {
			record: drain, cluster: "east", first: true, want: is(assign.Hold, "east"),
		},
		"its successor's is written anew, to see that it can be": {record: drain, cluster: "west", want: fresh},
		"the others stay as they are":                            {record: drain, cluster: "south", want: is(assign.Follow, "east")},
		"a leader that succeeds itself is not written either": {
			record: record(election.Draining, "east", followedBy("east")), cluster: "east", want: is(assign.Hold, "east"),
		},
		"where nobody leads, all say so": {record: record(election.Vacant, ""), cluster: "east", want: is(assign.Follow, "")},
		"while an earlier promise may stand nothing is written: its Lease may yet be read": {
			record: record(election.Vacant, "", because(reason.WaitingForExpiry)), cluster: "east", want: is(assign.Hold, ""),
		},
		"a leader that a vacant record names is none": {record: record(election.Vacant, "east"), cluster: "east", want: is(assign.Follow, "")},
		"where nobody ever led there is nothing to say": {
			record: record(election.Vacant, "", func(r *election.Record) { r.Epoch = 0 }), cluster: "east", want: zeroth,
		},
		"a retired namespace has no Leases": {record: record(election.Retired, "east"), cluster: "east", first: true, want: is(assign.Absent, "east")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := election.Assign(test.record, "fleet", test.cluster, d, test.first); got != test.want {
				t.Errorf("\n got %+v\nwant %+v", got, test.want)
			}
		})
	}
	t.Run("of a lost record nothing is known, so nothing is written", func(t *testing.T) {
		if got := election.Assign(election.Record{}, "fleet", "east", d, true); got.Role != assign.Hold {
			t.Errorf("got %+v", got)
		}
	})
}

// Rule 2: no Lease carries a longer D than the record.
func TestAssignedD(t *testing.T) {
	for name, test := range map[string]struct{ policy, record, want time.Duration }{
		"a longer one waits for the record": {policy: 60 * second, record: 15 * second, want: 15 * second},
		"a shorter one does not":            {policy: 15 * second, record: 60 * second, want: 15 * second},
	} {
		t.Run(name, func(t *testing.T) {
			for _, phase := range []election.RecordState{election.Leading, election.Draining, election.Vacant} {
				for _, cluster := range []string{"east", "west"} {
					r := record(phase, "east", lasting(test.record))
					if got := election.Assign(r, "fleet", cluster, test.policy, true).Term.Duration; got != test.want {
						t.Errorf("%s, %s: %v, want %v", phase, cluster, got, test.want)
					}
				}
			}
		})
	}
}
