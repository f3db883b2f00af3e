package main

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

// stopTime is that of a lock.
const stopTime = 7 * time.Second

func act(cluster string, begin, end int) harness.Act {
	return harness.Act{Cluster: cluster, Begin: time.Duration(begin) * time.Second, End: time.Duration(end) * time.Second}
}

func led(member string, epoch int64, from, until int) promise {
	return promise{member, epoch, time.Duration(from) * time.Second, time.Duration(until) * time.Second}
}

func TestWhatTwoControllersDid(t *testing.T) {
	// East leads from 10 to 20, west from 30 to 40, and east again from 50 to 60. Then its term lapses until 80.
	promises := []promise{led("east", 1, 10, 15), led("east", 1, 14, 20), led("west", 2, 30, 40), led("east", 3, 50, 60),
		led("east", 3, 80, 90)}
	for name, test := range map[string]struct {
		writes, holds []harness.Act
		want          verdict
	}{
		"one after the other": {
			[]harness.Act{act("east", 12, 13), act("west", 33, 34)},
			[]harness.Act{act("east", 11, 22), act("west", 32, 41)},
			verdict{Writes: 2, Changes: 1, WorstGapSeconds: 21, ClosestSeconds: 10},
		},
		"one after the other, and the first again": {
			[]harness.Act{act("east", 12, 13), act("west", 33, 34), act("east", 51, 52)},
			[]harness.Act{act("east", 11, 22), act("west", 32, 41), act("east", 50, 70)},
			verdict{Writes: 3, Changes: 2, WorstGapSeconds: 21, ClosestSeconds: 9},
		},
		"a process that held its lock until the next one took its own": {
			nil, []harness.Act{act("east", 11, 32), act("west", 32, 41)},
			verdict{Overlaps: 1},
		},
		"a write while another cluster's process holds its lock": {
			[]harness.Act{act("east", 12, 13), act("west", 33, 34), act("east", 35, 36)},
			[]harness.Act{act("west", 32, 41)},
			verdict{Writes: 3, Changes: 2, Overlaps: 2, Late: 1, WorstGapSeconds: 21},
		},
		"the old leader writes once more after its successor": {
			[]harness.Act{act("east", 12, 13), act("west", 33, 34), act("east", 36, 37)}, nil,
			verdict{Writes: 3, Changes: 2, Overlaps: 1, Late: 1, WorstGapSeconds: 21},
		},
		"a write in the stop time": {
			[]harness.Act{act("east", 26, 27)}, nil, verdict{Writes: 1},
		},
		"a write after the stop time": {
			[]harness.Act{act("east", 28, 29)}, nil, verdict{Writes: 1, Late: 1},
		},
		"a write that may have come before the end of the stop time": {
			[]harness.Act{act("east", 26, 29)}, nil, verdict{Writes: 1},
		},
		"a write after the stop time of a term that goes on later": {
			[]harness.Act{act("east", 69, 70), act("east", 81, 82)}, nil, verdict{Writes: 2, Late: 1},
		},
		"a write before the first term": {
			[]harness.Act{act("east", 8, 9)}, nil, verdict{Writes: 1, Late: 1},
		},
		"a write in a cluster that never led": {
			[]harness.Act{act("south", 12, 13)}, nil, verdict{Writes: 1, Late: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(test.writes, test.holds, promises, stopTime)
			if len(got.Breaches) != got.Overlaps+got.Late {
				t.Errorf("breaches %q of %d", got.Breaches, got.Overlaps+got.Late)
			}
			if got.Writes != test.want.Writes || got.Holds != len(test.holds) || got.Changes != test.want.Changes ||
				got.Overlaps != test.want.Overlaps ||
				got.Late != test.want.Late || got.WorstGapSeconds != test.want.WorstGapSeconds ||
				got.ClosestSeconds != test.want.ClosestSeconds {
				t.Errorf("judged %+v, want %+v", got, test.want)
			}
		})
	}
}

// The old holder goes on for all its stop time. A hub that waits for it grants the next term after that.
func TestAHubThatDoesNotWaitForTheStopTimeIsNoticed(t *testing.T) {
	const ends = 20 // the term of east
	stop := int(stopTime / time.Second)
	for name, test := range map[string]struct {
		grant    int // when west leads
		overlaps bool
	}{
		"it waits for the stop time":   {ends + stop + 1, false},
		"it waits for half of it":      {ends + stop/2, true},
		"it does not wait for anybody": {ends, true},
	} {
		t.Run(name, func(t *testing.T) {
			promises := []promise{led("east", 1, 10, ends), led("west", 2, test.grant, test.grant+20)}
			v := judge(
				[]harness.Act{act("east", 12, 13), act("west", test.grant+2, test.grant+3)},
				[]harness.Act{act("east", 11, ends+stop), act("west", test.grant+1, test.grant+15)},
				promises, stopTime)
			if (v.Overlaps > 0) != test.overlaps || v.Late > 0 {
				t.Errorf("judged %+v, want overlaps: %v", v, test.overlaps)
			}
		})
	}
}

