package election_test

import (
	"maps"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/election"
)

// A record is written when anything in it changes, and left alone otherwise. The one of a namespace
// whose Leases are to be taken is the test, because all of it is known.
func TestWhateverARecordSaysIsPersisted(t *testing.T) {
	state := func() election.State {
		return election.State{Tenure: settled(), Sent: closed(), Highest: 30, Moved: true, Record: election.Record{
			Epoch: 30, State: election.Vacant, Reason: reason.Moved, Since: wall(-5), Duration: 15 * second,
			LeaseName: "leasecast", Observed: map[string]int32{"east": 100},
		}}
	}
	for name, test := range map[string]struct {
		change func(*election.State)
		left   bool
	}{
		"nothing":               {func(*election.State) {}, true},
		"a leader":              {change: func(s *election.State) { s.Record.Leader = "east" }},
		"a lower epoch":         {change: func(s *election.State) { s.Highest = 31 }},
		"a revoked term":        {change: func(s *election.State) { s.Record.Revoked = 29 }},
		"another phase":         {change: func(s *election.State) { s.Record.State, s.Record.Since = election.Retired, wall(2) }},
		"another reason":        {change: func(s *election.State) { s.Record.Reason, s.Record.Since = reason.NoCandidate, wall(2) }},
		"a term":                {change: func(s *election.State) { s.Record.AcquireTime = wall(-5) }},
		"a shorter D":           {change: func(s *election.State) { s.Record.Duration = 10 * second }},
		"another Lease":         {change: func(s *election.State) { s.Record.LeaseName = "other" }},
		"a bound":               {change: func(s *election.State) { s.Record.NotBefore = wall(9) }},
		"a successor":           {change: func(s *election.State) { s.Record.Next = "west" }},
		"another priority":      {change: func(s *election.State) { s.Record.Observed["east"] = 50 }},
		"a cluster that is not": {change: func(s *election.State) { s.Record.Observed["west"] = 50 }},
	} {
		t.Run(name, func(t *testing.T) {
			s := state()
			test.change(&s)
			d := election.Next(at(2), policy(), s, []election.Candidate{fit("east", 100)})
			if d.Record.State != election.Vacant || d.Persist == test.left {
				t.Errorf("%s, want it persisted: %v", say(d), !test.left)
			}
		})
	}
}

func TestSinceIsWhenItBecameSo(t *testing.T) {
	for name, test := range map[string]struct {
		phase election.RecordState
		why   reason.Reason
		want  time.Time
	}{
		"as before":         {election.Vacant, reason.Moved, wall(-5)},
		"for another cause": {election.Vacant, reason.NoCandidate, wall(2)},
		"in another phase":  {election.Draining, reason.Moved, wall(2)},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(test.phase, "", because(test.why))
			r.Since = wall(-5)
			d := election.Next(at(2), policy(), election.State{Record: r, Tenure: settled(), Sent: closed(), Moved: true}, []election.Candidate{fit("east", 100)})
			if d.Record.Reason != reason.Moved || !d.Record.Since.Equal(test.want) {
				t.Errorf("%s since %v, want %v", say(d), d.Record.Since, test.want)
			}
		})
	}
}

func TestARecordThatMovedNeedsAPolicyAndClusters(t *testing.T) {
	state := election.State{Tenure: settled(), Sent: closed(), Moved: true}
	open := state
	open.Sent.Final = false
	decide(t, map[string]decision{
		"without a policy it is retired, as any other": {now: at(2), noPolicy: true, state: open, among: []election.Candidate{fit("east", 100)}, want: "close"},
		"an empty list decides nothing":                {now: at(2), state: state, want: "lost waiting NoCandidate"},
	})
	d := election.Next(at(2), policy(), state, []election.Candidate{fit("east", 100)})
	if d.Record.Duration != 15*second {
		t.Errorf("where no D is known the record gets %v, want the policy's", d.Record.Duration)
	}
}

