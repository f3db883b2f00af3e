package health_test

import (
	"fmt"
	"strconv"
	"strings"
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

const (
	read  = health.Read
	write = health.Write
)

// play plays what happened to a member, as in "ok 0 5; read-fails 6": requests and their send times in seconds.
// "excused" is a time in which no reads were sent.
func play(t *health.Track, script string) *health.Track {
	for step := range strings.SplitSeq(script, "; ") {
		words := strings.Fields(step)
		var times []float64
		for _, word := range words[min(1, len(words)):] {
			s, _ := strconv.ParseFloat(word, 64)
			times = append(times, s)
		}
		observe := func(o health.Observation) {
			if !o.OK {
				o.Message = fmt.Sprintf("%s failed", o.Kind)
			}
			for _, s := range times {
				o.At = at(s)
				t.Observe(o)
			}
		}
		switch strings.Join(words[:min(1, len(words))], "") {
		case "":
		case "ok":
			observe(health.Observation{Kind: read, OK: true})
			observe(health.Observation{Kind: write, OK: true})
		case "read":
			observe(health.Observation{Kind: read, OK: true})
		case "write":
			observe(health.Observation{Kind: write, OK: true})
		case "read-fails":
			observe(health.Observation{Kind: read, Reason: reason.Unreachable})
		case "write-fails":
			observe(health.Observation{Kind: write, Reason: reason.Unreachable})
		case "read-forbidden":
			observe(health.Observation{Kind: read, Reason: reason.Forbidden})
		case "write-forbidden":
			observe(health.Observation{Kind: write, Reason: reason.Forbidden})
		case "excused":
			t.Excuse(read, at(times[0]), at(times[1]))
		default:
			panic("no such step: " + step)
		}
	}
	return t
}

// describe describes a verdict, as in "healthy since 0, answering".
func describe(v health.Verdict) string {
	text := map[health.State]string{health.Healthy: "healthy", health.Unhealthy: "unhealthy"}[v.State]
	if since := (v.Since.Boot - time.Hour).Seconds(); text == "" {
		text = "unknown"
	} else if text += fmt.Sprintf(" since %v", since); v.Since != at(since) {
		text += " by one clock"
	}
	if v.Reason != "" {
		text += ", " + string(v.Reason) + ": " + v.Message
	}
	if v.Answering {
		text += ", answering"
	}
	if v.Next != 0 {
		text += fmt.Sprint(", next ", v.Next)
	}
	return text
}

// A member is unhealthy after 10 s without an answer, and healthy again after 5 s of answers.
func TestState(t *testing.T) {
	const recovering = "unhealthy since 10, Recovering: answers again, but not yet for 5s without a failure, " +
		"answering, next "
	for name, test := range map[string]struct {
		script string
		now    float64
		want   string
	}{
		"nothing was observed": {"", 100, "unknown, NeverReached: no read has been answered yet"},
		"never answered": {
			"read-fails 0 10 100; write-fails 0 10 100", 200, "unknown, NeverReached: read failed"},
		"rejects from the start": {"read-forbidden 0", 200, "unknown, Forbidden: read failed"},
		"only reads are answered": {
			"read 0 1 2", 3, "unknown, NeverReached: no write has been answered yet"},
		"first reached": {"read 1; write 2", 2, "healthy since 2, answering"},
		"first reached after several tries": {
			"read-fails 0 20 40; read 60; write-fails 61; write 62", 62, "healthy since 62, answering"},
		"a failure":                   {"ok 0 5; read-fails 6", 14, "healthy since 0, next 1.000000001s"},
		"10 s after the last success": {"ok 0 5; read-fails 6", 15, "healthy since 0, next 1ns"},
		"10.001 s after the last success": {
			"ok 0 5; read-fails 6", 15.001, "unhealthy since 15, Unreachable: read failed"},
		"writes fail while reads succeed": {
			"ok 0; write-fails 1 5 9; read 1 3 5 7 9 11", 11, "unhealthy since 10, Unreachable: write failed"},
		"reads fail while writes succeed": {
			"ok 0; read-fails 1 5 9; write 1 3 5 7 9 11", 11, "unhealthy since 10, Unreachable: read failed"},
		"writes are rejected": {
			"ok 0; write-forbidden 1 11", 11, "unhealthy since 10, Forbidden: write failed"},
		"a write fails beside one that does": {"ok 0; write-fails 0", 1, "healthy since 0, next 9.000000001s"},
		"no requests for long":               {"ok 0", 1000, "healthy since 0, answering"},
		"one success after a loss":           {"ok 0; read-fails 1 15; ok 20", 21, recovering + "4s"},
		"one success after a loss, and no request since": {
			"ok 0; read-fails 1 15; ok 20", 26, recovering + "1s"},
		"5 s of successes after a loss": {"ok 0; read-fails 1 15; ok 20 23 25", 26, "healthy since 25, answering"},
		"a failure while it recovers": {
			"ok 0; read-fails 1 15; ok 20 23; read-fails 24; ok 25 29", 29, recovering + "1s"},
		"5 s of successes after a failure while it recovered": {
			"ok 0; read-fails 1 15; ok 20 23; read-fails 24; ok 25 30", 30, "healthy since 30, answering"},
		"a short failure after a recovery": {
			"ok 0; read-fails 1 15; ok 20 25; read-fails 26; ok 27", 27, "healthy since 25, answering"},
		"short failures": {
			"ok 0; read-fails 1; ok 2; read-fails 3; ok 4; read-fails 5", 6, "healthy since 0, next 8.000000001s"},
		"lost again while it recovers": {
			"ok 0; read-fails 1 15; ok 20; read-fails 21", 40, "unhealthy since 10, Unreachable: read failed"},
		"a failure that is older than the last success": {"ok 0 5; read-fails 4", 100, "healthy since 0, answering"},
		"a success that is older than the last failure": {
			"ok 0; read-fails 8; read 6", 15, "healthy since 0, next 1.000000001s"},
		"answers that arrive late and twice": {"ok 0 5 3 5 0", 6, "healthy since 0, answering"},
		"no reads were sent: no silence": {
			"ok 0; read-fails 1; excused 2 62", 62, "healthy since 0, next 8.000000001s"},
		"no reads were sent: no answers": {
			"ok 0; read-fails 1 15; ok 20 21; excused 21 40; read 41", 41, recovering + "3s"},
		"no reads were sent, then a failure": {
			"ok 0; read-fails 1 15; ok 20 21; excused 21 40; read-fails 41; read 42", 42, recovering + "5s"},
		"no reads were sent, from before the last success on": {
			"ok 0 10; read-fails 11; excused 5 15", 24, "healthy since 0, next 1.000000001s"},
		"no reads were sent until before the last success": {
			"ok 0 10; read-fails 11; excused 2 9", 20.5, "unhealthy since 20, Unreachable: read failed"},
	} {
		t.Run(name, func(t *testing.T) {
			track, thresholds := play(&health.Track{}, test.script), health.Thresholds{
				UnreachableAfter: 10 * time.Second, RecoverAfter: 5 * time.Second,
			}
			for _, step := range []time.Duration{0, time.Hour, -time.Hour} { // of the wall clock, which does not count
				now := at(test.now)
				now.Wall = now.Wall.Add(step)
				if got := describe(track.State(now, thresholds)); got != test.want {
					t.Errorf("with a wall clock stepped by %v: %s, want %s", step, got, test.want)
				}
			}
			if got, want := track.Answering(), strings.Contains(test.want, "answering"); got != want {
				t.Errorf("answering: %v", got)
			}
		})
	}
}

func TestThresholdsOfAPolicy(t *testing.T) {
	track := play(&health.Track{}, "ok 0; read-fails 1; ok 6 9")
	for name, test := range map[string]struct {
		unreachableAfter, recoverAfter time.Duration
		want                           health.State
	}{
		"it was not lost":                {10 * time.Second, time.Hour, health.Healthy},
		"it was lost, and has recovered": {3 * time.Second, 3 * time.Second, health.Healthy},
		"it was lost, and recovers":      {3 * time.Second, 4 * time.Second, health.Unhealthy},
		"it recovers at once":            {3 * time.Second, 0, health.Healthy},
	} {
		thresholds := health.Thresholds{UnreachableAfter: test.unreachableAfter, RecoverAfter: test.recoverAfter}
		if got := track.State(at(9), thresholds).State; got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A member that fails every other time for hours fills the memory of lapses.
func TestFlappingForgetsNoLoss(t *testing.T) {
	thresholds := health.Thresholds{UnreachableAfter: 10 * time.Second, RecoverAfter: 5 * time.Second}
	for before, want := range map[string]health.State{
		"ok 0 5 10 15 20 25":              health.Healthy,
		"ok 0; read-fails 1 15; ok 20":    health.Unhealthy,
		"ok 0; read-fails 1 15; ok 20 25": health.Healthy,
	} {
		t.Run(before, func(t *testing.T) {
			track, end := play(&health.Track{}, before), 26
			for range 500 {
				play(track, fmt.Sprintf("read-fails %d; ok %d", end, end+1))
				end += 2
			}
			if got := track.State(at(float64(end)), thresholds).State; got != want {
				t.Errorf("%v, want %v", got, want)
			}
			play(track, fmt.Sprintf("ok %d %d", end+3, end+6))
			if got := track.State(at(float64(end+6)), thresholds).State; got != health.Healthy {
				t.Errorf("after 5 s of successes: %v", got)
			}
		})
	}
}

func TestFailureIsTheLatestOne(t *testing.T) {
	track := &health.Track{}
	for _, step := range []struct {
		script string
		want   reason.Reason
	}{
		{"ok 0; read-fails 2; write-forbidden 1", reason.Unreachable},
		{"read 3", reason.Forbidden},
		{"write 3", ""},
	} {
		if got := play(track, step.script).Failure().Reason; got != step.want {
			t.Errorf("after %q: %q, want %q", step.script, got, step.want)
		}
	}
}
