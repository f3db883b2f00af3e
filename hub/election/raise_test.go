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

// standing is a sealed Lease that was renewed and read in that second, and names the cluster it lives in.
func standing(cluster string, epoch int64, stamp float64) *election.FoundTerm {
	return &election.FoundTerm{Cluster: cluster, Boot: at(stamp).Boot + 15*second, Term: lease.Term{
		Holder: lease.Identity(cluster, "fleet"), Epoch: epoch, AcquireTime: wall(-30), RenewTime: wall(stamp), Duration: 15 * second,
	}}
}

// ahead is a Lease whose renewTime a clock has made that was ahead, or that this hub's is behind.
func ahead(s *election.FoundTerm) *election.FoundTerm {
	s.Term.RenewTime = s.Term.RenewTime.Add(time.Hour)
	return s
}

func mine(s election.State) election.State {
	s.GrantedHere = true
	return s
}

// Rule 6: a sealed Lease that is newer than the record raises it, and a live one names the holder.
func TestRaise(t *testing.T) {
	east, west := fit("east", 100), fit("west", 50)
	among := []election.Candidate{east, west}
	state := func(r election.Record, s *election.FoundTerm) election.State {
		return election.State{
			Record: r, Tenure: young(), Sent: open(closed()), Found: s, Highest: s.Term.Epoch, LargestDuration: 15 * second,
		}
	}
	stale := record(election.Leading, "east")
	decide(t, map[string]decision{
		"a lost record follows the Lease that stands": {
			now: at(2), state: state(election.Record{}, standing("west", 30, -1)), among: among, want: "Leading west 30 Adopted next east persist",
		},
		"not one that has run out by the wall clock alone": {
			now: lease.Reading{Wall: wall(14), Boot: boot(2)}, state: state(stale, standing("west", 30, -1)), among: among, want: "close",
		},
		"so does one that names an earlier leader": {
			now: at(2), state: state(stale, standing("west", 30, -1)), among: among, want: "Leading west 30 Adopted next east persist",
		},
		"and one that was draining": {
			now: at(2), state: state(record(election.Draining, "east"), standing("west", 21, -1)), among: among, want: "Leading west 21 Adopted next east persist",
		},
		"up to the deadline of the Lease": {
			now: at(13.999), state: state(stale, standing("west", 30, -1)), among: among, want: "Leading west 30 Adopted next east persist",
		},
		"a Lease that does not stand any more names nobody": {
			now: at(14), state: state(election.Record{}, standing("west", 30, -1)), among: among, want: "close",
		},
		"also where its renewTime says that it does, by a clock that was an hour ahead": {
			now: at(14), state: state(election.Record{}, ahead(standing("west", 30, -1))), among: among, want: "close",
		},
		"but says that the recorded term is over": {
			now: at(14), state: state(stale, standing("west", 30, -1)), among: among, want: "close",
		},
		"a Lease of the recorded term raises nothing": {
			now: at(2), state: state(stale, standing("east", epoch, -1)), among: among, want: "Leading east 20 Elected next west persist",
		},
		"nor does it end the draining of that term": {
			now: at(2), state: state(record(election.Draining, "east"), standing("east", epoch, -1)), among: among, want: "close",
		},
		"a record that names another leader of the same epoch was edited": {
			now: at(2), state: state(stale, standing("west", epoch, -1)), among: among, want: "Leading west 20 Adopted next east persist",
		},
		"also when its draining has begun since": {
			now: at(2), state: state(record(election.Draining, "east"), standing("west", epoch, -1)), among: among, want: "Leading west 20 Adopted next east persist",
		},
		"but not one that this tenure has granted": {
			now: at(2), state: mine(state(stale, standing("west", epoch, -1))), among: among, want: "Leading east 20 Elected next west persist",
		},
		"nor does an older one": {
			now: at(2), state: state(stale, standing("west", epoch-1, -1)), among: among, want: "Leading east 20 Elected next west persist",
		},
		"but it does where nobody leads: a follower's Lease may have been read first": {
			now: at(2), state: state(record(election.Vacant, ""), standing("west", epoch, -1)), among: among, want: "Leading west 20 Adopted next east persist",
		},
		"not an older one, even there": {
			now: at(20), state: state(record(election.Vacant, ""), standing("west", epoch-1, 10)), among: among, want: "close",
		},
		"nor one that does not stand any more": {
			now: at(20), state: state(record(election.Vacant, ""), standing("west", epoch, -1)), among: among, want: "close",
		},
		"a cluster that is not even known is followed all the same": {
			now: at(2), state: state(election.Record{}, standing("north", 30, -1)), among: among, want: "Leading north 30 Adopted next east persist",
		},
		"without a policy nothing is raised": {
			now: at(2), noPolicy: true, state: state(election.Record{}, standing("west", 30, -1)), want: "close",
		},
	})
}

