package election_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// ends is a term that waits for its expiry.
const ends = "Ending east 20 Unreachable next west waiting WaitingForExpiry after "

// Rules 4, 5, 6 and 15: nothing is granted, and no record is deleted, a millisecond before the second in the row on
// either clock. In that second it is.
func TestPromisesEndAt(t *testing.T) {
	type row struct {
		seconds  float64
		state    election.State
		policy   *election.Policy
		noPolicy bool
	}
	lasts := func(d time.Duration) *election.Policy { return policy(duration(d)) }
	fenced := policy(stopTime(17 * second))
	inherits := func(seconds float64, changes ...func(*election.State)) election.State {
		return ending(reason.Unreachable, append(changes, during(inheriting(seconds)))...)
	}
	silent := func(seconds float64, changes ...func(*election.State)) election.State {
		return inherits(seconds, append(changes, having(nothing()))...)
	}
	sends := func(s election.Sent, changes ...func(*election.State)) election.State {
		return ending(reason.Unreachable, append(changes, having(s))...)
	}
	skewed := func(changes ...func(*election.State)) election.State {
		return ending(reason.ClockSkewed, changes...)
	}
	for name, test := range map[string]row{
		"sent: the renewTime + D + ε": {seconds: 16, state: sends(sent(0))},
		"sent under a larger ε":       {seconds: 19, state: sends(withSkew(4*second, sent(0)))},
		"sent with fenced locks: + the stop time": {seconds: 33, state: sends(withStop(17*second, sent(0))),
			policy: fenced},
		"by years, the policy's D is longer": {seconds: 75, state: skewed(behind(1 << 55)),
			policy: lasts(60 * second)},
		"by 7 s, and slower locks were fenced": {seconds: 46,
			state: sends(withEarlier(40, sent(0)), behind(7*second))},
		"inherited: the earlier tenure's end + D + ε": {seconds: 18, state: silent(2)},
		"inherited, the seal has a longer D":          {seconds: 63, state: silent(2, largest(60*second))},
		"inherited, the seal has a larger ε": {seconds: 21,
			state: silent(2, func(s *election.State) { s.LargestSkew = 4 * second })},
		"inherited, the seal has a stop time": {seconds: 35,
			state: silent(2, func(s *election.State) { s.LargestStop = 17 * second })},
		"inherited, and sent since, but shorter":        {seconds: 18, state: inherits(2)},
		"the leader was not read: D + ε from the start": {seconds: 16, state: silent(-500, unread)},
		"the leader was not read, the seal has a longer D": {seconds: 61,
			state: silent(-500, unread, largest(60*second))},
		"a newer term was seen, which ran before the start: D + ε from there": {seconds: 16,
			state: silent(-500, seen(30), largest(15*second), recorded(since(-100)))},
		"retired since the start, the leader was not read": {seconds: 60, noPolicy: true,
			state: retired(recorded(since(0), raisedTo(9), lasting(30*second)), during(afterOutage()), having(nothing()),
				unread)},
		"vacant, another hub led: from the start": {seconds: 16,
			state: vacant(during(afterOutage()), recorded(because(reason.OtherHub)))},
		"lost: the largest D":                       {seconds: 61, state: lost(during(young()), largest(60*second))},
		"retired: with the largest ε that D allows": {seconds: 30, state: retired(recorded(raisedTo(9))), noPolicy: true},
		"retired, inherited": {seconds: 30,
			state: retired(recorded(raisedTo(9)), during(young()), having(nothing())), noPolicy: true},
		"retired, sent with fenced locks": {seconds: 47, state: retired(having(withStop(17*second, sent(0)))),
			noPolicy: true},
		"lost without a policy, but sent": {seconds: 30, state: lost(having(sent(0)), largest(15*second)),
			noPolicy: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := test.policy
			if p == nil && !test.noPolicy {
				p = policy()
			}
			cs := among("east 100 Unreachable, west 50 prepared")
			ends, before := test.seconds, test.seconds-0.001
			for which, now := range map[string]lease.Reading{
				"on both clocks": at(before), "on the boot clock": clocks(1e6, before), "on the wall clock": clocks(before, ends+5),
			} {
				d := election.Next(now, p, test.state, cs)
				if d.Waiting != reason.WaitingForExpiry || d.Record.State == election.Leading || d.After != time.Millisecond {
					t.Errorf("1 ms before the end %s: %s", which, say(d))
				}
				if d.Record.State == election.Ending && !d.Record.NotBefore.Equal(wall(ends)) {
					t.Errorf("the record names %v as the end", d.Record.NotBefore)
				}
			}
			if d := election.Next(at(ends), p, test.state, cs); d.Record.State != election.Leading && !d.Gone {
				t.Errorf("at the end: %s", say(d))
			}
		})
	}
}

