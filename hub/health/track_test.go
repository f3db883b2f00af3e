package health_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/health"
)

var epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// at is the reading s seconds after an arbitrary start.
func at(s float64) lease.Reading {
	d := time.Duration(s * float64(time.Second))
	return lease.Reading{Wall: epoch.Add(d), Boot: time.Hour + d}
}

// recovering is the verdict on a member that was lost at 10 s and answers again.
func recovering(next time.Duration) health.Verdict {
	return health.Verdict{
		State:     health.Unhealthy,
		Since:     at(10),
		Reason:    reason.Recovering,
		Answering: true,
		Next:      next,
	}
}

// stepped is the same instant after a step of the wall clock.
func stepped(s float64, step time.Duration) lease.Reading {
	r := at(s)
	r.Wall = r.Wall.Add(step)
	return r
}

// script is what happened to a member, one call of Track each.
type script []func(*health.Track)

func (s script) run() *health.Track {
	t := &health.Track{}
	for _, step := range s {
		step(t)
	}
	return t
}

func ok(k health.Kind, seconds ...float64) func(*health.Track) {
	return func(t *health.Track) {
		for _, s := range seconds {
			t.Observe(health.Observation{Kind: k, At: at(s), OK: true})
		}
	}
}

// both is a read and a write that succeed.
func both(seconds ...float64) func(*health.Track) {
	return func(t *health.Track) {
		ok(health.Read, seconds...)(t)
		ok(health.Write, seconds...)(t)
	}
}

func fail(k health.Kind, r reason.Reason, seconds ...float64) func(*health.Track) {
	return func(t *health.Track) {
		for _, s := range seconds {
			t.Observe(health.Observation{Kind: k, At: at(s), Reason: r, Message: fmt.Sprintf("%s failed", k)})
		}
	}
}

func excuseReads(from, to float64) func(*health.Track) {
	return func(t *health.Track) { t.Excuse(read, at(from), at(to)) }
}

func span(from, to, step float64) []float64 {
	var s []float64
	for x := from; x <= to; x += step {
		s = append(s, x)
	}
	return s
}

const (
	read  = health.Read
	write = health.Write
)

