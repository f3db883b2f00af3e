package election_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// Rule 7: epoch = max(1 + highest, seconds since 2025).
func TestEpoch(t *testing.T) {
	among := []election.Candidate{fit("east", 100)}
	vacant := func(epoch, highest int64) election.State {
		r := record(election.Vacant, "")
		r.Epoch = epoch
		return election.State{Record: r, Tenure: settled(), Sent: closed(), Highest: highest}
	}
	decide(t, map[string]decision{
		"one above the record's": {now: at(0), state: vacant(20, 0), among: among, want: "Leading east 21 Elected persist"},
		"one above the highest sealed Lease's": {
			now: at(0), state: vacant(20, 30), among: among, want: "Leading east 31 Elected persist",
		},
		"never below the seconds": {now: at(60), state: vacant(3, 2), among: among, want: "Leading east 40 Elected persist"},
		"one above the highest Lease's when the record is lost": {
			now: at(0), state: election.State{Tenure: settled(), Sent: closed(), Highest: 30}, among: among,
			want: "Leading east 31 Elected persist",
		},
		"what Leases know is recorded before they go": {
			now: at(0), state: election.State{Tenure: young(), Sent: closed(), Highest: 30, LargestDuration: 15 * second}, among: among,
			want: "Vacant nobody 30 WaitingForExpiry next east waiting WaitingForExpiry after 16s persist",
		},
		"a vacancy keeps it": {
			now: at(16), state: draining(reason.Deleting), among: []election.Candidate{unfit("east", 100, reason.Deleting)},
			want: "Vacant nobody 20 NoCandidate waiting NoCandidate persist",
		},
		"a new term of the same leader raises it": {
			now: at(16), state: draining(reason.LeaseLost), among: among, want: "Leading east 21 NewTerm persist",
		},
	})
}

// Rule 7: a record outlives its policy until its bound has passed.
func TestRetire(t *testing.T) {
	state := func(r election.Record, changes ...func(*election.State)) election.State {
		s := election.State{Record: r, Tenure: settled(), Sent: sent(0)}
		for _, change := range changes {
			change(&s)
		}
		return s
	}
	retired := record(election.Retired, "east", notBefore(30))
	old := func(r *election.Record) { r.Epoch = 9 } // so that the seconds have overtaken it
	decide(t, map[string]decision{
		"a term ends with its policy": {
			now: at(5), noPolicy: true, state: leading(), want: "Retired east 20 PolicyGone after 25s persist",
		},
		"so does a draining one": {
			now: at(5), noPolicy: true, state: draining(reason.Unreachable), want: "Retired east 20 PolicyGone after 25s persist",
		},
		"the largest ε that a policy of this D could have is waited for": {
			now: at(29.999), noPolicy: true, state: state(record(election.Retired, "east", old)),
			want: "Retired east 9 PolicyGone waiting WaitingForExpiry after 1ms",
		},
		"then the record goes": {
			now: at(30), noPolicy: true, state: state(record(election.Retired, "east", old)), want: "gone",
		},
		"what an earlier tenure sent is waited for too": {
			now: at(29.999), noPolicy: true, state: state(record(election.Retired, "east", old), during(young()), having(closed())),
			want: "Retired east 9 PolicyGone waiting WaitingForExpiry after 1ms",
		},
		"as long as the epoch is ahead of the seconds, the record stays": {
			now: at(35), noPolicy: true, state: state(retired), want: "Retired east 20 PolicyGone waiting WaitingForExpiry after 1s",
		},
		"also when it is level with them": {
			now: at(40.999), noPolicy: true, state: state(retired), want: "Retired east 20 PolicyGone waiting WaitingForExpiry after 1s",
		},
		"and goes when the seconds have overtaken it": {now: at(41), noPolicy: true, state: state(retired), want: "gone"},
		"Leases with a higher epoch count as well": {
			now: at(41), noPolicy: true, state: state(retired, func(s *election.State) { s.Highest = 21 }),
			want: "Retired east 20 PolicyGone waiting WaitingForExpiry after 1s",
		},
		"when the record is lost, what the Leases know is recorded first": {
			now: at(60), noPolicy: true, state: state(election.Record{}, func(s *election.State) { s.Highest = 21 }),
			want: "Retired nobody 21 PolicyGone persist",
		},
		"a policy that comes back after the bound grants a new term": {
			now: at(16), state: state(retired), among: []election.Candidate{fit("east", 100)}, want: "Leading east 21 NewTerm persist",
		},
		"to another one, if it must be": {
			now: at(16), state: state(retired), among: []election.Candidate{prepared(fit("west", 50))}, want: "Leading west 21 HandedOver persist",
		},
		"a policy that comes back after a vacancy elects": {
			now: at(16), state: state(record(election.Retired, "")), among: []election.Candidate{prepared(fit("west", 50))}, want: "Leading west 21 Elected persist",
		},
	})
}

