package main

import (
	"reflect"
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