func TestState(t *testing.T) {
	const dead = reason.Unreachable
	// Unhealthy after 10 s without an answer, healthy again after 5 s of answers.
	thresholds := health.Thresholds{UnreachableAfter: 10 * time.Second, RecoverAfter: 5 * time.Second}
	for name, tc := range map[string]struct {
		script script
		now    lease.Reading
		want   health.Verdict // Message is compared only if set
	}{
		"nothing observed decides nothing": {
			nil, at(100),
			health.Verdict{State: health.Unknown, Reason: reason.NeverReached},
		},
		"a member that never answered is unknown, however long it fails": {
			script{fail(read, dead, 0, 10, 100), fail(write, dead, 0, 10, 100)}, at(200),
			health.Verdict{State: health.Unknown, Reason: reason.NeverReached, Message: "read failed"},
		},
		"a member that refuses from the start is unknown, because it refuses": {
			script{fail(read, reason.Forbidden, 0)}, at(200),
			health.Verdict{State: health.Unknown, Reason: reason.Forbidden, Message: "read failed"},
		},
		"reads alone do not make a member known": {
			script{ok(read, 0, 1, 2)}, at(3),
			health.Verdict{State: health.Unknown, Reason: reason.NeverReached, Message: "no write has been answered yet"},
		},
		"a member first reached is healthy at once": {
			script{ok(read, 1), ok(write, 2)}, at(2),
			health.Verdict{State: health.Healthy, Since: at(2), Answering: true},
		},
		"and so is one whose first attempts failed": {
			script{fail(read, dead, 0, 20, 40), ok(read, 60), fail(write, dead, 61), ok(write, 62)}, at(62),
			health.Verdict{State: health.Healthy, Since: at(62), Answering: true},
		},
		"a failure is not yet a loss": {
			script{both(0, 5), fail(read, dead, 6)}, at(14),
			health.Verdict{State: health.Healthy, Since: at(0), Next: time.Second + 1},
		},
		"at the threshold it is not lost": {
			script{both(0, 5), fail(read, dead, 6)}, at(15),
			health.Verdict{State: health.Healthy, Since: at(0), Next: 1},
		},
		"beyond the threshold it is lost, counted from the send time of the last success": {
			script{both(0, 5), fail(read, dead, 6)}, at(15.001),
			health.Verdict{State: health.Unhealthy, Since: at(15), Reason: dead, Message: "read failed"},
		},
		"writes that fail while reads succeed are a loss": {
			script{both(0), fail(write, dead, 1, 5, 9), ok(read, span(1, 11, 1)...)}, at(11),
			health.Verdict{State: health.Unhealthy, Since: at(10), Reason: dead, Message: "write failed"},
		},
		"reads that fail while writes succeed are a loss": {
			script{both(0), fail(read, dead, 1, 5, 9), ok(write, span(1, 11, 1)...)}, at(11),
			health.Verdict{State: health.Unhealthy, Since: at(10), Reason: dead, Message: "read failed"},
		},
		"a refusal is an answer that says no": {
			script{both(0), fail(write, reason.Forbidden, 1, 11)}, at(11),
			health.Verdict{State: health.Unhealthy, Since: at(10), Reason: reason.Forbidden, Message: "write failed"},
		},
		"silence without a failure is nobody's fault": {
			script{both(0)}, at(1000),
			health.Verdict{State: health.Healthy, Since: at(0), Answering: true},
		},
		"one success after a loss is not yet a recovery": {
			script{both(0), fail(read, dead, 1, 15), both(20)}, at(21),
			recovering(4 * time.Second),
		},
		"time alone recovers nobody: a success must show it": {
			script{both(0), fail(read, dead, 1, 15), both(20)}, at(26),
			recovering(time.Second),
		},
		"a span of successes is a recovery": {
			script{both(0), fail(read, dead, 1, 15), both(20, 23, 25)}, at(26),
			health.Verdict{State: health.Healthy, Since: at(25), Answering: true},
		},
		"a failure while recovering starts the span again": {
			script{both(0), fail(read, dead, 1, 15), both(20, 23), fail(read, dead, 24), both(25, 29)}, at(29),
			recovering(time.Second),
		},
		"and a long enough span ends it": {
			script{both(0), fail(read, dead, 1, 15), both(20, 23), fail(read, dead, 24), both(25, 30)}, at(30),
			health.Verdict{State: health.Healthy, Since: at(30), Answering: true},
		},
		"a short failure after a recovery takes nothing back": {
			script{both(0), fail(read, dead, 1, 15), both(20, 25), fail(read, dead, 26), both(27)}, at(27),
			health.Verdict{State: health.Healthy, Since: at(25), Answering: true},
		},
		"short failures never were a loss": {
			script{both(0), fail(read, dead, 1), both(2), fail(read, dead, 3), both(4), fail(read, dead, 5)}, at(6),
			health.Verdict{State: health.Healthy, Since: at(0), Next: 8*time.Second + 1},
		},
		"a new loss during recovery keeps the first since": {
			script{both(0), fail(read, dead, 1, 15), both(20), fail(read, dead, 21)}, at(40),
			health.Verdict{State: health.Unhealthy, Since: at(10), Reason: dead, Message: "read failed"},
		},
		"a failure older than the last success says nothing": {
			script{both(0, 5), fail(read, dead, 4)}, at(100),
			health.Verdict{State: health.Healthy, Since: at(0), Answering: true},
		},
		"a success older than the last failure counts, but the failure is newer": {
			script{both(0), fail(read, dead, 8), ok(read, 6)}, at(15),
			health.Verdict{State: health.Healthy, Since: at(0), Next: time.Second + 1},
		},
		"what arrives late and twice changes nothing": {
			script{both(0, 5, 3, 5, 0)}, at(6),
			health.Verdict{State: health.Healthy, Since: at(0), Answering: true},
		},
		"time in which nobody asked does not count as silence": {
			script{both(0), fail(read, dead, 1), excuseReads(2, 62)}, at(62),
			health.Verdict{State: health.Healthy, Since: at(0), Next: 8*time.Second + 1},
		},
		"nor as an answer": {
			script{both(0), fail(read, dead, 1, 15), both(20, 21), excuseReads(21, 40), ok(read, 41)}, at(41),
			recovering(3 * time.Second),
		},
		"nor when a failure ends the streak": {
			script{
				both(0), fail(read, dead, 1, 15), both(20, 21), excuseReads(21, 40),
				fail(read, dead, 41), ok(read, 42),
			}, at(42),
			recovering(5 * time.Second),
		},
		"an excuse from before the last success covers what came after it": {
			script{both(0, 10), fail(read, dead, 11), excuseReads(5, 15)}, at(24),
			health.Verdict{State: health.Healthy, Since: at(0), Next: time.Second + 1},
		},
		"an excuse that ended before the last success changes nothing": {
			script{both(0, 10), fail(read, dead, 11), excuseReads(2, 9)}, at(20.5),
			health.Verdict{State: health.Unhealthy, Since: at(20), Reason: dead, Message: "read failed"},
		},
		"a step forward of the wall clock makes nobody sick": {
			script{both(0), fail(read, dead, 1)}, stepped(5, time.Hour),
			health.Verdict{State: health.Healthy, Since: at(0), Next: 5*time.Second + 1},
		},
		"a step back of the wall clock makes nobody well": {
			script{both(0), fail(read, dead, 1)}, stepped(11, -time.Hour),
			health.Verdict{State: health.Unhealthy, Since: at(10), Reason: dead, Message: "read failed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.script.run().State(tc.now, thresholds)
			if tc.want.Message == "" {
				got.Message = ""
			}
			if got != tc.want {
				t.Errorf("\n got %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestThresholdsAreThePolicysOwn(t *testing.T) {
	track := script{both(0), fail(read, reason.Unreachable, 1), both(6, 9)}.run()
	for name, tc := range map[string]struct {
		thresholds health.Thresholds
		want       health.State
	}{
		"a patient policy saw no loss": {
			thresholds: health.Thresholds{UnreachableAfter: 10 * time.Second, RecoverAfter: time.Hour},
			want:       health.Healthy,
		},
		"an impatient one saw one, and it is over": {
			thresholds: health.Thresholds{UnreachableAfter: 3 * time.Second, RecoverAfter: 3 * time.Second},
			want:       health.Healthy,
		},
		"a cautious one waits": {
			thresholds: health.Thresholds{UnreachableAfter: 3 * time.Second, RecoverAfter: 4 * time.Second},
			want:       health.Unhealthy,
		},
		"no recovery time means at once": {health.Thresholds{UnreachableAfter: 3 * time.Second}, health.Healthy},
	} {
		t.Run(name, func(t *testing.T) {
			if got := track.State(at(9), tc.thresholds).State; got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// A member that fails every other time for hours fills the memory of lapses.
func TestFlappingForgetsNoLoss(t *testing.T) {
	thresholds := health.Thresholds{UnreachableAfter: 10 * time.Second, RecoverAfter: 5 * time.Second}
	flap := func(t *health.Track, from float64) (end float64) {
		for i := range 500 {
			end = from + 2*float64(i)
			fail(read, reason.Unreachable, end)(t)
			both(end + 1)(t)
		}
		return end + 1
	}
	for name, tc := range map[string]struct {
		before script
		want   health.State
	}{
		"without a loss before it stays healthy": {script{both(span(0, 25, 1)...)}, health.Healthy},
		"a loss before is not recovered from": {
			before: script{both(0), fail(read, reason.Unreachable, 1), both(20)},
			want:   health.Unhealthy,
		},
		"a loss before that was recovered from": {
			before: script{both(0), fail(read, reason.Unreachable, 1), both(20, 25)},
			want:   health.Healthy,
		},
	} {
		t.Run(name, func(t *testing.T) {
			track := tc.before.run()
			end := flap(track, 26)
			if got := track.State(at(end), thresholds).State; got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			// A long span of successes recovers from anything.
			both(end+3, end+6)(track)
			if got := track.State(at(end+6), thresholds).State; got != health.Healthy {
				t.Errorf("after a span of successes: got %v, want Healthy", got)
			}
		})
	}
}

func TestAnsweringIsTheLatestReadAndWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		script script
		want   bool
	}{
		"nothing":               {nil, false},
		"reads only":            {script{ok(read, 0)}, false},
		"both":                  {script{both(0)}, true},
		"a read failed":         {script{both(0), fail(read, reason.Unreachable, 1)}, false},
		"a write failed":        {script{both(0), fail(write, reason.Unreachable, 1)}, false},
		"both answer again":     {script{both(0), fail(write, reason.Unreachable, 1), ok(write, 2)}, true},
		"failure sent together": {script{both(0), fail(write, reason.Unreachable, 0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.script.run().Answering(); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestFailureIsTheLatestOne(t *testing.T) {
	track := script{both(0), fail(read, reason.Unreachable, 2), fail(write, reason.Forbidden, 1)}.run()
	if got := track.Failure().Reason; got != reason.Unreachable {
		t.Errorf("got %q, want the read's, which was sent last", got)
	}
	ok(read, 3)(track)
	if got := track.Failure().Reason; got != reason.Forbidden {
		t.Errorf("got %q, want the write's, which still stands", got)
	}
	ok(write, 3)(track)
	if got := track.Failure(); got != (health.Observation{}) {
		t.Errorf("got %v, want none", got)
	}
}