// Rule 6: a term that ended before the tenure started is renewed no more, whether the leader's cluster was read or not.
// But a backup does not show that it was resumed since.
func TestEarlierEndIsInheritedAsItWas(t *testing.T) {
	ended := func(inherited float64) election.State {
		return ending(reason.Gone, unread, recorded(since(-100)), during(inheriting(inherited)), having(nothing()))
	}
	decide(t, map[string]decision{
		"all that was promised has passed": {now: at(1), state: ended(-60), among: "west 50 prepared",
			want: "Leading west 21 HandedOver persist"},
		"the election's Lease may come from a backup": {now: at(1), state: ended(-61), among: "west 50 prepared",
			want: "Ending east 20 Gone next west waiting WaitingForExpiry after 14s"},
	})
}

// Resource sets stay as they are while a leader that was not read has time to answer. Nothing else ends that time.
func TestLeaderThatWasNotReadIsDecidedOnAgain(t *testing.T) {
	const among = "east 100 unknown, west 50"
	state := func(changes ...func(*election.State)) election.State {
		changes = append(changes, recorded(since(-100)), during(inheriting(-60)), having(nothing()))
		return ending(reason.Unreachable, changes...)
	}
	decide(t, map[string]decision{
		"its cluster was not read": {now: at(1), state: state(unread, mostUnreachable), among: among,
			want: "Ending east 20 Unreachable next west waiting FailoverPending after 14s", policy: policy(manual)},
		"its cluster was read": {now: at(1), state: state(mostUnreachable), among: among,
			want: "Ending east 20 Unreachable next west waiting FailoverPending", policy: policy(manual)},
	})
}

// Rule 4: all renewals stop before the expiry is computed.
func TestRenewalsStopBeforeAnythingIsCounted(t *testing.T) {
	const cs = "east 100 Unreachable, west 50 prepared"
	decide(t, map[string]decision{
		"leading, the leader is lost": {now: at(10), state: leading(having(renewing(sent(0)))), among: cs,
			want: "stop renewing"},
		"ending": {now: at(20), state: ending(reason.Unreachable, having(renewing(sent(0)))), among: cs,
			want: "stop renewing"},
		"vacant":      {now: at(20), state: vacant(having(renewing(sent(0)))), among: cs, want: "stop renewing"},
		"record lost": {now: at(20), state: lost(having(renewing(sent(0)))), among: cs, want: "stop renewing"},
		"retired":     {now: at(20), state: retired(having(renewing(sent(0)))), noPolicy: true, want: "stop renewing"},
		"renewals have stopped: the term ends": {now: at(10), state: leading(), among: cs,
			want: "Ending east 20 Unreachable next west after 6s persist"},
	})
}

func TestWaitForTheExpiry(t *testing.T) {
	const cs, granted = "east 100 Unreachable, west 50 prepared", "Leading west 21 FailedOver persist"
	state := ending(reason.Unreachable)
	decide(t, map[string]decision{
		"the wall clock was an hour ahead at the renewal: another D + ε, and not less": {
			now: clocks(-3600, 31.999), state: state, among: cs, want: ends + "1ms",
		},
		"the wall clock was an hour ahead at the renewal: another D + ε, and not more": {
			now: clocks(-3600, 32), state: state, among: cs, want: granted,
		},
		"D is not known: again after a second": {
			now: at(1), noPolicy: true, state: lost(during(inheriting(9))), want: "lost waiting WaitingForExpiry after 1s",
		},
	})
}