// Rule 13: who is best among those that may lead.
func TestElect(t *testing.T) {
	state := election.State{Record: record(election.Vacant, ""), Tenure: young(), Sent: closed()}
	late := election.State{Record: record(election.Vacant, ""), Tenure: settled(), Sent: closed()}
	eager := election.State{ // whose bound has passed, in its first seconds
		Record: record(election.Vacant, ""), Tenure: election.Tenure{Started: at(0), Inherited: wall(-600)}, Sent: closed(),
	}
	decide(t, map[string]decision{
		"the highest priority wins": {
			now: at(20), state: state, among: []election.Candidate{fit("east", -1), fit("south", 2), fit("west", 1)}, want: "Leading south 21 Elected next west persist",
		},
		"ties go by name": {
			now: at(20), state: state, among: []election.Candidate{fit("west", 1), fit("south", 1), fit("east", 0)}, want: "Leading south 21 Elected next west persist",
		},
		"in whatever order they come": {
			now: at(20), state: state, among: []election.Candidate{fit("east", 0), fit("south", 1), fit("west", 1)}, want: "Leading south 21 Elected next west persist",
		},
		"only a fit one": {
			now: at(20), state: late, want: "Leading south 21 Elected persist",
			among: []election.Candidate{unfit("east", 9, reason.NamespaceMissing), paused("north", 8), unknown("west", 7), fit("south", 1)},
		},
		"none is none": {
			now: at(20), state: late, among: []election.Candidate{unfit("east", 9, reason.Unreachable)}, want: "Vacant nobody 20 NoCandidate waiting NoCandidate",
		},
		"a vacancy waits for the bound, too": {
			now: at(15), state: state, among: []election.Candidate{fit("east", 100)}, want: "Vacant nobody 20 WaitingForExpiry next east waiting WaitingForExpiry after 1s persist",
		},
		"a tenure that has just begun waits for a better one that is not known yet": {
			now: at(14.999), state: eager, among: []election.Candidate{unknown("east", 100), fit("west", 50)},
			want: "Vacant nobody 20 WaitingForClusters next west waiting WaitingForClusters after 1ms persist",
		},
		"or is not guarded yet": {
			now: at(14.999), state: eager, among: []election.Candidate{unguarded("east", 100), fit("west", 50)},
			want: "Vacant nobody 20 WaitingForClusters next west waiting WaitingForClusters after 1ms persist",
		},
		"for D": {
			now: at(15), state: eager, among: []election.Candidate{unknown("east", 100), fit("west", 50)}, want: "Leading west 21 Elected persist",
		},
		"by the boot clock": {
			now: lease.Reading{Wall: wall(100), Boot: boot(14.999)}, state: eager, among: []election.Candidate{unknown("east", 100), fit("west", 50)},
			want: "Vacant nobody 20 WaitingForClusters next west waiting WaitingForClusters after 1ms persist",
		},
		"not for a worse one": {
			now: at(1), state: eager, among: []election.Candidate{fit("east", 100), unknown("west", 50)}, want: "Leading east 21 Elected persist",
		},
		"nor for an equal one that comes later by name": {
			now: at(1), state: eager, among: []election.Candidate{fit("east", 50), unknown("west", 50)}, want: "Leading east 21 Elected persist",
		},
		"but for an equal one that comes first by name": {
			now: at(1), state: eager, among: []election.Candidate{unknown("east", 50), fit("west", 50)},
			want: "Vacant nobody 20 WaitingForClusters next west waiting WaitingForClusters after 14s persist",
		},
	})
}

// Clusters whose namespaces are created at one moment are seen one after the other.
func TestTheFirstLeaderWaitsForBetterClusters(t *testing.T) {
	patient := policy(func(p *election.Policy) { p.InitialDelay = 10 * second })
	seen := func(epoch int64) election.State {
		r := election.Record{State: election.Vacant, Epoch: epoch, Since: wall(100), Duration: 15 * second, LeaseName: "leasecast"}
		return election.State{Record: r, Tenure: settled(), Sent: closed()}
	}
	lost := seen(0)
	lost.Record = election.Record{}
	restarted := seen(0)
	restarted.Record.Since, restarted.Tenure = wall(-4), afterOutage()
	missing := unfit("east", 100, reason.NamespaceMissing)
	west := fit("west", 50)
	const waits = "Vacant nobody 0 WaitingForClusters next west waiting WaitingForClusters after "
	decide(t, map[string]decision{
		"that do not have the namespace yet, from its first sighting": {
			now: at(100), policy: patient, state: lost, among: []election.Candidate{missing, west}, want: waits + "10s persist",
		},
		"that the hub has not reached yet": {
			now: at(109), policy: patient, state: seen(0), among: []election.Candidate{unknown("east", 100), west}, want: waits + "1s persist",
		},
		"that are not guarded yet": {
			now: at(109.999), policy: patient, state: seen(0), among: []election.Candidate{unguarded("east", 100), west}, want: waits + "1ms persist",
		},
		"longer than that while clusters still answer to a hub that was restarted": {
			now: at(5), policy: patient, state: restarted, among: []election.Candidate{unknown("east", 100), west}, want: waits + "10s persist",
		},
		"until the delay is over": {
			now: at(110), policy: patient, state: seen(0), among: []election.Candidate{missing, west}, want: "Leading west 90 Elected persist",
		},
		"not for worse ones": {
			now: at(100), policy: patient, state: seen(0), among: []election.Candidate{fit("east", 100), unfit("west", 50, reason.NamespaceMissing)},
			want: "Leading east 80 Elected persist",
		},
		"not for those that are lost": {
			now: at(100), policy: patient, state: seen(0), among: []election.Candidate{unfit("east", 100, reason.Unreachable), west},
			want: "Leading west 80 Elected persist",
		},
		"not where a leader was before": {
			now: at(100), policy: patient, state: seen(7), among: []election.Candidate{missing, west}, want: "Leading west 80 Elected persist",
		},
		"not by a first sighting that has not been yet": {
			now: at(99.999), policy: patient, state: seen(0), among: []election.Candidate{missing, west}, want: "Leading west 79 Elected persist",
		},
	})
	if d := election.Next(at(100), patient, lost, []election.Candidate{west, missing}); d.Awaited != "east" {
		t.Errorf("the decision names %q as awaited, want east", d.Awaited)
	}
}

