package election_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/election"
)

// Rule 6: a sealed Lease that is newer than the record raises it, and a live one names the leader.
func TestLeaseRaisesRecord(t *testing.T) {
	const both, west, east = "east 100, west 50", "Leading west 30 Adopted next east persist",
		"Leading east 30 Adopted next west persist"
	raised := func(s election.State, f *election.FoundTerm) election.State {
		for _, change := range []func(*election.State){
			during(young()), having(renewing(nothing())), found(f), largest(15 * second),
		} {
			change(&s)
		}
		return s
	}
	hourAhead := foundIn("west", 30, -1)
	hourAhead.Term.RenewTime = hourAhead.Term.RenewTime.Add(time.Hour)
	newer, same, older := foundIn("west", 30, -1), foundIn("west", epoch, -1), foundIn("west", epoch-1, -1)
	decide(t, map[string]decision{
		"newer, the record is lost": {now: at(2), state: raised(lost(), newer), among: both, want: west},
		"newer, another leads":      {now: at(2), state: raised(leading(), newer), among: both, want: west},
		"newer, expired by the wall clock": {now: clocks(14, 2), state: raised(leading(), newer), among: both,
			want: "stop renewing"},
		"newer, expired on the boot clock, renewed by a clock that was ahead": {
			now: at(14), state: raised(lost(), hourAhead), among: both, want: "stop renewing",
		},
		"the same epoch and leader, ending": {
			now: at(2), state: raised(ending(reason.Unreachable), foundIn("east", epoch, -1)), among: both,
			want: "stop renewing",
		},
		"the same epoch, another leads": {now: at(2), state: raised(leading(), same), among: both, want: kept},
		"the same epoch, vacant: a follower's Lease was read first": {
			now: at(2), state: raised(vacant(), same), among: both, want: "Leading west 20 Adopted next east persist",
		},
		"older, another leads": {now: at(2), state: raised(leading(), older), among: both,
			want: kept},
	})
}

// Rule 6: a term that ended while the management cluster was restored had the leader. Recovery moves nothing.
func TestEndedTermOfLeaseNamesTheLeader(t *testing.T) {
	const both, ends = "east 100, west 50 prepared", "Ending west 30 LeaseLost next "
	ended := foundIn("west", 30, -100)
	restored := func(s election.State, changes ...func(*election.State)) election.State {
		for _, change := range append([]func(*election.State){
			during(afterOutage()), having(nothing()), found(ended), largest(15 * second),
		}, changes...) {
			change(&s)
		}
		return s
	}
	decide(t, map[string]decision{
		"another led by the record": {now: at(1), state: restored(leading()), among: both, want: ends + "west persist"},
		"another's term ends by the record": {now: at(1), state: restored(ending(reason.Unreachable)), among: both,
			want: ends + "west persist"},
		"its cluster may not lead": {now: at(1), state: restored(leading()), among: "east 100, west 50 NamespaceMissing",
			want: ends + "east persist"},
		"a Lease shows a newer term of another": {now: at(1), state: restored(leading(), seen(40)), among: both,
			want: "Ending east 20 LeaseLost next east after 15s persist"},
		"by the record nobody led": {now: at(20), state: restored(vacant()), among: both,
			want: "Leading east 31 Elected next west persist"},
	})
	d := election.Next(at(1), policy(), restored(leading(), during(young())), among(both))
	if got := d.Record.NotBefore; !got.Equal(wall(16)) {
		t.Errorf("the next term begins at %v, want D + ε after the start", got)
	}
	for name, test := range map[string]struct {
		policy *election.Policy
		change func(*election.State)
	}{
		"it goes on":                         {policy(), func(*election.State) {}},
		"it goes on where people froze that": {policy(), frozen},
		"it goes on where people fail over":  {policy(manual), func(*election.State) {}},
	} {
		s := restored(leading(), test.change)
		for _, seconds := range []float64{1, 2, 20} {
			s.Record = election.Next(at(seconds), test.policy, s, among(both)).Record
		}
		if r := s.Record; r.State != election.Leading || r.Leader != "west" || r.Epoch != 31 {
			t.Errorf("%s: %s %s in epoch %d", name, r.State, r.Leader, r.Epoch)
		}
	}
}

