package main

import (
	"path/filepath"
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

// later is in milliseconds, unless it is never.
func later(back time.Duration) time.Duration {
	if back == history.Pending {
		return back
	}
	return back * time.Millisecond
}

func write(call, back time.Duration, epoch int64, value, result string) history.Call {
	return history.Call{
		Line: history.Line{At: call * time.Millisecond, Namespace: "shop", Right: &history.Right{},
			State: register.State{Epoch: epoch, Value: value}},
		Returned: later(back), Result: result,
	}
}

func readOf(call, back time.Duration, epoch int64, value string) history.Call {
	return history.Call{
		Line: history.Line{At: call * time.Millisecond, Namespace: "shop"}, Returned: later(back), Result: history.OK,
		Read: register.State{Epoch: epoch, Value: value},
	}
}

// isWrong checks the history of the one register that the calls have.
func isWrong(t *testing.T, calls map[string][]history.Call, since, end time.Duration) bool {
	t.Helper()
	all := operations(calls, since)
	if len(all) != 1 {
		t.Fatalf("there are %d histories, want one", len(all))
	}
	return !linearizable(all["shop"], end, filepath.Join(t.TempDir(), "wrong.html"))
}

func TestHistoriesOfAFencedRegister(t *testing.T) {
	for name, test := range map[string]struct {
		calls []history.Call
		wrong bool
	}{
		"writes of rising epochs, and what they left is read": {
			calls: []history.Call{
				readOf(0, 1, 4, "old"), write(2, 3, 5, "a", history.OK), readOf(4, 5, 5, "a"), write(6, 7, 6, "b", history.OK),
				readOf(8, 9, 6, "b"),
			},
		},
		"a write of a lower epoch is refused": {
			calls: []history.Call{write(0, 1, 6, "a", history.OK), write(2, 3, 5, "b", history.Refused), readOf(4, 5, 6, "a")},
		},
		"a write of a lower epoch is taken": {
			calls: []history.Call{write(0, 1, 6, "a", history.OK), write(2, 3, 5, "b", history.OK)},
			wrong: true,
		},
		"two writes at once may be taken in the order that allows it": {
			calls: []history.Call{write(0, 9, 6, "a", history.OK), write(1, 8, 5, "b", history.OK), readOf(10, 11, 6, "a")},
		},
		"a write is refused without a reason": {
			calls: []history.Call{write(0, 1, 5, "a", history.OK), write(2, 3, 6, "b", history.Refused)},
			wrong: true,
		},
		"a write of an equal epoch is refused": {
			calls: []history.Call{write(0, 1, 5, "a", history.OK), write(2, 3, 5, "b", history.Refused)},
			wrong: true,
		},
		"a write that was taken is lost": {
			calls: []history.Call{write(0, 1, 5, "a", history.OK), write(2, 3, 5, "b", history.OK), readOf(4, 5, 5, "a")},
			wrong: true,
		},
		"a write that was refused is read": {
			calls: []history.Call{write(0, 1, 6, "a", history.OK), write(2, 3, 5, "b", history.Refused), readOf(4, 5, 5, "b")},
			wrong: true,
		},
		"a read is older than one before it": {
			calls: []history.Call{write(0, 9, 5, "a", history.OK), readOf(1, 2, 5, "a"), readOf(3, 4, 4, "old")},
			wrong: true,
		},
		"a write without an answer may take effect later": {
			calls: []history.Call{write(0, 1, 5, "a", history.OK), write(2, 3, 5, "b", history.Unknown), readOf(4, 5, 5, "a"),
				readOf(6, 7, 5, "b")},
		},
		"a write without an answer may never take effect": {
			calls: []history.Call{write(0, 1, 5, "a", history.OK), write(2, history.Pending, 6, "b", history.Unknown),
				write(4, 5, 5, "c", history.OK), readOf(6, 7, 5, "c")},
		},
		"a write without an answer does not take effect twice": {
			calls: []history.Call{
				write(0, 1, 5, "a", history.OK), write(2, 3, 5, "b", history.Unknown), readOf(4, 5, 5, "b"),
				write(6, 7, 5, "c", history.OK), readOf(8, 9, 5, "b"),
			},
			wrong: true,
		},
		"a late write without an answer does not undo a later term": {
			calls: []history.Call{write(0, history.Pending, 5, "a", history.Unknown), write(2, 3, 6, "b", history.OK),
				readOf(4, 5, 5, "a")},
			wrong: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if isWrong(t, map[string][]history.Call{"east": test.calls}, -time.Hour, time.Hour) != test.wrong {
				t.Errorf("want wrong to be %v", test.wrong)
			}
		})
	}
}