func TestAGrantSaysAllOfTheTerm(t *testing.T) {
	s := draining(reason.Unreachable)
	d := election.Next(at(20), policy(duration(30*second), func(p *election.Policy) { p.LeaseName = "other" }), s,
		[]election.Candidate{unfit("east", 7, reason.Unreachable), prepared(fit("west", 8)), unknown("south", 9)})
	want := election.Record{
		Leader: "west", Epoch: 21, State: election.Leading, Reason: reason.FailedOver, Since: wall(20), AcquireTime: wall(20),
		Duration: 30 * second, Skew: second, LeaseName: "other", Observed: map[string]int32{"east": 7, "west": 8, "south": 9},
	}
	if !reflect.DeepEqual(d.Record, want) || !d.Persist {
		t.Errorf("\n got %+v\nwant %+v", d.Record, want)
	}
}

func TestAVacancyKeepsWhatOutlastsATerm(t *testing.T) {
	s := draining(reason.Deleting)
	d := election.Next(at(16), policy(duration(3*second)), s, []election.Candidate{unfit("east", 7, reason.Deleting), unknown("west", 8)})
	want := election.Record{
		Epoch: epoch, State: election.Vacant, Reason: reason.NoCandidate, Since: wall(16),
		Duration: 15 * second, Skew: second, LeaseName: "leasecast", Observed: map[string]int32{"east": 7, "west": 50},
	}
	if !reflect.DeepEqual(d.Record, want) || !d.Persist {
		t.Errorf("\n got %+v\nwant %+v", d.Record, want)
	}
}

func TestADrainSaysWhenAndWhoIsNext(t *testing.T) {
	s := leading()
	d := election.Next(at(5), policy(), s, []election.Candidate{unfit("east", 100, reason.Unreachable), fit("west", 50)})
	want := s.Record
	want.State, want.Reason, want.Since, want.NotBefore = election.Draining, reason.Unreachable, wall(5), wall(16)
	if !reflect.DeepEqual(d.Record, want) {
		t.Errorf("\n got %+v\nwant %+v", d.Record, want)
	}
}

func TestAResumedTermIsTheSameTerm(t *testing.T) {
	s := draining(reason.Unreachable)
	d := election.Next(at(5), policy(), s, []election.Candidate{fit("east", 100), fit("west", 50)})
	want := s.Record
	want.State, want.Reason, want.Since, want.NotBefore = election.Leading, reason.Resumed, wall(5), time.Time{}
	if !reflect.DeepEqual(d.Record, want) {
		t.Errorf("\n got %+v\nwant %+v", d.Record, want)
	}
}

// Why a change of leader came about, for people.
func TestOutcome(t *testing.T) {
	east, west := fit("east", 100), prepared(fit("west", 50))
	for why, want := range map[reason.Reason]reason.Reason{
		reason.Unreachable: reason.FailedOver, reason.Recovering: reason.FailedOver, reason.Forbidden: reason.FailedOver,
		reason.NeverReached: reason.FailedOver, reason.LeaseLost: reason.FailedOver, reason.PriorityChanged: reason.HandedOver,
		reason.Deleting: reason.HandedOver, reason.Gone: reason.HandedOver,
	} {
		s := draining(why)
		if got := election.Next(at(16), policy(), s, []election.Candidate{unfit("east", 100, reason.Deleting), west}).Record.Reason; got != want {
			t.Errorf("a term that ended by %s leads to %s, want %s", why, got, want)
		}
		if got := election.Next(at(16), policy(), s, []election.Candidate{east, west}).Record.Reason; got != reason.NewTerm {
			t.Errorf("a term of the same leader after %s is called %s", why, got)
		}
	}
}