// What is left of a lost record keeps the largest D until it has passed.
func TestLostRecordStaysBounded(t *testing.T) {
	s := lost(during(young()), largest(60*second))
	s.Record = election.Next(at(1), policy(), s, among("east 100")).Record
	s.LargestDuration = 15 * second // the Secret is lost, too
	const vacant = "Vacant nobody 0 WaitingForExpiry next east waiting WaitingForExpiry after "
	decide(t, map[string]decision{
		"before the end": {now: at(60.999), state: s, among: "east 100", want: vacant + "1ms"},
	})
}

// Rule 5: the record has a shorter D from the second in the row on, when no promise under the longer one outlasts a
// promise of now.
func TestRecordGetsShorterDAt(t *testing.T) {
	longer := sent(0)
	longer.Until, longer.BootUntil = wall(60), boot(60)
	for name, test := range map[string]struct {
		seconds float64
		tenure  election.Tenure
		sent    election.Sent
	}{
		"sent with 60 s":                  {45, settled(), longer},
		"slower locks were fenced before": {59, settled(), withEarlier(75, sent(43))},
	} {
		t.Run(name, func(t *testing.T) {
			next := func(now lease.Reading, s election.Sent) election.Decision {
				state := leading(recorded(lasting(60*second)), during(test.tenure), having(s))
				return election.Next(now, policy(), state, among("east 100, west 50"))
			}
			before := test.seconds - 0.001
			for _, now := range []lease.Reading{at(before), clocks(100, before), clocks(before, 100)} {
				d := next(now, renewing(test.sent))
				if say(d) != kept+" after 1ms" || d.Record.Duration != 60*second {
					t.Errorf("at %v: %s, D %v", now, say(d), d.Record.Duration)
				}
			}
			if d := next(at(test.seconds), renewing(test.sent)); !d.StopRenewing {
				t.Errorf("while renewals may have 60 s: %s", say(d))
			}
			if d := next(at(test.seconds), test.sent); say(d) != kept+" persist" || d.Record.Duration != 15*second {
				t.Errorf("after they stopped: %s, D %v", say(d), d.Record.Duration)
			}
			if d := next(clocks(-5000, 1), longer); say(d) != kept+" after 1m1s" {
				t.Errorf("on a wall clock that is behind: %s", say(d))
			}
		})
	}
}

// Rules 2 and 5: a larger D, ε or stop time is recorded before any Lease has it, and a smaller one once all is over.
func TestRecordGetsTheBoundsOfThePolicy(t *testing.T) {
	for name, change := range map[string]func(*election.Policy){
		"D":         duration(60 * second),
		"ε":         func(p *election.Policy) { p.Timings.Skew = 4 * second },
		"stop time": stopTime(17 * second),
	} {
		larger, smaller := policy(change), policy()
		bounds := func(p *election.Policy) [3]time.Duration {
			return [3]time.Duration{p.Timings.Duration, p.Timings.Skew, p.StopTime}
		}
		s := leading(having(renewing(sent(0))))
		for _, step := range []struct {
			now    float64
			policy *election.Policy
			final  bool
			want   string
		}{
			{0, larger, false, kept + " persist"}, {500, smaller, false, "stop renewing"},
			{500, smaller, true, kept + " persist"},
		} {
			s.Sent.Final = step.final
			d := election.Next(at(step.now), step.policy, s, among("east 100, west 50"))
			r := d.Record
			is := [3]time.Duration{r.Duration, r.Skew, r.Stop}
			if say(d) != step.want || !d.StopRenewing && is != bounds(step.policy) {
				t.Errorf("%s after %v s: %s, bounds %v", name, step.now, say(d), is)
			}
			s.Record = r
		}
	}
}
