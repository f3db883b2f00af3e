package election_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/election"
)

// The whole record after each kind of decision.
func TestRecordAfterDecision(t *testing.T) {
	now := wall(20)
	locks := []string{"shop/stock"}
	fences := func(p *election.Policy) { p.LeaseName, p.Locks, p.StopTime = "other", locks, 9*second }
	bounded := func(s *election.State) {
		s.LargestDuration, s.LargestSkew, s.LargestStop = 60*second, 2*second, 9*second
	}
	lostBounds := recorded(func(r *election.Record) { r.Skew, r.Stop, r.OpenLocks = 3*second, 17*second, locks })
	for name, test := range map[string]struct {
		policy *election.Policy
		state  election.State
		among  string
		want   election.Record
	}{
		"granted: the policy's D and Lease name, and all priorities": {
			policy: policy(duration(30*second), fences), state: ending(reason.Unreachable, recorded(opened(locks...))),
			among: "east 7 Unreachable, west 8 prepared, south 9 unknown",
			want: election.Record{
				Leader: "west", Epoch: 21, State: election.Leading, Reason: reason.FailedOver, Since: now, AcquireTime: now,
				Duration: 30 * second, Skew: second, Stop: 9 * second, OpenLocks: locks, LeaseName: "other",
				Observed: map[string]int32{"east": 7, "west": 8, "south": 9},
			},
		},
		"granted to the same leader: an edit that waits still waits": {
			policy: policy(), state: ending(reason.LeaseLost, frozen), among: "east 100, west 200 prepared",
			want: election.Record{
				Leader: "east", Epoch: 21, State: election.Leading, Reason: reason.NewTerm, Since: now, AcquireTime: now,
				Duration: 15 * second, Skew: second, LeaseName: "leasecast", Next: "west",
				Observed: map[string]int32{"east": 100, "west": 50},
			},
		},
		"vacated: what outlasts the term stays": {
			policy: policy(duration(3*second), fences), state: ending(reason.Deleting, recorded(opened(locks...))),
			among: "east 7 Deleting, west 8 Unreachable",
			want: election.Record{
				Epoch: epoch, State: election.Vacant, Reason: reason.NoCandidate, Since: now, Duration: 15 * second, Skew: second,
				Stop: 17 * second, OpenLocks: locks, LeaseName: "leasecast", Observed: map[string]int32{"east": 7, "west": 50},
			},
		},
		"adopted: the term of the Lease, the largest D, and all priorities, as by a rebalance that is over": {
			policy: policy(rebalanceAt(-30)), state: lost(during(young()), found(foundIn("west", 30, 10)), bounded),
			among: "east 100 Unguarded, west 50",
			want: election.Record{
				Leader: "west", Epoch: 30, State: election.Leading, Reason: reason.Adopted, Since: now, AcquireTime: wall(-30),
				Duration: 60 * second, Skew: 2 * second, Stop: 9 * second, LeaseName: "leasecast",
				Observed: map[string]int32{"east": 100, "west": 50}, Rebalanced: wall(-30),
			},
		},
		"moved: the largest D, and the priorities of those that are ready": {
			policy: policy(), among: "east 100 Unguarded, west 50",
			state: lost(moved, seen(30), bounded, recorded(func(r *election.Record) { r.Skew, r.Stop = second, 17*second })),
			want: election.Record{
				Epoch: 30, State: election.Vacant, Reason: reason.Moved, Since: now, Duration: 60 * second, Skew: second,
				Stop: 17 * second, LeaseName: "leasecast", Observed: map[string]int32{"west": 50},
			},
		},
		"another hub leads: the largest bounds": {
			policy: policy(), state: vacant(otherHub, bounded), among: "east 100, west 50",
			want: election.Record{
				Epoch: epoch, State: election.Vacant, Reason: reason.OtherHub, Since: now, AcquireTime: wall(-400),
				Duration: 60 * second, Skew: 2 * second, Stop: 9 * second, LeaseName: "leasecast",
				Observed: map[string]int32{"east": 100, "west": 50},
			},
		},
		"another hub leads, and the record is lost: the largest bounds, and no open locks": {
			policy: policy(fences), state: lost(otherHub, bounded, lostBounds), among: "east 100, west 50",
			want: election.Record{
				State: election.Vacant, Reason: reason.OtherHub, Since: now, Duration: 60 * second, Skew: 3 * second,
				Stop: 17 * second, LeaseName: "other",
			},
		},
		"lost: the largest bounds, and no open locks": {
			policy: policy(fences), state: lost(bounded, lostBounds, during(young())), among: "east 100, west 50",
			want: election.Record{
				State: election.Vacant, Reason: reason.WaitingForExpiry, Since: now, NotBefore: wall(80), Next: "east",
				Duration: 60 * second, Skew: 3 * second, Stop: 17 * second, LeaseName: "other",
			},
		},
		"lost without a trace: the seal's bounds": {
			policy: policy(), state: lost(bounded, during(young())), among: "east 100, west 50",
			want: election.Record{
				State: election.Vacant, Reason: reason.WaitingForExpiry, Since: now, NotBefore: wall(71), Next: "east",
				Duration: 60 * second, Skew: 2 * second, Stop: 9 * second, LeaseName: "leasecast",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := election.Next(at(20), test.policy, test.state, among(test.among))
			if !reflect.DeepEqual(d.Record, test.want) || !d.Persist {
				t.Errorf("\n got %+v\nwant %+v", d.Record, test.want)
			}
		})
	}
}