func TestProgramsAreJudgedEachByItself(t *testing.T) {
	got := together(map[string]verdict{
		"a": {Writes: 2, Holds: 3, Changes: 1, Overlaps: 1, WorstGapSeconds: 4, ClosestSeconds: 3,
			Breaches: []string{"two at once"}},
		"b": {Writes: 5, Holds: 4, Changes: 2, Late: 1, WorstGapSeconds: 3, ClosestSeconds: 2, Breaches: []string{"late"}},
	})
	want := verdict{
		Writes: 7, Holds: 7, Changes: 3, Overlaps: 1, Late: 1, WorstGapSeconds: 4, ClosestSeconds: 2,
		Breaches: []string{"a: two at once", "b: late"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("together they did %+v, want %+v", got, want)
	}
}

func TestADrillFailsIfAControllerWorkedWhereItMustNot(t *testing.T) {
	for name, test := range map[string]struct {
		v     verdict
		fails bool
	}{
		"one after the other":    {verdict{Writes: 3, Holds: 2, Changes: 1}, false},
		"two at once":            {verdict{Writes: 3, Holds: 2, Changes: 1, Breaches: []string{"two at once"}}, true},
		"nobody wrote":           {verdict{}, true},
		"one alone ever wrote":   {verdict{Writes: 3, Holds: 1}, true},
		"no log tells of a lock": {verdict{Writes: 3, Changes: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			programs := map[string]verdict{"one": test.v}
			if err := (result{verdict: together(programs), Programs: programs}).failed(); (err != nil) != test.fails {
				t.Errorf("it fails with %v, want %v", err, test.fails)
			}
		})
	}
}

// noon is the tick that is judged, and the first one of its CronJob.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// leads is a term of a cluster, in seconds from noon.
func leads(member string, from, to float64) term {
	at := func(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }
	return term{member, at(from), at(to)}
}

// ran is the Job of a tick, created that many seconds after noon.
func ran(member string, minute, created int) run {
	return run{tick{"bill", noon.Add(time.Duration(minute) * time.Minute)}, member,
		noon.Add(time.Duration(created) * time.Second)}
}

func TestWhatBecameOfTicks(t *testing.T) {
	one := []tick{{"bill", noon}}
	two := append(slices.Clone(one), tick{"bill", noon.Add(time.Minute)})
	led := []term{leads("east", -100, 200)}
	for name, test := range map[string]struct {
		ticks []tick
		runs  []run
		terms []term
		want  tickVerdict
	}{
		"it ran where its cluster led": {one, []run{ran("east", 0, 0)}, led, tickVerdict{Ticks: 1}},
		"it ran elsewhere": {one, []run{ran("west", 0, 0)}, led,
			tickVerdict{Ticks: 1, RanInFollower: 1, WorstFirstTickSeconds: 200}},
		"it ran after the term": {one, []run{ran("east", 0, 200)}, led,
			tickVerdict{Ticks: 1, RanInFollower: 1, WorstFirstTickSeconds: 200}},
		"it ran in a term that began after it": {one, []run{ran("east", 0, 5)}, []term{leads("east", 0.5, 200)},
			tickVerdict{Ticks: 1, RanInFollower: 1}},
		"it ran in two clusters, one after another": {one, []run{ran("east", 0, 0), ran("west", 0, 30)},
			[]term{leads("east", -100, 10), leads("west", 20, 50)}, tickVerdict{Ticks: 1, RanTwice: 1, RanInFollower: 1}},
		"it ran in two clusters that led both": {one, []run{ran("east", 0, 0), ran("west", 0, 1)},
			[]term{leads("east", -100, 10), leads("west", -5, 50)}, tickVerdict{Ticks: 1, RanTwice: 1,
				WorstFirstTickSeconds: 1}},
		"nobody ran it, and nobody led": {one, nil, []term{leads("east", -100, -1), leads("west", 2, 200)},
			tickVerdict{Ticks: 1, Lost: 1}},
		"nobody ran it, and its cluster led": {one, nil, led,
			tickVerdict{Ticks: 1, Lost: 1, LostWhileLed: 1, WorstFirstTickSeconds: 200}},
		"nobody ran it, and its cluster lost soon": {one, nil, []term{leads("east", -100, 2)},
			tickVerdict{Ticks: 1, Lost: 1, WorstFirstTickSeconds: 2}},
		"the first was late": {one, []run{ran("east", 0, 45)}, led, tickVerdict{Ticks: 1, WorstFirstTickSeconds: 45}},
		"the first was lost, and the second in time": {two, []run{ran("east", 1, 60)}, led,
			tickVerdict{Ticks: 2, Lost: 1, LostWhileLed: 1, WorstFirstTickSeconds: 60}},
	} {
		t.Run(name, func(t *testing.T) {
			got := judgeTicks(test.ticks, test.runs, test.terms)
			if breaches := got.RanTwice + got.RanInFollower; len(got.Breaches) != breaches {
				t.Errorf("breaches %q of %d", got.Breaches, breaches)
			}
			got.Breaches = nil
			if got.Ticks != test.want.Ticks || got.RanTwice != test.want.RanTwice ||
				got.RanInFollower != test.want.RanInFollower ||
				got.Lost != test.want.Lost || got.LostWhileLed != test.want.LostWhileLed ||
				got.WorstFirstTickSeconds != test.want.WorstFirstTickSeconds {
				t.Errorf("judged %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestADrillFailsIfATickRanWhereItMustNot(t *testing.T) {
	for name, test := range map[string]struct {
		v     tickVerdict
		fails bool
	}{
		"all ran":        {tickVerdict{Ticks: 3}, false},
		"some were lost": {tickVerdict{Ticks: 3, Lost: 2}, false},
		"nothing ran":    {tickVerdict{Ticks: 3, Lost: 3}, true},
		"one ran twice":  {tickVerdict{Ticks: 3, RanTwice: 1, Breaches: []string{"bill ran twice"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := test.v.failed(); (err != nil) != test.fails {
				t.Errorf("it fails with %v, want %v", err, test.fails)
			}
		})
	}
}
