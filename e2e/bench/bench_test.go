package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/leasecast/leasecast/e2e/harness"
)

func TestDelays(t *testing.T) {
	const r = 10 * time.Second
	for name, c := range map[string]struct {
		copies   []renewal // in seconds
		from, to time.Duration
		want     []time.Duration // in seconds
	}{
		"a renewal is as late as its sighting is after r": {copies: []renewal{{0, 0, 1}, {12, 11, 1}}, to: 15,
			want: []time.Duration{2}},
		"what comes early is punctual": {copies: []renewal{{0, 0, 1}, {5, 5, 1}}, to: 14, want: []time.Duration{0}},
		"the next one is due r after the renewTime, not after the sight": {copies: []renewal{{0, 0, 1}, {14, 10, 1},
			{23, 22, 1}}, to: 24, want: []time.Duration{4, 3}},
		"a renewal that never comes is late until the end": {copies: []renewal{{0, 0, 1}}, to: 60,
			want: []time.Duration{50}},
		"one that comes after the end is late until the end": {copies: []renewal{{0, 0, 1}, {70, 70, 1}}, to: 60,
			want: []time.Duration{50}},
		"what was due before the beginning does not count": {copies: []renewal{{0, 0, 1}, {30, 30, 1}},
			from: 20, to: 40, want: nil},
		"what is due after the end does not count": {copies: []renewal{{35, 35, 1}}, to: 40, want: nil},
		"nothing was seen":                         {to: 40, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			var copies []renewal
			for _, s := range c.copies {
				copies = append(copies, renewal{seen: s.seen * time.Second, stamped: s.stamped * time.Second})
			}
			var got []time.Duration
			for _, d := range delays(copies, r, c.from*time.Second, c.to*time.Second) {
				got = append(got, d/time.Second)
			}
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("delays (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQuantileAndMedian(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	for q, want := range map[float64]time.Duration{0.01: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := quantile(hundred, q); got != want {
			t.Errorf("quantile %v of 1 to 100 is %d, want %d", q, got, want)
		}
	}
	if got := quantile([]time.Duration{7}, 0.99); got != 7 {
		t.Errorf("quantile of one value is %d, want it", got)
	}
	if got := median([]time.Duration{9, 1, 5}); got != 5 {
		t.Errorf("median of 1, 5 and 9 is %d, want 5", got)
	}
}

func TestRenewalsThatComeLateAreMissed(t *testing.T) {
	const s = time.Second
	ages, missed := renewalAges(map[string][]renewal{
		"punctual":         {{1 * s, 0, 7}, {6 * s, 5 * s, 7}, {11 * s, 10 * s, 7}},
		"late":             {{1 * s, 0, 7}, {12 * s, 11 * s, 7}},
		"another term":     {{1 * s, 0, 7}, {6 * s, 5 * s, 8}, {11 * s, 10 * s, 8}},
		"missing at last":  {{1 * s, 0, 7}},
		"before the start": {{-9 * s, -10 * s, 7}, {-4 * s, -5 * s, 7}, {1 * s, 0, 7}, {11 * s, 10 * s, 7}},
	}, 10*s, 0, 15*s)
	if len(ages) != 7 || quantile(ages, 1) != 12*s || missed != 3 {
		t.Errorf("ages %v, %d missed; want 7 up to 12 s, and 3", ages, missed)
	}
}

func TestTheUseOfAProcessIsSampled(t *testing.T) {
	if u := sample(t.Context(), os.Getpid(), time.Millisecond); u.rssMiB < 1 {
		t.Errorf("this process takes %+v, want some memory", u)
	}
}

func TestFiguresStandBesideTheirAims(t *testing.T) {
	f := figures{"reader.nsPerOp": 63.24, "reader.allocsPerOp": 0, "failover.overFloorMaxSeconds": 0.61}
	chosen := harness.Get(choose([]string{"reader", "failover"}))(t)
	var got []string
	for line := range strings.Lines(f.table(chosen)) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"figure measured aim",
		"reader.nsPerOp 63.2400 ≤ 100",
		"reader.allocsPerOp 0.0000 ≤ 0",
		"reader.resyncSeconds not measured ≤ 1",
		"failover.overFloorMedianSeconds not measured ≤ 0.1",
		"failover.overFloorMaxSeconds 0.6100 ≤ 0.5 MISSED",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	file := filepath.Join(t.TempDir(), "out", "bench.json")
	harness.Must(t, f.write(file, chosen))
	raw := harness.Get(os.ReadFile(file))(t)
	var written map[string]any
	harness.Must(t, json.Unmarshal(raw, &written))
	wantWritten := map[string]any{
		"reader.nsPerOp": 63.24, "reader.allocsPerOp": 0.0, "reader.resyncSeconds": nil,
		"failover.overFloorMedianSeconds": nil, "failover.overFloorMaxSeconds": 0.61,
	}
	if diff := cmp.Diff(wantWritten, written); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	if _, err := choose([]string{"everything"}); err == nil {
		t.Error("a measurement that does not exist can be chosen")
	}
}
