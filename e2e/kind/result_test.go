package main

import (
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

func act(cluster string, epoch int64, begin, end time.Duration) harness.Act {
	return harness.Act{Cluster: cluster, Namespace: managed, Epoch: epoch, Begin: begin * time.Second,
		End: end * time.Second}
}

// check fails the test unless an error says what is wanted, or is nil if that is nothing.
func check(t *testing.T, name string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

func TestTheReportCountsWhatHappened(t *testing.T) {
	r := report([]round{
		{Fault: "a", Expected: failover, Leader: "east", Next: "west", Seconds: 14, Gap: 13},
		{Fault: "b", Expected: failover, Leader: "west", Next: "south", Seconds: 12, Gap: 11},
		{Fault: "c", Expected: unmoved, Leader: "south", Next: "south", Gap: 0.3},
		{Fault: "d", Expected: outage, Leader: "south", Next: "south", Seconds: 30, Gap: 40},
		{Fault: "e", Expected: failover, Leader: "south"}, // not finished
	}, []harness.Verdict{{Acts: 3}})
	if r.Rounds != 4 || r.Failovers != 2 || r.Overlaps != 0 || r.WorstGap != 13 || r.WorstOutage != 40 ||
		r.LeastFailover != 12 || r.WorstFailover != 14 {
		t.Errorf("%+v", r)
	}
	if err := r.flaws(); err != nil {
		t.Error(err)
	}
}

func TestWhatMakesADrillFail(t *testing.T) {
	for name, c := range map[string]struct {
		acts []harness.Act
		want string // empty: nothing
	}{
		"one after the other": {[]harness.Act{act("east", 1, 1, 2), act("west", 2, 3, 4)}, ""},
		"nobody acts":         {nil, "nobody has acted"},
		"two at once":         {[]harness.Act{act("east", 1, 1, 4), act("west", 2, 3, 5)}, "two clusters act at once"},
	} {
		err := report(nil, harness.Judge(c.acts)).flaws()
		check(t, name, err, c.want)
	}
}

func TestWhoMustActNextAndWhen(t *testing.T) {
	east, south := members[0], members[2]
	for name, c := range map[string]struct {
		expect outcome
		leader cluster
		first  harness.Act
		want   string // empty: as it must be
	}{
		"a failover":                    {failover, east, act("west", 2, 112, 113), ""},
		"a failover that took too long": {failover, east, act("west", 2, 121, 122), "more than 20s"},
		"a failover before the fault":   {failover, east, act("west", 2, 99, 100), "1s before the fault was complete"},
		"a failover at the instant of the fault": {failover, east, act("west", 2, 100, 101),
			"before the fault was complete"},
		"a handover":                             {handover, east, act("south", 2, 112, 113), ""},
		"a handover from the last one":           {handover, south, act("west", 2, 112, 113), ""},
		"a handover while the edit was going on": {handover, east, act("south", 2, 99, 100), ""},
		"a handover that took too long":          {handover, east, act("south", 2, 121, 122), "more than 20s"},
		"a handover to one that nobody had edited": {handover, east, act("west", 2, 112, 113),
			"south was given the highest"},
		"a handover to the one of highest priority": {handover, south, act("east", 2, 112, 113),
			"west was given the highest"},
	} {
		err := moved(c.expect, c.leader, c.first, 100*time.Second)
		check(t, name, err, c.want)
	}
}

func TestATermThatEndsWithoutItsHub(t *testing.T) {
	goesOn := act("east", 1, 9, 0)
	goesOn.End = harness.Unfinished
	for name, c := range map[string]struct {
		acts []harness.Act
		want string // empty: it has ended
	}{
		"nobody acts": {nil, ""},
		"ends":        {[]harness.Act{act("east", 1, 7, 8), act("east", 1, 9, 10)}, ""},
		"begins an act after its end": {[]harness.Act{act("east", 1, 7, 8), act("east", 1, 11, 12)},
			"2s after the term was to end"},
		"ends an act after its end": {[]harness.Act{act("east", 1, 9, 11), act("east", 1, 9, 10)},
			"1s after the term was to end"},
		"its last act goes on": {[]harness.Act{goesOn}, "goes on"},
		"another one acts after its end": {[]harness.Act{act("east", 1, 9, 10), act("west", 2, 12, 13)},
			"west acted in epoch 2"},
	} {
		err := silent(c.acts, 10*time.Second)
		check(t, name, err, c.want)
	}
}

func TestTheTermAfterAnOutageIsALaterOne(t *testing.T) {
	before := []harness.Act{act("west", 4, 1, 2), act("east", 5, 3, 4), act("east", 5, 5, 6)}
	for epoch, want := range map[int64]bool{4: false, 5: false, 6: true} {
		if err := later(before, act("east", epoch, 30, 31)); (err == nil) != want {
			t.Errorf("epoch %d: %v, want a later one %t", epoch, err, want)
		}
	}
}

func TestTheLongestTimeInWhichNobodyActed(t *testing.T) {
	for name, c := range map[string]struct {
		acts []harness.Act
		want time.Duration
	}{
		"nobody":                          {nil, 20},
		"between two acts":                {[]harness.Act{act("east", 1, 9, 11), act("west", 2, 17, 29)}, 6},
		"before the first":                {[]harness.Act{act("west", 2, 18, 29)}, 8},
		"after the last":                  {[]harness.Act{act("east", 1, 10, 11)}, 19},
		"a long act is no gap":            {[]harness.Act{act("east", 1, 10, 29)}, 1},
		"acts outside of it do not count": {[]harness.Act{act("east", 1, 1, 2), act("east", 1, 40, 41)}, 20},
	} {
		if got := longestGap(c.acts, 10*time.Second, 30*time.Second); got != c.want*time.Second {
			t.Errorf("%s: %v, want %v", name, got, c.want*time.Second)
		}
	}
}

func TestALeaderThatMustGoOn(t *testing.T) {
	lively := []harness.Act{act("east", 1, 8, 9), act("east", 1, 11, 12), act("east", 1, 14, 15), act("east", 1, 17, 18)}
	for name, c := range map[string]struct {
		acts []harness.Act
		want string // empty: it does
	}{
		"does":              {lively, ""},
		"stops":             {lively[:2], "did nothing for"},
		"pauses":            {append(lively[:2:2], lively[3]), "did nothing for 5s"},
		"another one acts":  {append(lively[:3:3], act("west", 2, 17, 18)), "west acted"},
		"gets another term": {append(lively[:3:3], act("east", 2, 17, 18)), "epoch became 2"},
		"what came while the logs were read is no matter": {append(lively[:4:4], act("east", 1, 23, 24)), ""},
		"what was before is not":                          {append([]harness.Act{act("west", 0, 1, 2)}, lively...), ""},
	} {
		err := unbroken(c.acts, "east", 10*time.Second, 20*time.Second)
		check(t, name, err, c.want)
	}
}