// Any difference to the persisted record is persisted. The record of a fleet that moves is known in all its fields.
func TestAnyDifferenceIsPersisted(t *testing.T) {
	for name, change := range map[string]func(*election.State){
		"leader":            recorded(ledBy("east")),
		"epoch":             seen(31),
		"revoked epoch":     recorded(func(r *election.Record) { r.Revoked = 29 }),
		"state":             recorded(func(r *election.Record) { r.State, r.Since = election.Retired, wall(2) }),
		"reason":            recorded(func(r *election.Record) { r.Reason, r.Since = reason.NoCandidate, wall(2) }),
		"start of the term": recorded(func(r *election.Record) { r.AcquireTime = wall(-5) }),
		"D":                 recorded(lasting(10 * second)),
		"Lease name":        recorded(renamed),
		"bound":             recorded(notBefore(9)),
		"open locks":        recorded(func(r *election.Record) { r.OpenLocks = []string{"shop/stock"} }),
		"unfenced leader":   recorded(func(r *election.Record) { r.UnfencedLeader = "east" }),
		"successor":         recorded(followedBy("west")),
		"priorities":        recorded(observing(map[string]int32{"east": 50})),
		"fence":             recorded(accepted),
		"no difference":     func(*election.State) {},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(election.Record{
				Epoch: 30, State: election.Vacant, Reason: reason.Moved, Since: wall(-5), Duration: 15 * second,
				LeaseName: "leasecast", Observed: map[string]int32{"east": 100},
			}, nothing(), moved, seen(30))
			change(&s)
			d := election.Next(at(2), policy(), s, among("east 100"))
			if kept := name == "no difference"; d.Record.State != election.Vacant || d.Persist == kept {
				t.Errorf("%s, want it persisted: %v", say(d), !kept)
			}
		})
	}
	for why, since := range map[reason.Reason]time.Time{reason.Moved: wall(-5), reason.NoCandidate: wall(2)} {
		states := map[election.RecordState]time.Time{election.Vacant: since, election.Ending: wall(2)}
		for state, sinceState := range states {
			s := stateOf(record(state, "", because(why)), nothing(), moved)
			s.Record.Since = wall(-5)
			if d := election.Next(at(2), policy(), s, among("east 100")); !d.Record.Since.Equal(sinceState) {
				t.Errorf("%s because of %s before: %s since %v", state, why, say(d), d.Record.Since)
			}
		}
	}
}

// The Lease that prepares a successor is renewed no earlier than the ending began. If the record has one of
// the future, it begins now.
func TestEndingBeganInThePast(t *testing.T) {
	for name, test := range map[string]struct {
		since, want time.Time
		persist     bool
	}{
		"in the past":   {wall(1), wall(1), false},
		"in the future": {wall(86_400), wall(100), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := ending(reason.Unreachable)
			s.Record.Since = test.since
			d := election.Next(at(100), policy(), s, among("east 100 Unreachable, west 50"))
			if d.Waiting != reason.WaitingForClusters || !d.Record.Since.Equal(test.want) || d.Persist != test.persist {
				t.Errorf("%s since %v, want %v", say(d), d.Record.Since, test.want)
			}
			if a := election.Assign(d.Record, "fleet", "west", 15*second, false); !a.MinRenewTime.Equal(test.want) {
				t.Errorf("the successor's Lease is fresh from %v on, want %v", a.MinRenewTime, test.want)
			}
		})
	}
}