// A cluster that still settles is judged later, but for a leader that is chosen in its absence.
func TestWhoseLabelCounts(t *testing.T) {
	among := []election.Candidate{unguarded("east", 100), fit("west", 50)}
	for name, test := range map[string]struct {
		state election.State
		want  map[string]int32
	}{
		"Leases that are to be taken choose nobody": {
			election.State{Tenure: settled(), Sent: closed(), Moved: true}, map[string]int32{"west": 50},
		},
		"an adopted leader was chosen": {
			election.State{Tenure: young(), Found: standing("west", 30, 1), Highest: 30}, map[string]int32{"east": 100, "west": 50},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := election.Next(at(2), policy(), test.state, among); !maps.Equal(d.Record.Observed, test.want) || !d.Persist {
				t.Errorf("%s counts %v, want %v", say(d), d.Record.Observed, test.want)
			}
		})
	}
}

// A D that is longer in the policy than in the record may have been renewed with by an earlier tenure, before it
// could be recorded here.
func TestThePolicysLongerDBounds(t *testing.T) {
	east, west := fit("east", 100), fit("west", 50)
	decide(t, map[string]decision{
		"a drain": {
			now: at(5), policy: policy(duration(60 * second)), state: leading(during(young()), having(closed())),
			among: []election.Candidate{unfit("east", 100, reason.Unreachable), west}, want: "Draining east 20 Unreachable next west after 56s persist",
		},
		"the patience with an unknown leader": {
			now: at(5), policy: policy(duration(60 * second)), state: leading(during(young()), having(closed())),
			among: []election.Candidate{unknown("east", 100), west}, want: kept + " after 56s persist",
		},
		"also after the record's own D has passed": {
			now: at(20), policy: policy(duration(60 * second)), state: leading(during(young()), having(closed())),
			among: []election.Candidate{unknown("east", 100), west}, want: kept + " after 41s persist",
		},
		"an election": {
			now: at(5), policy: policy(duration(60 * second)), state: election.State{Record: record(election.Vacant, ""), Tenure: young(), Sent: closed()},
			among: []election.Candidate{east, west}, want: "Vacant nobody 20 WaitingForExpiry next east waiting WaitingForExpiry after 56s persist",
		},
		"the wait for a clock that is behind by years": {
			now: at(70), policy: policy(duration(60 * second)),
			state: draining(reason.ClockSkewed, func(s *election.State) { s.Behind = 1 << 55 }), // until 15 + 60
			among: []election.Candidate{unfit("east", 100, reason.ClockSkewed), prepared(west)},
			want:  "Draining east 20 ClockSkewed next west waiting WaitingForExpiry after 5s persist",
		},
	})
}

func TestWhenToAskAgain(t *testing.T) {
	inherited := func(seconds float64) election.Tenure {
		return election.Tenure{Started: at(0), Inherited: wall(seconds)}
	}
	decide(t, map[string]decision{
		"where nothing is known of D, in a second": {
			now: at(1), noPolicy: true, state: election.State{Tenure: inherited(9), Sent: closed()}, want: "lost waiting WaitingForExpiry after 1s",
		},
		"when a shorter D may be recorded, also for an unknown leader: that is sooner than its bound": {
			now: at(5), state: leading(recorded(lasting(60*second)), having(open(election.Sent{Until: wall(60), BootUntil: boot(60)}))),
			among: []election.Candidate{unknown("east", 100), fit("west", 50)}, want: kept + " after 40s",
		},
	})
}

// A successor is prepared by a Lease that is renewed no earlier than the draining began. Where
// the record says nothing credible of that, it begins now.
func TestADrainThatBeganAtNoInstant(t *testing.T) {
	among := []election.Candidate{unfit("east", 100, reason.Unreachable), fit("west", 50)}
	for name, test := range map[string]struct {
		since, want time.Time
		persist     bool
	}{
		"in the past": {wall(1), wall(1), false},
		"now":         {wall(100), wall(100), false},
		"never":       {time.Time{}, wall(100), true},
		"tomorrow":    {wall(86_400), wall(100), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := draining(reason.Unreachable)
			s.Record.Since = test.since
			d := election.Next(at(100), policy(), s, among)
			if d.Waiting != reason.WaitingForClusters || !d.Record.Since.Equal(test.want) || d.Persist != test.persist {
				t.Errorf("%s since %v, want %v", say(d), d.Record.Since, test.want)
			}
			if a := election.Assign(d.Record, "fleet", "west", 15*second, false); !a.MinRenewTime.Equal(test.want) {
				t.Errorf("a Lease counts as fresh from %v on, want %v", a.MinRenewTime, test.want)
			}
		})
	}
}

