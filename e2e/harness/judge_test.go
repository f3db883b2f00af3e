package harness

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// act is an act in namespace shop, in milliseconds.
func act(cluster string, epoch int64, begin, end time.Duration) Act {
	a := Act{Cluster: cluster, Namespace: "shop", Epoch: epoch, Begin: begin * time.Millisecond, End: Unfinished}
	if end >= 0 {
		a.End = end * time.Millisecond
	}
	return a
}

func TestJudge(t *testing.T) {
	type rules = []Rule
	for name, c := range map[string]struct {
		acts     []Act
		leaders  []string
		breaches rules
	}{
		"one cluster may act as it likes, also in parallel with itself": {
			acts:    []Act{act("east", 1, 0, 10), act("east", 1, 5, 20), act("east", 1, 20, 21)},
			leaders: []string{"east"},
		},
		"one cluster after the other is what is wanted": {
			acts:    []Act{act("east", 1, 0, 10), act("west", 2, 11, 20), act("east", 3, 21, 30)},
			leaders: []string{"east", "west", "east"},
		},
		"the order of the logs does not matter": {
			acts:    []Act{act("west", 2, 11, 20), act("east", 1, 0, 10)},
			leaders: []string{"east", "west"},
		},
		"two clusters overlap": {
			acts:     []Act{act("east", 1, 0, 10), act("west", 2, 9, 20)},
			leaders:  []string{"east", "west"},
			breaches: rules{TwoAtOnce},
		},
		"touching ends overlap, because nobody knows more": {
			acts:     []Act{act("east", 1, 0, 10), act("west", 2, 10, 20)},
			leaders:  []string{"east", "west"},
			breaches: rules{TwoAtOnce},
		},
		"one act within another cluster's overlaps": {
			acts:     []Act{act("east", 1, 0, 100), act("west", 2, 50, 60)},
			leaders:  []string{"east", "west"},
			breaches: rules{TwoAtOnce},
		},
		"a long act overlaps although a shorter one of the same cluster came after it": {
			acts:     []Act{act("east", 1, 0, 100), act("east", 1, 10, 20), act("west", 2, 50, 60)},
			leaders:  []string{"east", "west"},
			breaches: rules{TwoAtOnce},
		},
		"every act that overlaps counts": {
			acts:     []Act{act("east", 1, 0, 100), act("west", 2, 50, 60), act("west", 2, 70, 80), act("west", 2, 120, 130)},
			leaders:  []string{"east", "west"},
			breaches: rules{TwoAtOnce, TwoAtOnce},
		},
		"an act without a known end overlaps whatever others do later": {
			acts:     []Act{act("east", 1, 0, -1), act("west", 2, 5000, 5001)},
			leaders:  []string{"east", "west"},
			breaches: rules{TwoAtOnce},
		},
		"acts that begin at one instant overlap": {
			acts:     []Act{act("east", 1, 0, 10), act("west", 2, 0, 5)},
			leaders:  []string{"west", "east"},
			breaches: rules{TwoAtOnce, AfterSuccessor},
		},
		"the old leader acts between two acts of the new one": {
			acts:     []Act{act("east", 1, 0, 10), act("west", 2, 20, 30), act("east", 1, 40, 50), act("west", 2, 60, 70)},
			leaders:  []string{"east", "west", "east", "west"},
			breaches: rules{AfterSuccessor},
		},
		"the epoch falls within one cluster": {
			acts:     []Act{act("east", 2, 0, 10), act("east", 1, 20, 30)},
			leaders:  []string{"east"},
			breaches: rules{AfterSuccessor},
		},
		"an act may end after the next term of its own cluster began": {
			acts:    []Act{act("east", 1, 0, 50), act("east", 2, 20, 30)},
			leaders: []string{"east"},
		},
		"two clusters act in one epoch": {
			acts:     []Act{act("east", 1, 0, 10), act("west", 1, 20, 30)},
			leaders:  []string{"east", "west"},
			breaches: rules{OneEpochTwice},
		},
		"a third cluster does not hide an overlap of the other two": {
			acts:     []Act{act("east", 1, 0, 100), act("west", 2, 50, 60), act("south", 3, 90, 95)},
			leaders:  []string{"east", "west", "south"},
			breaches: rules{TwoAtOnce, TwoAtOnce},
		},
	} {
		t.Run(name, func(t *testing.T) {
			verdicts := Judge(c.acts)
			if len(verdicts) != 1 {
				t.Fatalf("%d verdicts, want 1", len(verdicts))
			}
			v := verdicts[0]
			if v.Acts != len(c.acts) {
				t.Errorf("%d acts, want %d", v.Acts, len(c.acts))
			}
			if diff := cmp.Diff(c.leaders, v.Leaders); diff != "" {
				t.Errorf("leaders (-want +got):\n%s", diff)
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
