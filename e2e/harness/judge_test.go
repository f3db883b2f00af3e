package harness

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// act is an act in namespace shop, in milliseconds. A negative end is unknown.
func act(cluster string, epoch int64, begin, end time.Duration) Act {
	a := Act{Cluster: cluster, Namespace: "shop", Epoch: epoch, Begin: begin * time.Millisecond, End: Unfinished}
	if end >= 0 {
		a.End = end * time.Millisecond
	}
	return a
}

func TestJudge(t *testing.T) {
	type acts = []Act
	type rules = []Rule
	for name, c := range map[string]struct {
		acts     acts
		leaders  string
		breaches rules
	}{
		"acts of one cluster overlap each other": {
			acts{act("east", 1, 0, 10), act("east", 1, 5, 20), act("east", 1, 20, 21)}, "east", nil},
		"one cluster acts after the other": {
			acts{act("east", 1, 0, 10), act("west", 2, 11, 20), act("east", 3, 21, 30)}, "east west east", nil},
		"the logs are in another order": {
			acts{act("west", 2, 11, 20), act("east", 1, 0, 10)}, "east west", nil},
		"two clusters overlap": {
			acts{act("east", 1, 0, 10), act("west", 2, 9, 20)}, "east west", rules{TwoAtOnce}},
		"the ends of two clusters touch": {
			acts{act("east", 1, 0, 10), act("west", 2, 10, 20)}, "east west", rules{TwoAtOnce}},
		"an act lies within another cluster's": {
			acts{act("east", 1, 0, 100), act("west", 2, 50, 60)}, "east west", rules{TwoAtOnce}},
		"a long act overlaps, a shorter one of the same cluster came after it": {
			acts{act("east", 1, 0, 100), act("east", 1, 10, 20), act("west", 2, 50, 60)}, "east west", rules{TwoAtOnce}},
		"two acts overlap one of another cluster": {
			acts{act("east", 1, 0, 100), act("west", 2, 50, 60), act("west", 2, 70, 80), act("west", 2, 120, 130)},
			"east west", rules{TwoAtOnce, TwoAtOnce}},
		"an act has no known end, another cluster acts later": {
			acts{act("east", 1, 0, -1), act("west", 2, 5000, 5001)}, "east west", rules{TwoAtOnce}},
		"acts of two clusters begin at one instant": {
			acts{act("east", 1, 0, 10), act("west", 2, 0, 5)}, "west east", rules{TwoAtOnce, AfterSuccessor}},
		"the old leader acts between two acts of the new one": {
			acts{act("east", 1, 0, 10), act("west", 2, 20, 30), act("east", 1, 40, 50), act("west", 2, 60, 70)},
			"east west east west", rules{AfterSuccessor}},
		"the epoch falls within one cluster": {
			acts{act("east", 2, 0, 10), act("east", 1, 20, 30)}, "east", rules{AfterSuccessor}},
		"an act ends after the next term of its own cluster began": {
			acts{act("east", 1, 0, 50), act("east", 2, 20, 30)}, "east", nil},
		"two clusters act in one epoch": {
			acts{act("east", 1, 0, 10), act("west", 1, 20, 30)}, "east west", rules{OneEpochTwice}},
		"a third cluster overlaps one of two that overlap": {
			acts{act("east", 1, 0, 100), act("west", 2, 50, 60), act("south", 3, 90, 95)},
			"east west south", rules{TwoAtOnce, TwoAtOnce}},
	} {
		t.Run(name, func(t *testing.T) {
			verdicts := Judge(c.acts)
			if len(verdicts) != 1 || verdicts[0].Acts != len(c.acts) {
				t.Fatalf("want one verdict of %d acts, got %+v", len(c.acts), verdicts)
			}
			v := verdicts[0]
			if got := strings.Join(v.Leaders, " "); got != c.leaders {
				t.Errorf("leaders %s, want %s", got, c.leaders)
			}
			var got rules
			for _, b := range v.Breaches {
				got = append(got, b.Rule)
			}
			if diff := cmp.Diff(c.breaches, got); diff != "" {
				t.Errorf("breaches (-want +got):\n%s\n%v", diff, v.Breaches)
			}
		})
	}
}

func TestJudgeMeasuresTheGap(t *testing.T) {
	v := Judge([]Act{act("east", 1, 0, 30), act("east", 1, 10, 20), act("west", 7, 100, 101), act("west", 7, 200, 201)})[0]
	want := []Change{{From: "east", To: "west", Epoch: 7, Last: 30 * time.Millisecond, First: 100 * time.Millisecond}}
	if diff := cmp.Diff(want, v.Changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if gap := v.Changes[0].Gap(); gap != 70*time.Millisecond {
		t.Errorf("gap %v, want 70ms", gap)
	}
}