func TestVacantRecord(t *testing.T) {
	waiting := vacant(during(young()), recorded(because(reason.WaitingForExpiry), renamed))
	for name, test := range map[string]struct {
		now       lease.Reading
		state     election.State
		lease     string
		notBefore time.Time
	}{
		"before its expiry: the old Lease name":  {at(5), waiting, "before", wall(16)},
		"after its expiry: the policy's":         {at(16), waiting, "leasecast", time.Time{}},
		"without a D: the policy's, for a Lease": {at(0), vacant(recorded(lasting(0))), "leasecast", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := election.Next(test.now, policy(), test.state, among("east 100 Unreachable")).Record
			if r.LeaseName != test.lease || !r.NotBefore.Equal(test.notBefore) || r.Duration != 15*second {
				t.Errorf("%+v", r)
			}
		})
	}
}

// The reason of a new term, for people.
func TestReasonOfNewTerm(t *testing.T) {
	for why, want := range map[reason.Reason]reason.Reason{
		reason.Unreachable: reason.FailedOver, reason.Recovering: reason.FailedOver, reason.Forbidden: reason.FailedOver,
		reason.NeverReached: reason.FailedOver, reason.LeaseLost: reason.FailedOver,
		reason.PriorityChanged: reason.HandedOver,
		reason.Deleting:        reason.HandedOver, reason.Gone: reason.HandedOver,
	} {
		s := ending(why)
		if d := election.Next(at(16), policy(), s, among("east 100 Deleting, west 50 prepared")); d.Record.Reason != want {
			t.Errorf("ended by %s: %s, want %s", why, say(d), want)
		}
		if d := election.Next(at(16), policy(), s, among("east 100, west 50 prepared")); d.Record.Reason != reason.NewTerm {
			t.Errorf("ended by %s, the same leader: %s", why, say(d))
		}
	}
}

// Rules 2 and 3: the Leases follow from the persisted record.
func TestAssign(t *testing.T) {
	const d = 15 * second
	is := func(role assign.Role, holder string, epoch int64) assign.Assignment {
		a := assign.Assignment{Role: role, Term: lease.Term{Epoch: epoch, AcquireTime: wall(-400), Duration: d}}
		if holder != "" {
			a.Term.Holder = holder + ".fleet"
		}
		return a
	}
	first := is(assign.Lead, "east", epoch)
	first.First = true
	fresh := is(assign.Follow, "east", epoch)
	fresh.MinRenewTime = wall(0)
	revoke := is(assign.Revoke, "", epoch+1)
	revoke.Revoked = is(assign.Lead, "east", epoch).Term
	end := record(election.Ending, "east", followedBy("west"))
	revoking := record(election.Ending, "east", followedBy("west"), revoked)
	for name, test := range map[string]struct {
		record  election.Record
		cluster string
		first   bool
		want    assign.Assignment
	}{
		"leading, its leader": {record(election.Leading, "east"), "east", false,
			is(assign.Lead, "east", epoch)},
		"leading, its leader, granted by this tenure": {record(election.Leading, "east"), "east", true, first},
		"leading, a follower": {record(election.Leading, "east"), "west", true,
			is(assign.Follow, "east", epoch)},
		"ending, its leader":     {end, "east", true, is(assign.Hold, "east", epoch)},
		"ending, its successor":  {end, "west", false, fresh},
		"revoked, its leader":    {revoking, "east", false, revoke},
		"revoked, its successor": {revoking, "west", false, fresh},
		"vacant":                 {record(election.Vacant, ""), "east", false, is(assign.Follow, "", epoch)},
		"vacant, while a Lease may be live": {
			record(election.Vacant, "", because(reason.WaitingForExpiry)), "east", false, is(assign.Hold, "", epoch),
		},
		"vacant, while another hub may lead": {
			record(election.Vacant, "", because(reason.OtherHub)), "east", false, is(assign.Hold, "", epoch),
		},
		"vacant, there was never a leader": {record(election.Vacant, "", raisedTo(0)), "east", false, is(assign.Hold, "", 0)},
		"retired": {record(election.Retired, "east"), "east", true,
			is(assign.Absent, "east", epoch)},
		"lost": {election.Record{}, "east", true, assign.Assignment{Role: assign.Hold}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := election.Assign(test.record, "fleet", test.cluster, d, test.first); got != test.want {
				t.Errorf("\n got %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// Rule 2: no Lease has a longer D than the record.
func TestAssignedD(t *testing.T) {
	for _, r := range []election.RecordState{election.Leading, election.Ending, election.Vacant} {
		for _, test := range []struct{ policy, record time.Duration }{{60 * second, 15 * second},
			{15 * second, 60 * second}} {
			a := election.Assign(record(r, "east", lasting(test.record)), "fleet", "east", test.policy, true)
			if a.Term.Duration != 15*second {
				t.Errorf("%s, policy %v, record %v: D %v", r, test.policy, test.record, a.Term.Duration)
			}
		}
	}
}