func TestAVacancySaysUntilWhenAndUnderWhichName(t *testing.T) {
	for name, test := range map[string]struct {
		now       lease.Reading
		lease     string
		notBefore time.Time
	}{
		"until the bound, under the old name": {at(5), "old", wall(16)},
		"then under the policy's":             {at(16), "leasecast", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := election.State{Record: record(election.Vacant, "", because(reason.WaitingForExpiry)), Tenure: young(), Sent: closed()}
			s.Record.LeaseName = "old"
			d := election.Next(test.now, policy(), s, []election.Candidate{unfit("east", 100, reason.Unreachable)})
			if d.Record.LeaseName != test.lease || !d.Record.NotBefore.Equal(test.notBefore) {
				t.Errorf("%s under %s not before %v, want %s and %v", say(d), d.Record.LeaseName, d.Record.NotBefore, test.lease, test.notBefore)
			}
		})
	}
}

func TestNobodyWaitsForWhoCannotLead(t *testing.T) {
	s := election.State{Record: record(election.Vacant, ""), Tenure: election.Tenure{Started: at(0), Inherited: wall(-100)}, Sent: closed()}
	decide(t, map[string]decision{
		"a better cluster that is lost": {
			now: at(1), state: s, among: []election.Candidate{unfit("east", 100, reason.Unreachable), fit("west", 50)}, want: "Leading west 21 Elected persist",
		},
		"but for one that settles": {
			now: at(1), state: s, among: []election.Candidate{unknown("east", 100), fit("west", 50)},
			want: "Vacant nobody 20 WaitingForClusters next west waiting WaitingForClusters after 14s persist",
		},
	})
}

// A record that was edited may lead without a leader: that is nobody, not a cluster without a name.
func TestARecordWithoutALeaderNamesNobody(t *testing.T) {
	for _, phase := range []election.RecordState{election.Leading, election.Draining} {
		if a := election.Assign(record(phase, ""), "fleet", "west", 15*second, false); a.Term.Holder != "" || a.Role != assign.Follow {
			t.Errorf("%s: the Lease is to be %+v", phase, a)
		}
	}
}

// Rule 6, where the record and the standing Lease are of one leader, or of one that this tenure has granted.
func TestANewerLeaseRaisesWhateverTheRecordSays(t *testing.T) {
	among := []election.Candidate{fit("east", 100), fit("west", 50)}
	state := func(r election.Record, epoch int64) election.State {
		return election.State{Record: r, Tenure: young(), Sent: closed(), Found: standing("east", epoch, -1), Highest: epoch}
	}
	decide(t, map[string]decision{
		"a newer term of the same leader": {
			now: at(2), state: state(record(election.Leading, "east"), 30), among: among, want: "Leading east 30 Adopted next west persist",
		},
		"a newer term than this tenure has granted": {
			now: at(2), state: mine(state(record(election.Leading, "west"), 30)), among: among, want: "Leading east 30 Adopted next west persist",
		},
		"the term that this tenure has granted, and taken back": {
			now: at(2), state: mine(state(record(election.Vacant, ""), epoch)), among: among, want: "Leading east 20 Adopted next west persist",
		},
	})
}

func TestWhoIsWorthWaitingFor(t *testing.T) {
	s := election.State{Record: record(election.Vacant, ""), Tenure: election.Tenure{Started: at(0), Inherited: wall(-100)}, Sent: closed()}
	decide(t, map[string]decision{
		"not a worse one, though its name comes first": {
			now: at(1), state: s, among: []election.Candidate{unknown("abel", 10), fit("west", 50)}, want: "Leading west 21 Elected persist",
		},
	})
}

func TestPrioritiesMayBeNegative(t *testing.T) {
	counted := func(h map[string]int32) election.State { return leading(recorded(counting(h))) }
	decide(t, map[string]decision{
		"a leader that nobody has counted was not lowered": {
			now: at(5), state: counted(map[string]int32{"west": 3}), among: []election.Candidate{fit("east", -5), fit("west", 3)},
			want: "Leading east 20 Elected next west persist",
		},
		"a new cluster above the leader is an edit": {
			now: at(5), state: counted(map[string]int32{"east": -10}), among: []election.Candidate{fit("east", -10), fit("west", -5)},
			want: "Draining east 20 PriorityChanged next west after 11s persist",
		},
	})
}