func TestARecordOlderThanTheLeases(t *testing.T) {
	among := []election.Candidate{fit("east", 100), fit("west", 50)}
	s := election.State{
		Record: record(election.Leading, "east", followedBy("west")), Tenure: young(), Sent: closed(), Highest: 30, LargestDuration: 60 * second,
	}
	decide(t, map[string]decision{
		"is no term to keep": {now: at(1), state: s, among: among, want: "Draining east 20 LeaseLost next east after 1m0s persist"},
		"not even for an unknown leader": {
			now: at(1), state: s, among: []election.Candidate{unknown("east", 100), fit("west", 50)}, want: "Draining east 20 LeaseLost next west after 1m0s persist",
		},
	})
}

// The members are read one after the other, and the leader's may come last.
func TestALostRecordWaitsForTheLeadersLease(t *testing.T) {
	among := []election.Candidate{fit("east", 100), unknown("west", 50)}
	s := election.State{Tenure: young(), Sent: closed(), Highest: 30, LargestDuration: 15 * second}
	d := election.Next(at(1), policy(), s, among)
	if got, want := say(d), "Vacant nobody 30 WaitingForExpiry next east waiting WaitingForExpiry after 15s persist"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	for _, cluster := range []string{"east", "west"} {
		if got := election.Assign(d.Record, "fleet", cluster, 15*second, false); got.Role != assign.Hold {
			t.Errorf("the Lease in %s is to be %+v", cluster, got)
		}
	}
	s.Record, s.Found = d.Record, standing("west", 30, -1)
	if got, want := say(election.Next(at(2), policy(), s, among)), "Leading west 30 Adopted next east persist"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestAnAdoptedTermIsTheOneThatStands(t *testing.T) {
	st := standing("west", 30, -1)
	s := election.State{Tenure: young(), Sent: closed(), Found: st, Highest: 30, LargestDuration: 60 * second}
	d := election.Next(at(2), policy(), s, []election.Candidate{fit("east", 100), fit("west", 50)})
	want := election.Record{
		Leader: "west", Epoch: 30, State: election.Leading, Reason: reason.Adopted, Since: wall(2), AcquireTime: st.Term.AcquireTime,
		// The Lease says 15 s, but the renewTimes before it may have carried more.
		Duration: 60 * second, LeaseName: "leasecast", Next: "east", Observed: map[string]int32{"east": 100, "west": 50},
	}
	if !reflect.DeepEqual(d.Record, want) || !d.Persist {
		t.Errorf("\n got %+v\nwant %+v", d.Record, want)
	}
}

func TestAnAdoptedTermKeepsTheLongestD(t *testing.T) {
	for name, test := range map[string]struct {
		copied, recorded, largest, want time.Duration
	}{
		"the Lease's":  {copied: 60 * second, recorded: 15 * second, largest: 15 * second, want: 60 * second},
		"the record's": {copied: 15 * second, recorded: 60 * second, largest: 15 * second, want: 60 * second},
		"the seal's":   {copied: 15 * second, recorded: 15 * second, largest: 60 * second, want: 60 * second},
	} {
		t.Run(name, func(t *testing.T) {
			st := standing("west", 30, 1)
			st.Term.Duration = test.copied
			s := election.State{
				Record: record(election.Leading, "east", lasting(test.recorded)), Tenure: young(), Sent: closed(),
				Found: st, Highest: 30, LargestDuration: test.largest,
			}
			d := election.Next(at(2), policy(), s, []election.Candidate{fit("west", 50)})
			if d.Record.Reason != reason.Adopted || d.Record.Duration != test.want {
				t.Errorf("%s with D %v, want it adopted with %v", say(d), d.Record.Duration, test.want)
			}
		})
	}
}
