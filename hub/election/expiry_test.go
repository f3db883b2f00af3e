package election_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// Rules 4 and 5: first close the source of renewTimes, then count.
func TestGrantAfterWhatThisTenureSent(t *testing.T) {
	lost, next := unfit("east", 100, reason.Unreachable), prepared(fit("west", 50))
	draining := record(election.Draining, "east", followedBy("west"), notBefore(16))
	state := func(s election.Sent, changes ...func(*election.Record)) election.State {
		r := draining
		for _, change := range changes {
			change(&r)
		}
		return election.State{Record: r, Tenure: settled(), Sent: s}
	}
	const granted = "Leading west 21 FailedOver persist"
	decide(t, map[string]decision{
		"a drain starts only when the source of renewTimes is closed": {
			now: at(10), among: []election.Candidate{lost, next}, want: "close",
			state: election.State{Record: record(election.Leading, "east"), Tenure: settled(), Sent: open(sent(0))},
		},
		"then the bound is the latest renewTime + D + ε": {
			now: at(10), among: []election.Candidate{lost, next},
			want:  "Draining east 20 Unreachable next west after 6s persist",
			state: election.State{Record: record(election.Leading, "east"), Tenure: settled(), Sent: sent(0)},
		},
		"a draining term whose source is open is not counted": {
			now: at(20), state: state(open(sent(0))), among: []election.Candidate{lost, next}, want: "close",
		},
		"nor is a vacant one": {
			now: at(20), among: []election.Candidate{next}, want: "close",
			state: election.State{Record: record(election.Vacant, ""), Tenure: settled(), Sent: open(sent(0))},
		},
		"nor a lost one": {
			now: at(20), among: []election.Candidate{next}, want: "close",
			state: election.State{Tenure: settled(), Sent: open(sent(0))},
		},
		"nor a retired one": {
			now: at(20), noPolicy: true, want: "close",
			state: election.State{Record: record(election.Retired, "east"), Tenure: settled(), Sent: open(sent(0))},
		},
		"no grant while a Lease may be live": {
			now: at(14.999), state: state(sent(0)), among: []election.Candidate{lost, next},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1.001s",
		},
		"no grant before ε has passed too": {
			now: at(15.999), state: state(sent(0)), among: []election.Candidate{lost, next},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"a grant at the bound": {
			now: at(16), state: state(sent(0)), among: []election.Candidate{lost, next}, want: granted,
		},
		"what was sent counts, not the policy's shorter D": {
			now: at(15.999), state: state(sent(0)), policy: policy(duration(14 * second)),
			among: []election.Candidate{lost, next},
			want:  "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"nor its longer one": {
			now: at(16), state: state(sent(0)), policy: policy(duration(60 * second)),
			among: []election.Candidate{lost, next}, want: granted,
		},
		"a wall clock stepped forward grants nothing: the boot clock has to agree": {
			now: lease.Reading{Wall: wall(100), Boot: boot(15.999)}, state: state(sent(0)),
			among: []election.Candidate{lost, next},
			want:  "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"a wall clock stepped back delays: it was what renewTimes were made of": {
			now: lease.Reading{Wall: wall(15.999), Boot: boot(30)}, state: state(sent(0)),
			among: []election.Candidate{lost, next},
			want:  "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"but for no longer than another D + ε: readers refuse the renewTimes of a clock that was an hour ahead": {
			now: lease.Reading{Wall: wall(-3600), Boot: boot(31.999)}, state: state(sent(0)),
			among: []election.Candidate{lost, next},
			want:  "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"and then": {
			now: lease.Reading{Wall: wall(-3600), Boot: boot(32)}, state: state(sent(0)),
			among: []election.Candidate{lost, next},
			want:  "Leading west 21 FailedOver persist",
		},
		"a wait is looked at again after D + ε, for the clock may be put right": {
			now: lease.Reading{Wall: wall(-5000), Boot: boot(2)}, state: state(sent(0)),
			among: []election.Candidate{lost, next},
			want:  "Draining east 20 Unreachable next west waiting WaitingForExpiry after 16s",
		},
		"what was sent under a larger ε stands for as long as was right then": {
			now: at(18.999), state: state(under(4*second, sent(0)), notBefore(19)), among: []election.Candidate{lost, next},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"on the boot clock too": {
			now: lease.Reading{Wall: wall(100), Boot: boot(18.999)}, state: state(under(4*second, sent(0)), notBefore(19)), among: []election.Candidate{lost, next},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"and no longer": {now: at(19), state: state(under(4*second, sent(0))), among: []election.Candidate{lost, next}, want: granted},
		"under a smaller one it stands for the policy's": {
			now: at(15.999), state: state(under(second/2, sent(0))), among: []election.Candidate{lost, next},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"where locks are fenced, their stop time has to pass, too": {
			now: at(32.999), state: state(stopping(17*second, sent(0)), notBefore(33)), policy: policy(locks(17 * second)),
			among: []election.Candidate{lost, next}, want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"on the boot clock, too": {
			now: lease.Reading{Wall: wall(100), Boot: boot(32.999)}, state: state(stopping(17*second, sent(0)), notBefore(33)), policy: policy(locks(17 * second)),
			among: []election.Candidate{lost, next}, want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"and no more": {
			now: at(33), state: state(stopping(17*second, sent(0)), notBefore(33)), policy: policy(locks(17 * second)), among: []election.Candidate{lost, next}, want: granted,
		},
		"a lock that the policy does not name any more is waited for": {
			now: at(32.999), state: state(stopping(17*second, sent(0)), notBefore(33)), among: []election.Candidate{lost, next},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"a lock that the policy names since the last Lease was sent is not waited for: that Lease has not opened it": {
			now: at(16), state: state(sent(0), notBefore(16)), policy: policy(locks(17 * second)), among: []election.Candidate{lost, next},
			want: granted,
		},
		"a slow lock that was fenced before the last Lease was sent is waited for": {
			now: at(39.999), state: state(after(40, sent(0)), notBefore(40)), among: []election.Candidate{lost, next},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"also on the boot clock": {
			now:   lease.Reading{Wall: wall(100), Boot: boot(39.999)},
			state: state(after(40, sent(0)), notBefore(40)), among: []election.Candidate{lost, next},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"and for no longer": {
			now: at(40), state: state(after(40, sent(0)), notBefore(40)), among: []election.Candidate{lost, next},
			want: granted,
		},
		"and for longer where the leader's clock is late": {
			now:   at(45.999),
			state: behind(7*second, state(after(40, sent(0)), notBefore(46))),
			among: []election.Candidate{lost, next},
			want:  "Draining east 20 Unreachable next west waiting WaitingForExpiry after 1ms",
		},
		"a policy that is gone shortens no stop time": {
			now: at(40), noPolicy: true, want: "Retired east 20 PolicyGone waiting WaitingForExpiry after 7s",
			state: election.State{Record: record(election.Retired, "east"), Tenure: settled(), Sent: stopping(17*second, sent(0))},
		},
		"a bound that the record names is not trusted": {
			now: at(10), state: state(sent(0), notBefore(5)), among: []election.Candidate{lost, next},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 6s persist",
		},
		"not even a later one": {
			now: at(16), state: state(sent(0), notBefore(500)), among: []election.Candidate{lost, next}, want: granted,
		},
		"in a settled tenure that sent nothing there is nothing to wait for": {
			now: at(1), state: state(closed()), among: []election.Candidate{lost, next}, want: granted,
		},
	})
}

// Rule 6: what an earlier tenure sent is unknown.
func TestGrantAfterWhatEarlierTenuresSent(t *testing.T) {
	lost, next := unfit("east", 100, reason.Unreachable), prepared(fit("west", 50))
	inheriting := func(seconds float64) election.Tenure {
		return election.Tenure{Started: at(0), Inherited: wall(seconds)}
	}
	state := func(tn election.Tenure, s election.Sent, changes ...func(*election.Record)) election.State {
		return election.State{
			Record: record(election.Draining, "east", append(changes, followedBy("west"))...), Tenure: tn, Sent: s,
		}
	}
	wait := func(after string, at string) string {
		return "Draining east 20 Unreachable next west waiting WaitingForExpiry after " + after + at
	}
	const granted = "Leading west 21 FailedOver persist"
	decide(t, map[string]decision{
		"it can have renewed until the deadline that was inherited, + D + ε": {
			now: at(17.999), state: state(inheriting(2), closed(), notBefore(18)),
			among: []election.Candidate{lost, next}, want: wait("1ms", ""),
		},
		"and no longer": {
			now: at(18), state: state(inheriting(2), closed(), notBefore(18)),
			among: []election.Candidate{lost, next}, want: granted,
		},
		"with the policy's D where the record was edited to less": {
			now: at(17.999), state: state(inheriting(2), closed(), lasting(second), notBefore(18)),
			among: []election.Candidate{lost, next}, want: wait("1ms", ""),
		},
		"with the largest D ever sent where the record was edited to less, and the policy's D is less too": {
			now: at(62.999), among: []election.Candidate{lost, next},
			state: election.State{
				Record: record(election.Draining, "east", followedBy("west"), lasting(second), notBefore(63)), Tenure: inheriting(2),
				Sent: closed(), LargestDuration: 60 * second,
			},
			want: wait("1ms", ""),
		},
		"with the largest ε under which anything was ever sent": {
			now: at(20.999), among: []election.Candidate{lost, next},
			state: election.State{
				Record: record(election.Draining, "east", followedBy("west"), notBefore(21)), Tenure: inheriting(2), Sent: closed(), LargestSkew: 4 * second,
			},
			want: wait("1ms", ""),
		},
		"with the largest stop time under which anything was ever sent": {
			now: at(34.999), among: []election.Candidate{lost, next},
			state: election.State{
				Record: record(election.Draining, "east", followedBy("west"), notBefore(35)), Tenure: inheriting(2), Sent: closed(), LargestStop: 17 * second,
			},
			want: wait("1ms", ""),
		},
		"with the D of the record, not the policy's": {
			now: at(62.999), state: state(inheriting(2), closed(), lasting(60*second), notBefore(63)),
			among: []election.Candidate{lost, next}, want: wait("1ms", ""),
		},
		"what was sent by this tenure shortens it by nothing": {
			now: at(17.999), state: state(inheriting(2), sent(0), notBefore(18)),
			among: []election.Candidate{lost, next}, want: wait("1ms", ""),
		},
		"what was sent by this tenure comes on top": {
			now: at(20), state: state(inheriting(2), sent(5), notBefore(21)),
			among: []election.Candidate{lost, next}, want: wait("1s", ""),
		},
		"on the boot clock it counts from the start of the tenure": {
			now: lease.Reading{Wall: wall(100), Boot: boot(17.999)}, state: state(inheriting(2), closed(), notBefore(18)),
			among: []election.Candidate{lost, next}, want: wait("1ms", ""),
		},
		"also when this tenure has sent something since": {
			now: lease.Reading{Wall: wall(100), Boot: boot(17.999)}, state: state(inheriting(2), sent(0), notBefore(18)),
			among: []election.Candidate{lost, next}, want: wait("1ms", ""),
		},
		"a hub that comes back after a long outage grants at once": {
			now: at(0.001), state: state(inheriting(-600), closed()), among: []election.Candidate{lost, next}, want: granted,
		},
		"a record older than the Leases says nothing of D: the largest ever counts": {
			now: at(77.999), among: []election.Candidate{lost, next},
			state: election.State{
				Record: record(election.Draining, "east", followedBy("west"), notBefore(78)), Tenure: inheriting(17),
				Sent: closed(), Highest: epoch + 1, LargestDuration: 60 * second,
			},
			want: wait("1ms", ""),
		},
	})
}

// Rule 6: an empty record is a lost one.
func TestALostRecord(t *testing.T) {
	among := []election.Candidate{fit("east", 100), fit("west", 50)}
	state := func(tn election.Tenure, s election.Sent, largest time.Duration) election.State {
		return election.State{Tenure: tn, Sent: s, LargestDuration: largest}
	}
	decide(t, map[string]decision{
		"grants nothing before the largest D ever sent has passed": {
			now: at(60.999), state: state(young(), closed(), 60*second), among: among,
			want: "Vacant nobody 0 WaitingForExpiry next east waiting WaitingForExpiry after 1ms persist",
		},
		"grants then, from the seconds": {
			now: at(61), state: state(young(), closed(), 60*second), among: among,
			want: "Leading east 41 Elected next west persist",
		},
		"a namespace that appears in a settled tenure has its leader at once": {
			now: at(0), state: state(settled(), closed(), 60*second), among: among,
			want: "Leading east 1 Elected next west persist",
		},
		"what this tenure sent before the record was lost still counts": {
			now: at(9), state: state(settled(), sent(0), 15*second), among: among,
			want: "Vacant nobody 0 WaitingForExpiry next east waiting WaitingForExpiry after 7s persist",
		},
		"an empty record object is no better than none": {
			now: at(1), among: among,
			state: election.State{
				Record: election.Record{Observed: map[string]int32{}}, Tenure: young(), Sent: closed(), LargestDuration: 15 * second,
			},
			want: "Vacant nobody 0 WaitingForExpiry next east waiting WaitingForExpiry after 15s persist",
		},
		"nor is one without a D, whatever else it says": {
			now: at(60.999), among: among,
			state: election.State{
				Record: record(election.Vacant, "", lasting(0)), Tenure: young(), Sent: closed(), LargestDuration: 60 * second,
			},
			want: "Vacant nobody 20 WaitingForExpiry next east waiting WaitingForExpiry after 1ms persist",
		},
		"without a policy it is gone once the largest D has passed twice": {
			now: at(30), noPolicy: true, state: state(young(), closed(), 15*second), want: "gone",
		},
		"and not before: a policy may come back and find no trace of a promise": {
			now: at(29.999), noPolicy: true, state: state(young(), closed(), 15*second),
			want: "lost waiting WaitingForExpiry after 1ms",
		},
		"nor before what this tenure sent has passed": {
			now: at(29), noPolicy: true, state: state(settled(), sent(0), 15*second),
			want: "lost waiting WaitingForExpiry after 1s",
		},
	})
}

// Without a D no Lease could be written.
func TestAVacantRecordHasAD(t *testing.T) {
	s := election.State{Record: record(election.Vacant, "", lasting(0)), Tenure: settled(), Sent: closed()}
	if got := election.Next(at(0), policy(), s, []election.Candidate{unfit("east", 100, reason.Unreachable)}).Record.Duration; got != 15*second {
		t.Errorf("D is %v", got)
	}
}

// What a lost record leaves behind remembers the largest D until it has passed.
func TestALostRecordStaysBounded(t *testing.T) {
	among := []election.Candidate{fit("east", 100)}
	s := election.State{Tenure: young(), Sent: closed(), LargestDuration: 60 * second}
	s.Record = election.Next(at(1), policy(), s, among).Record
	s.LargestDuration = 15 * second // the Secret that remembered it was lost, too
	if got, want := say(election.Next(at(60.999), policy(), s, among)), "Vacant nobody 0 WaitingForExpiry next east waiting WaitingForExpiry after 1ms"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if got, want := say(election.Next(at(61), policy(), s, among)), "Leading east 41 Elected persist"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// Rule 5: a changed D never shortens what was promised.
func TestTheRecordKeepsTheLongestDThatIsOut(t *testing.T) {
	east, west := fit("east", 100), fit("west", 50)
	long := func(s election.Sent) election.Sent { // renewed at zero with 60 s
		s.Until, s.BootUntil = wall(60), boot(60)
		return s
	}
	state := func(tn election.Tenure, s election.Sent, d time.Duration) election.State {
		return election.State{Record: record(election.Leading, "east", lasting(d), followedBy("west")), Tenure: tn, Sent: s}
	}
	tests := map[string]struct {
		now    lease.Reading
		policy time.Duration
		state  election.State
		want   string
		d      time.Duration
	}{
		"a longer D is recorded at once, before any Lease carries it": {
			now: at(0), policy: 60 * second, state: state(settled(), open(sent(0)), 15*second),
			want: "Leading east 20 Elected next west persist", d: 60 * second,
		},
		"a shorter one is not, while a longer promise would outlast a renewTime of now": {
			now: at(44.999), policy: 15 * second, state: state(settled(), open(long(sent(0))), 60*second),
			want: "Leading east 20 Elected next west after 1ms", d: 60 * second,
		},
		"nor on the boot clock": {
			now: lease.Reading{Wall: wall(100), Boot: boot(44.999)}, policy: 15 * second,
			state: state(settled(), open(long(sent(0))), 60*second),
			want:  "Leading east 20 Elected next west after 1ms", d: 60 * second,
		},
		"nor on the wall clock": {
			now: lease.Reading{Wall: wall(44.999), Boot: boot(100)}, policy: 15 * second,
			state: state(settled(), open(long(sent(0))), 60*second),
			want:  "Leading east 20 Elected next west after 1ms", d: 60 * second,
		},
		"nor while the source may still renewTime with the longer one": {
			now: at(45), policy: 15 * second, state: state(settled(), open(long(sent(0))), 60*second),
			want: "close", d: 60 * second,
		},
		"then it is": {
			now: at(45), policy: 15 * second, state: state(settled(), long(sent(0)), 60*second),
			want: "Leading east 20 Elected next west persist", d: 15 * second,
		},
		"nor while a slow lock that was fenced before outlasts a promise of now": {
			now: at(58.999), policy: 15 * second, state: state(settled(), open(after(75, sent(43))), 60*second),
			want: "Leading east 20 Elected next west after 1ms", d: 60 * second,
		},
		"nor by the boot clock": {
			now: lease.Reading{Wall: wall(100), Boot: boot(58.999)}, policy: 15 * second,
			state: state(settled(), open(after(75, sent(43))), 60*second),
			want:  "Leading east 20 Elected next west after 1ms", d: 60 * second,
		},
		"not before what an earlier tenure promised has passed, with ε": {
			now: at(60.999), policy: 15 * second, state: state(young(), sent(45), 60*second),
			want: "Leading east 20 Elected next west after 1ms", d: 60 * second,
		},
		"and then": {
			now: at(61), policy: 15 * second, state: state(young(), sent(45), 60*second),
			want: "Leading east 20 Elected next west persist", d: 15 * second,
		},
		"a clock that is put right is noticed within the recorded D and ε": {
			now: lease.Reading{Wall: wall(-5000), Boot: boot(1)}, policy: 15 * second,
			state: state(settled(), open(long(sent(0))), 60*second),
			want:  "Leading east 20 Elected next west after 1m1s", d: 60 * second,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := election.Next(test.now, policy(duration(test.policy)), test.state, []election.Candidate{east, west})
			if say(got) != test.want || got.Record.Duration != test.d {
				t.Errorf("\n got %s, D %v\nwant %s, D %v", say(got), got.Record.Duration, test.want, test.d)
			}
		})
	}
}

// A tenure that takes over counts with the record's D. So whoever shortened it must have promised nothing that
// outlasts its own last possible renewTime by more.
func TestATakeoverAfterAShortenedDWaitsLongEnough(t *testing.T) {
	east, west := fit("east", 100), fit("west", 50)
	s := election.State{Record: record(election.Leading, "east", lasting(60*second)), Tenure: settled()}
	stamp := func(now float64, d time.Duration) {
		s.Sent = election.Sent{
			Until: maxTime(s.Sent.Until, wall(now).Add(d)), BootUntil: max(s.Sent.BootUntil, boot(now)+d),
		}
	}
	stamp(0, 60*second)
	shorter := policy(duration(15 * second))
	for now := 1.0; now < 100; now++ {
		d := election.Next(at(now), shorter, s, []election.Candidate{east, west})
		if d.StopRenewing {
			s.Sent.Final = true
			d = election.Next(at(now), shorter, s, []election.Candidate{east, west})
		}
		s.Record, s.Sent.Final = d.Record, false
		// The tenure may end right now. The next one inherits this instant.
		heir := election.State{Record: s.Record, Tenure: election.Tenure{Started: at(now), Inherited: wall(now)}, Sent: closed()}
		heir.Record.State, heir.Record.Reason = election.Draining, reason.Unreachable
		for later := now; ; later += 0.5 {
			d := election.Next(at(later), shorter, heir, []election.Candidate{unfit("east", 100, reason.Unreachable), prepared(west)})
			if d.Record.State != election.Leading {
				continue
			}
			if wall(later).Before(s.Sent.Until.Add(second)) {
				t.Fatalf("at %v a new tenure grants at %v what was promised until %v", now, later, s.Sent.Until.Sub(zero))
			}
			break
		}
		if int(now)%5 == 0 {
			stamp(now, min(15*second, s.Record.Duration))
		}
	}
	if s.Record.Duration != 15*second {
		t.Errorf("the record still says %v", s.Record.Duration)
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
