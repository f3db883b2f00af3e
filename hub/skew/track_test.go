package skew_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/hub/skew"
)

const eps = second

// The verdict under an ε of a second, after these steps.
func TestVerdict(t *testing.T) {
	const wrong = "offset 4s; answers 2; offset 0s; "
	for name, tc := range map[string]struct {
		steps string
		want  skew.State
	}{
		"no answer yet":               {"", skew.Unknown},
		"far off in the first answer": {"offset 4s; answers 1", skew.Suspected},
		"far off in the first answer, then right": {"offset 4s; answers 1; offset 0s; answers 1",
			skew.Within},
		"far off in the first answer, then again": {"offset 4s; answers 1; offset -4s; answers 1",
			skew.Suspected},
		"one answer, after 0.9 s": {"pass 900ms; offset 400ms; answer 5ms 5ms",
			skew.Unknown},
		"right": {"probes 5s 60s", skew.Within},
		"ahead by nearly ε, as a good clock may be":                 {"offset 990ms; probes 5s 300s", skew.Unknown},
		"behind by nearly ε":                                        {"offset -990ms; probes 5s 300s", skew.Unknown},
		"off by half of ε":                                          {"offset 500ms; probes 5s 300s", skew.Within},
		"ahead by more than ε":                                      {"offset 1250ms; probes 5s 300s", skew.Beyond},
		"behind by more than ε":                                     {"offset -1250ms; probes 5s 300s", skew.Beyond},
		"far off, shown by two answers at once":                     {"offset 4s; answers 2", skew.Beyond},
		"far off in one answer, which may come from another server": {"probes 5s 60s; offset 4s; answers 1", skew.Unknown},
		"far off in single answers among others": {
			strings.Repeat("answers 3; offset 4s; answers 1; offset 0s; ", 5) + "pass 0s", skew.Unknown},
		"stepped": {"probes 5s 60s; offset -4s; answers 2", skew.Beyond},
		"the hub's clock is stepped, and no answer has come since": {"probes 5s 60s; hub 4s", skew.Beyond},
		"the hub's clock is stepped, and answers have come since":  {"probes 5s 60s; hub 4s; answers 2", skew.Beyond},
		"the hub's clock is stepped and put right":                 {"probes 5s 60s; hub 4s; answers 2; hub 0s", skew.Within},
		"put right for less than 10 s":                             {wrong + "probes 1s 9s", skew.Beyond},
		"put right for more than 10 s":                             {wrong + "probes 1s 15s", skew.Within},
		"put right for less than 10 s, and wrong again": {
			wrong + "probes 1s 9s; " + wrong + "probes 1s 9s", skew.Beyond},
		"put right, and the way is too long to prove it": {
			"offset 10s; answers 2; offset 0s; far", skew.Unknown},
		"another cluster is behind the name": {"offset 4s; answers 2; reset", skew.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.track.Judge(w.hub(), []time.Duration{eps})
			for step := range strings.SplitSeq(tc.steps, "; ") {
				w.play(t, append(strings.Fields(step), "")[0], strings.Fields(step))
			}
			if got := w.verdict(eps); got.State != tc.want {
				off, _ := w.track.Offset(w.hub())
				t.Errorf("verdict %+v, want state %v; the truth is %v, measured %+v", got, tc.want, w.truth(), off)
			}
		})
	}
}

// play runs one step of TestVerdict.
func (w *world) play(t *testing.T, verb string, words []string) {
	var ds [3]time.Duration
	for i := 1; i < len(words); i++ {
		ds[i], _ = time.ParseDuration(words[i])
	}
	switch verb {
	case "pass":
		w.pass(ds[1])
	case "offset":
		w.offset = ds[1]
	case "hub": // its wall clock is stepped
		w.stepH = ds[1]
	case "answer":
		w.answer(ds[1], ds[2])
	case "answers":
		w.answers(int(words[1][0] - '0'))
	case "far": // answers that take 0.9 s each way
		for range 60 {
			w.pass(second + w.between(0, second))
			w.answer(900*ms, 900*ms)
		}
	case "probes":
		w.probes(ds[1], ds[2])
	case "reset":
		w.track.Reset()
	case "":
	default:
		t.Fatalf("no such step: %q", words)
	}
}

// A verdict against a member is never wrong, and one for it is not wrong for long: whatever the
// offset, the delays and the moments of the answers.
func TestNobodyIsAccusedWrongly(t *testing.T) {
	for seed := range uint64(2000) {
		w := newWorld(seed)
		w.offset = w.between(-eps, eps)
		w.rate = (2*w.Float64() - 1) * 500e-6
		w.track.Judge(w.hub(), []time.Duration{eps, 250 * ms})
		for range 60 {
			w.pass(w.between(0, 2*second))
			if w.truth().Abs() > eps-10*ms {
				w.rate = 0
			}
			w.answer(w.between(0, 300*ms), w.between(0, 300*ms))
			if v := w.verdict(eps); v.State == skew.Beyond {
				t.Fatalf("seed %d: %v, but the truth is %v", seed, v, w.truth())
			}
		}
	}
}

