package main

import (
	"slices"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/chaos/permit"
	"github.com/leasecast/leasecast/e2e/harness"
)

const ms = time.Millisecond

// yes is an answer that a cluster's reader had at the instant, with some time left.
func yes(cluster string, asked, answered, left time.Duration, epoch int64) answer {
	return answer{permit.Line{Namespace: "shop", Epoch: epoch, Asked: asked, Answered: answered, Left: left}, cluster}
}

func TestPermitsOfTwoClustersMustNotMeet(t *testing.T) {
	for name, test := range map[string]struct {
		answers []answer
		want    []harness.Rule
	}{
		"a reader was stopped on its way from the question to the answer, longer than the term": {
			answers: []answer{yes("east", 1000*ms, 9000*ms, 3000*ms, 5), yes("west", 4300*ms, 4301*ms, 3000*ms, 6)},
		},
		"an old term is permitted again when the next one is over": {
			answers: []answer{yes("east", 1000*ms, 1001*ms, 100*ms, 5), yes("west", 2000*ms, 2001*ms, 100*ms, 6),
				yes("east", 3000*ms, 3001*ms, 100*ms, 5)},
			want: []harness.Rule{harness.AfterSuccessor},
		},
		"a term that is renewed in time is one span, and one that comes into it is one breach": {
			answers: []answer{yes("east", 1000*ms, 1001*ms, 100*ms, 5), yes("east", 1050*ms, 1051*ms, 100*ms, 5),
				yes("east", 1100*ms, 1101*ms, 100*ms, 5),
				yes("west", 1180*ms, 1181*ms, 100*ms, 6), yes("west", 1230*ms, 1231*ms, 100*ms, 6)},
			want: []harness.Rule{harness.TwoAtOnce},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []harness.Rule
			for _, b := range harness.Breaches(harness.Judge(permits(test.answers))) {
				got = append(got, b.Rule)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("want %q, got %q", test.want, got)
			}
		})
	}
}

func TestMarginIsTheLeastTimeBetweenADeadlineAndASuccessor(t *testing.T) {
	verdicts := harness.Judge(permits([]answer{
		yes("east", 1000*ms, 1001*ms, 3000*ms, 5), yes("west", 4250*ms, 4260*ms, 3000*ms, 6),
		yes("east", 20000*ms, 20001*ms, 3000*ms, 7),
	}))
	if got, ok := margin(verdicts); !ok || got != 260*ms {
		t.Errorf("want 260ms, got %v, %v", got, ok)
	}
	if _, ok := margin(nil); ok {
		t.Error("there is a margin without a change")
	}
}

func TestRecoveryNamesTheNamespacesInWhichNobodyActs(t *testing.T) {
	var answers []answer
	for _, namespace := range allNamespaces() {
		for _, answered := range []time.Duration{990 * ms, 3000 * ms, 9000 * ms} {
			a := yes("east", answered-ms, answered, ms, 6)
			a.Namespace = namespace
			answers = append(answers, a)
		}
	}
	if last, stuck := recovery(answers, 1000*ms); last != 2000*ms || stuck != nil {
		t.Errorf("want 2s and nobody stuck, got %v, %v", last, stuck)
	}
	answers = slices.DeleteFunc(answers, func(a answer) bool { return a.Namespace == "mail" && a.Answered > 2000*ms })
	if _, stuck := recovery(answers, 1000*ms); len(stuck) != 1 {
		t.Errorf("want mail to be stuck, got %v", stuck)
	}
}
