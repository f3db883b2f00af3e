package main

import (
	"slices"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/chaos/history"
	"github.com/leasecast/leasecast/e2e/chaos/register"
	"github.com/leasecast/leasecast/e2e/harness"
)

const ms = time.Millisecond

// yes is a write of a reader that was told at the instant that it has some time left.
func yes(asked, told, left time.Duration, epoch int64) history.Call {
	return history.Call{
		Line: history.Line{
			Namespace: "shop", At: told + 10*ms, State: register.State{Epoch: epoch},
			Right: &history.Right{Asked: asked, Told: told, Left: left},
		},
		Returned: told + 11*ms, Result: history.OK,
	}
}

func TestPermitsOfTwoClustersMustNotMeet(t *testing.T) {
	for name, test := range map[string]struct {
		east, west []history.Call
		want       []harness.Rule
	}{
		"the next one comes after the last deadline": {
			east: []history.Call{yes(1000*ms, 1001*ms, 3000*ms, 5)},
			west: []history.Call{yes(4001*ms, 4002*ms, 3000*ms, 6)},
		},
		"the next one comes before the last deadline, and the first never acts again": {
			east: []history.Call{yes(1000*ms, 1001*ms, 3000*ms, 5)},
			west: []history.Call{yes(3900*ms, 3901*ms, 3000*ms, 6)},
			want: []harness.Rule{harness.TwoAtOnce},
		},
		"a reader was stopped on its way from the question to the answer, longer than the term": {
			east: []history.Call{yes(1000*ms, 9000*ms, 3000*ms, 5)},
			west: []history.Call{yes(4300*ms, 4301*ms, 3000*ms, 6)},
		},
		"a reader was stopped after its answer, and acts when it wakes": {
			east: []history.Call{{
				Line: history.Line{Namespace: "shop", At: 9000 * ms, State: register.State{Epoch: 5},
					Right: &history.Right{Asked: 1000 * ms, Told: 1001 * ms, Left: 3000 * ms}},
				Returned: 9001 * ms, Result: history.Refused,
			}},
			west: []history.Call{yes(4300*ms, 4301*ms, 3000*ms, 6)},
		},
		"an old term is permitted anew when the next one is over": {
			east: []history.Call{yes(1000*ms, 1001*ms, 100*ms, 5), yes(3000*ms, 3001*ms, 100*ms, 5)},
			west: []history.Call{yes(2000*ms, 2001*ms, 100*ms, 6)},
			want: []harness.Rule{harness.AfterSuccessor},
		},
		"a term that is renewed in time is one span, and one that comes into it is one breach": {
			east: []history.Call{yes(1000*ms, 1001*ms, 100*ms, 5), yes(1050*ms, 1051*ms, 100*ms, 5),
				yes(1100*ms, 1101*ms, 100*ms, 5)},
			west: []history.Call{yes(1180*ms, 1181*ms, 100*ms, 6), yes(1230*ms, 1231*ms, 100*ms, 6)},
			want: []harness.Rule{harness.TwoAtOnce},
		},
		"one epoch is given to two": {
			east: []history.Call{yes(1000*ms, 1001*ms, 100*ms, 5)},
			west: []history.Call{yes(2000*ms, 2001*ms, 100*ms, 5)},
			want: []harness.Rule{harness.OneEpochTwice},
		},
		"reads need no right": {
			east: []history.Call{yes(1000*ms, 1001*ms, 3000*ms, 5)},
			west: []history.Call{{Line: history.Line{Namespace: "shop", At: 2000 * ms}, Returned: 2001 * ms,
				Result: history.OK}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []harness.Rule
			for _, b := range harness.Breaches(harness.Judge(permits(map[string][]history.Call{"east": test.east,
				"west": test.west}))) {
				got = append(got, b.Rule)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("want %q, got %q", test.want, got)
			}
		})
	}
}

func TestMarginIsTheLeastTimeBetweenADeadlineAndASuccessor(t *testing.T) {
	verdicts := harness.Judge(permits(map[string][]history.Call{
		"east": {yes(1000*ms, 1001*ms, 3000*ms, 5), yes(20000*ms, 20001*ms, 3000*ms, 7)},
		"west": {yes(4250*ms, 4260*ms, 3000*ms, 6)},
	}))
	if got, ok := margin(verdicts); !ok || got != 260*ms {
		t.Errorf("want 260ms, got %v, %v", got, ok)
	}
	if _, ok := margin(nil); ok {
		t.Error("there is a margin without a change")
	}
}

// wrote is a write as the store saw it.
func wrote(at time.Duration, by string, epoch int64, taken bool) register.Write {
	return register.Write{At: at, Namespace: "shop", State: register.State{Epoch: epoch, Value: by + "-1/1"}, Taken: taken}
}

func TestWorstGap(t *testing.T) {
	writes := []register.Write{
		wrote(1000*ms, "east", 5, true), wrote(1500*ms, "east", 5, true), wrote(2000*ms, "east", 4, false),
		wrote(2600*ms, "west", 6, true),
	}
	if got := worstGap(writes); got != 1100*ms {
		t.Errorf("want 1.1s, got %v: a write that was refused ends no gap", got)
	}
}

func TestRecoveryNamesTheNamespacesInWhichNobodyActs(t *testing.T) {
	var writes []register.Write
	for _, namespace := range allNamespaces() {
		for _, w := range []register.Write{wrote(990*ms, "east", 5, true), wrote(1001*ms, "east", 4, false),
			wrote(3000*ms, "east", 6, true), wrote(9000*ms, "east", 6, true)} {
			w.Namespace = namespace
			writes = append(writes, w)
		}
	}
	if last, stuck := recovery(writes, 1000*ms); last != 2000*ms || stuck != nil {
		t.Errorf("want 2s and nobody stuck, got %v, %v", last, stuck)
	}
	writes = slices.DeleteFunc(writes, func(w register.Write) bool { return w.Namespace == "mail" && w.At > 2000*ms })
	if _, stuck := recovery(writes, 1000*ms); len(stuck) != 1 {
		t.Errorf("want mail to be stuck, got %v", stuck)
	}
}