func TestALeaderThatOnlyKeepsWhatItHasMayLoseIt(t *testing.T) {
	decide(t, map[string]decision{
		"when its Lease was lost": {
			now: at(5), state: leading(copyLost), among: []election.Candidate{paused("east", 100), fit("west", 50)},
			want: "Draining east 20 LeaseLost next west after 11s persist",
		},
	})
}

// Rule 5: what an earlier tenure can have promised, under the longest D and the largest ε, must have run out before a
// term is revoked or a release counts.
func TestRevocationWaitsForWhatWasInherited(t *testing.T) {
	const waits, revokes = "Draining east 20 PriorityChanged next west waiting WaitingForExpiry after ",
		"Draining east 21 PriorityChanged next west waiting WaitingForReaders after "
	drain := func(changes ...func(*election.State)) election.State {
		s := draining(reason.PriorityChanged, append([]func(*election.State){during(young())}, changes...)...)
		s.Record.NotBefore = s.Sent.Until.Add(second)
		return s
	}
	revoked := func(s *election.State) { s.Record.Revoked, s.Record.Epoch, s.Released = epoch, epoch+1, true }
	holder, next := fit("east", 100), prepared(fit("west", 200))
	ack, longer := policy(acknowledging), policy(acknowledging, duration(60*second))
	for name, test := range map[string]struct {
		now    float64
		policy *election.Policy
		state  election.State
		want   string
	}{
		"by ε":                         {15.999, ack, drain(having(sent(10))), waits + "10.001s"},
		"and no longer":                {16, ack, drain(having(sent(10))), revokes + "10s persist"},
		"by the policy's longer D":     {20, longer, drain(having(sent(10))), waits + "41s persist"},
		"a release by ε":               {15.999, ack, drain(having(sent(10)), revoked), revokes + "10.001s"},
		"and no longer, too":           {16, ack, drain(having(sent(10)), revoked), "Leading west 22 HandedOver next east persist"},
		"one by the policy's longer D": {20, longer, drain(having(sent(10)), revoked), revokes + "41s persist"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := say(election.Next(at(test.now), test.policy, test.state, []election.Candidate{holder, next})); got != test.want {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestWhatIsNotRevoked(t *testing.T) {
	holder, next := fit("east", 100), prepared(fit("west", 200))
	decide(t, map[string]decision{
		"a retired term: it drains first": {
			now: at(2), policy: policy(acknowledging), among: []election.Candidate{holder, next},
			state: leading(func(s *election.State) { s.Record = record(election.Retired, "east") }),
			want:  "Draining east 20 PolicyGone next west waiting WaitingForExpiry after 14s persist",
		},
		"one that drains because the hub saw it fail with most others": {
			now: at(2), policy: policy(acknowledging), among: []election.Candidate{unfitButAnswering(), prepared(fit("west", 50))},
			state: draining(reason.Unreachable, mostUnreachable),
			want:  "Draining east 20 Unreachable next west waiting WaitingForExpiry after 14s",
		},
		"a record without a leader is granted to nobody": {
			now: at(2), policy: policy(acknowledging), among: []election.Candidate{unfit("west", 50, reason.Unreachable)},
			state: draining(reason.Gone, func(s *election.State) {
				s.Record.Leader, s.Record.Revoked, s.Record.Epoch, s.Released = "", epoch, epoch+1, true
			}),
			want: "Draining nobody 21 Gone waiting WaitingForReaders after 14s persist",
		},
	})
}

func unfitButAnswering() election.Candidate {
	return answering(unfit("east", 100, reason.Unreachable))
}

func TestARecordWithoutAPhaseIsLost(t *testing.T) {
	r := election.Record{Leader: "west", Epoch: epoch, Duration: 5 * second, LeaseName: "leasecast"}
	if !r.Lost() {
		t.Error("it is believed")
	}
	decide(t, map[string]decision{
		"and waits for the largest D ever": {
			now: at(5), state: election.State{Record: r, Tenure: young(), Sent: closed(), LargestDuration: 60 * second},
			among: []election.Candidate{fit("east", 100)},
			want:  "Vacant west 20 WaitingForExpiry next east waiting WaitingForExpiry after 56s persist",
		},
	})
}