// The stated precision: by probes every second after a minute, by probes every 5 s after some minutes.
func TestPrecision(t *testing.T) {
	for name, tc := range map[string]struct{ every, after, precision time.Duration }{
		"probes every second for a minute":     {second, 60 * second, 100 * ms},
		"probes every 5 seconds for 5 minutes": {5 * second, 300 * second, 180 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			sum := time.Duration(0)
			const worlds = 300
			for seed := range uint64(worlds) {
				w := newWorld(seed)
				w.offset = w.between(-5*second, 5*second)
				w.rate = (2*w.Float64() - 1) * 500e-6
				w.probes(tc.every, tc.after)
				i, _ := w.track.Offset(w.hub())
				sum += i.Hi - i.Lo
			}
			if sum/worlds > tc.precision {
				t.Errorf("an interval is %v wide, want %v", sum/worlds, tc.precision)
			}
			t.Logf("an interval is %v wide", sum/worlds)
		})
	}
}

func TestClockBeyondEpsilonIsFound(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(seed)
		w.offset = eps + 300*ms + w.between(0, 5*second)
		if w.IntN(2) == 0 {
			w.offset = -w.offset
		}
		w.track.Judge(w.hub(), []time.Duration{eps})
		w.probes(second, 60*second)
		v := w.verdict(eps)
		if v.State != skew.Beyond || w.truth() < v.Offset.Lo || w.truth() > v.Offset.Hi {
			t.Errorf("seed %d: %+v, the truth is %v", seed, v, w.truth())
		}
		if behind := v.Behind(); w.truth() < 0 && behind < -w.truth() || w.truth() > 0 && behind != 0 {
			t.Errorf("seed %d: behind by %v, the truth is %v", seed, behind, w.truth())
		}
	}
}

// A clock that wanders near ε, as fast as NTP slews clocks, seldom changes the verdict.
func TestAClockAtTheLimitDoesNotFlap(t *testing.T) {
	for seed := range uint64(30) {
		w := newWorld(seed)
		w.track.Judge(w.hub(), []time.Duration{eps})
		changes, last := 0, skew.Unknown
		w.offset = eps
		for range 1000 {
			if w.rate = (2*w.Float64() - 1) * 500e-6; (w.offset - eps).Abs() > 100*ms {
				w.rate = math.Copysign(400e-6, float64(eps-w.offset))
			}
			w.probes(second, second)
			if now := w.verdict(eps).State; now != last {
				changes, last = changes+1, now
			}
		}
		if changes > 2 {
			t.Errorf("seed %d: %d changes of the verdict", seed, changes)
		}
	}
}

func TestEachPolicyHasItsOwnVerdict(t *testing.T) {
	w := newWorld(1)
	w.track.Judge(w.hub(), []time.Duration{250 * ms, second})
	w.offset = 500 * ms
	w.probes(second, 60*second)
	if got := w.verdict(250 * ms).State; got != skew.Beyond {
		t.Errorf("under 250 ms: %v", got)
	}
	if got := w.verdict(second).State; got != skew.Within {
		t.Errorf("under 1 s: %v", got)
	}
	if got := w.verdict(2 * second).State; got != skew.Unknown {
		t.Errorf("under an ε that nobody asked for: %v", got)
	}
	if v, e := w.track.Worst(w.hub()); v.State != skew.Beyond || e != 250*ms {
		t.Errorf("worst: %+v under %v", v, e)
	}
	w.track.Judge(w.hub(), []time.Duration{second, 400 * ms}) // measured well enough to tell at once
	if got := w.track.States(); got[0] != skew.Within || got[1] != skew.Beyond {
		t.Errorf("after a change of policies: %v", got)
	}
	if got := w.verdict(250 * ms).State; got != skew.Unknown {
		t.Errorf("under an ε that nobody asks for any more: %v", got)
	}
}

func TestVerdictInWords(t *testing.T) {
	for name, tc := range map[string]struct {
		v    skew.Verdict
		want string
	}{
		"ahead": {v: skew.Verdict{State: skew.Beyond, Offset: skew.Interval{Lo: 1951 * ms, Hi: 2044 * ms}},
			want: "the API server's clock is 1.95s to 2.04s ahead of the hub's"},
		"behind": {v: skew.Verdict{State: skew.Beyond, Offset: skew.Interval{Lo: -5 * second, Hi: -2 * second}},
			want: "the API server's clock is 2s to 5s behind the hub's"},
		"fine": {skew.Verdict{State: skew.Within}, "the API server's clock is not known to be off"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.v.String(); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