// Rule 6: members are read one after the other. Until the leader's Lease is read, no Lease is written.
func TestLostRecordWaitsForLeadersLease(t *testing.T) {
	s := lost(during(young()), seen(30), largest(15*second))
	d := election.Next(at(1), policy(), s, among("east 100, west 50 unknown"))
	const waits = "Vacant nobody 30 WaitingForExpiry next east waiting WaitingForExpiry after 15s persist"
	if say(d) != waits {
		t.Errorf("\n got %s\nwant %s", say(d), waits)
	}
	if a := election.Assign(d.Record, "fleet", "west", 15*second, false); a.Role != assign.Hold {
		t.Errorf("the Lease is to be %+v", a)
	}
	s.Record, s.Found = d.Record, foundIn("west", 30, -1)
	d = election.Next(at(2), policy(), s, among("east 100, west 50 unknown"))
	if got, want := say(d), "Leading west 30 Adopted next east persist"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// Rules 5 and 6: an adopted term has the longest D of the Lease, the record and the seal.
func TestAdoptedTermHasTheLongestD(t *testing.T) {
	for _, test := range []struct{ lease, record, seal int }{{60, 15, 15}, {15, 60, 15}, {15, 15, 60}} {
		f := foundIn("west", 30, 1)
		f.Term.Duration = time.Duration(test.lease) * second
		s := leading(during(young()), having(nothing()), found(f), recorded(lasting(time.Duration(test.record)*second)),
			largest(time.Duration(test.seal)*second))
		d := election.Next(at(2), policy(), s, among("west 50"))
		if d.Record.Reason != reason.Adopted || d.Record.Duration != 60*second {
			t.Errorf("Lease %d s, record %d s, seal %d s: %s, D %v", test.lease, test.record, test.seal, say(d),
				d.Record.Duration)
		}
	}
}

// Rules 6, 8 and 11: of a fleet that moves here, the Leases name the leaders. Nothing else is decided before this hub
// has taken them.
func TestMovedRecord(t *testing.T) {
	const both, paused = "east 100, west 50", "east 100 Paused, west 50 Paused"
	const adopted, waits = "Leading west 30 Adopted waiting Moved persist", "Leading west 20 Adopted waiting Moved"
	const taken = "Vacant nobody 30 Moved waiting Moved persist"
	here := func(r election.Record, changes ...func(*election.State)) election.State {
		return stateOf(r, nothing(), append([]func(*election.State){moved, seen(30), largest(60 * second)}, changes...)...)
	}
	term, west := found(foundIn("west", 30, -1)), record(election.Leading, "west", because(reason.Adopted))
	untaken := record(election.Vacant, "", because(reason.Moved), lasting(60*second), raisedTo(30))
	untaken.AcquireTime = time.Time{}
	decide(t, map[string]decision{
		"a live Lease": {now: at(2), state: here(election.Record{}, term), among: paused, want: adopted},
		"a live Lease, the record has retired": {now: at(2),
			state: here(record(election.Retired, "west", raisedTo(30)), term), among: paused, want: adopted},
		"a Lease with the other hub's mark": {now: at(2), state: here(election.Record{}, otherHub), among: paused,
			want: "lost waiting OtherHub"},
		"the leader's Lease is not taken, it is unreachable": {now: at(200), state: here(west),
			among: "east 100, west 50 Unreachable", want: waits},
		"the leader's Lease has expired: first, renewals stop": {now: at(2),
			state: here(west, leaseLost, having(renewing(nothing()))), among: both, want: "stop renewing"},
		"no live Lease: all are taken": {now: at(2), state: here(election.Record{}), among: both, want: taken},
		"no live Lease, not all are read": {now: at(200), state: here(election.Record{}),
			among: "east 100, west 50 unknown", want: "lost waiting WaitingForClusters"},
		"no policy: retired like any other": {now: at(2), noPolicy: true,
			state: here(election.Record{}, having(renewing(nothing()))), among: "east 100", want: "stop renewing"},
		"an empty list decides nothing": {now: at(2), state: here(election.Record{}), want: "lost waiting NoCandidate"},
	})
	r := election.Next(at(2), policy(), lost(moved), among("east 100")).Record
	if r.Duration != 15*second {
		t.Errorf("D %v where none is known, want the policy's", r.Duration)
	}
	for _, cluster := range []string{"east", "west"} {
		a := election.Assign(untaken, "fleet", cluster, 15*second, false)
		if a.Role != assign.Follow || a.Term.Holder != "" || a.Term.Epoch != 30 {
			t.Errorf("the Lease in %s is taken as %+v", cluster, a)
		}
	}
}