func TestCallsThatTheClockCannotOrderAreConcurrent(t *testing.T) {
	first, second := write(0, 1, 5, "a", history.OK), readOf(0, 0, 4, "old")
	second.At = first.Returned + reading
	second.Returned = second.At + time.Millisecond
	calls := []history.Call{readOf(-2, -1, 4, "old"), first, second}
	if isWrong(t, map[string][]history.Call{"east": calls}, -time.Hour, time.Hour) {
		t.Error("a call within the clock's error after another one is wrong")
	}
	calls[2].At += 2 * reading
	if !isWrong(t, map[string][]history.Call{"east": calls}, -time.Hour, time.Hour) {
		t.Error("a read of an old value after a write is not wrong")
	}
}

func TestAHistoryEndsWhereItIsKnownOfAllReaders(t *testing.T) {
	// West's file was read before it told of the write that east read and told of.
	calls := map[string][]history.Call{"east": {readOf(0, 1, 5, "a"), readOf(10, 11, 5, "b")}}
	if !isWrong(t, calls, -time.Hour, time.Hour) {
		t.Error("a value that nobody wrote")
	}
	if isWrong(t, calls, -time.Hour, 9*time.Millisecond) {
		t.Error("what comes after the end counts")
	}
}

func TestWhatBeganBeforeAHistoryMayHaveTakenEffectBeforeIt(t *testing.T) {
	const since = 5 * time.Millisecond
	for name, test := range map[string]struct {
		calls       []history.Call
		wrongWithin bool // if the history begins before them
	}{
		// Of a value that was overwritten before the history begins nobody tells any more.
		"a read whose answer came late":  {[]history.Call{readOf(0, 20, 5, "a"), readOf(10, 11, 5, "b")}, true},
		"a write whose answer came late": {[]history.Call{write(0, 11, 5, "a", history.OK), readOf(12, 13, 5, "b")}, true},
		"a write that takes effect within": {[]history.Call{write(0, 20, 5, "a", history.OK), readOf(10, 11, 4, "b"),
			readOf(12, 13, 5, "a")}, false},
		"a write that is refused for a later": {[]history.Call{write(0, 20, 5, "a", history.Refused),
			readOf(10, 11, 6, "b")}, false},
		"a write whose answer never came at all": {[]history.Call{write(0, history.Pending, 5, "a", history.Unknown),
			readOf(10, 11, 5, "b")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			calls := map[string][]history.Call{"east": test.calls[:1], "west": test.calls[1:]}
			if isWrong(t, calls, since, time.Hour) {
				t.Error("it began before the history")
			}
			if isWrong(t, calls, -time.Hour, time.Hour) != test.wrongWithin {
				t.Errorf("within the history: want wrong to be %v", test.wrongWithin)
			}
		})
	}
	// What is wrong within the history stays wrong.
	calls := map[string][]history.Call{"east": {write(0, 20, 5, "c", history.OK)},
		"west": {readOf(6, 7, 5, "a"), readOf(10, 11, 5, "b")}}
	if !isWrong(t, calls, since, time.Hour) {
		t.Error("a value that nobody wrote")
	}
}
