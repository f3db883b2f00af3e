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
		"a renewal is as late as its sighting is after r":                {copies: []renewal{{0, 0}, {12, 11}}, to: 15, want: []time.Duration{2}},
		"what comes early is punctual":                                   {copies: []renewal{{0, 0}, {5, 5}}, to: 14, want: []time.Duration{0}},
		"the next one is due r after the renewTime, not after the sight": {copies: []renewal{{0, 0}, {14, 10}, {23, 22}}, to: 24, want: []time.Duration{4, 3}},
		"a renewal that never comes is late until the end":               {copies: []renewal{{0, 0}}, to: 60, want: []time.Duration{50}},
		"one that comes after the end is late until the end":             {copies: []renewal{{0, 0}, {70, 70}}, to: 60, want: []time.Duration{50}},
		"what was due before the beginning does not count":               {copies: []renewal{{0, 0}, {30, 30}}, from: 20, to: 40, want: nil},
		"what is due after the end does not count":                       {copies: []renewal{{35, 35}}, to: 40, want: nil},
		"nothing was seen": {to: 40, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			var copies []renewal
			for _, s := range c.copies {
				copies = append(copies, renewal{s.seen * time.Second, s.stamped * time.Second})
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
	if got := median(hundred); got != 50 { // 50.5, cut
		t.Errorf("median of 1 to 100 is %d, want 50", got)
	}
	if got := median([]time.Duration{9, 1, 5}); got != 5 {
		t.Errorf("median of 1, 5 and 9 is %d, want 5", got)
	}
}

func TestCountWritesCountsWhatChangesSomething(t *testing.T) {
	const metrics = `# HELP apiserver_request_total Counter
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",dry_run="",resource="leases",verb="PUT"} 1000
apiserver_request_total{code="409",dry_run="",resource="leases",verb="PUT"} 200
apiserver_request_total{code="201",dry_run="",resource="events",verb="POST"} 30
apiserver_request_total{code="200",dry_run="",resource="nodes",verb="PATCH"} 4
apiserver_request_total{code="403",dry_run="All",resource="leases",verb="POST"} 50000
apiserver_request_total{code="200",dry_run="",resource="leases",verb="GET"} 60000
apiserver_request_total{code="0",dry_run="",resource="leases",verb="WATCH"} 70000
# TYPE other counter
other{verb="PUT"} 80000
`
	got, err := count(strings.NewReader(metrics), isWrite)
	if err != nil || got != 1234 {
		t.Errorf("writes %v, %v; want 1234", got, err)
	}
	for name, metrics := range map[string]string{"another metric": "other 1\n", "no metrics": "<html>\n", "nothing": ""} {
		if got, err := count(strings.NewReader(metrics), isWrite); err == nil {
			t.Errorf("%s: writes %v, want an error", name, got)
		}
	}
}

func TestProcessFiguresAreReadFromProc(t *testing.T) {
	stat := "4242 (a (bad) name) S 1 4242 4242 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 9 0 100 1 2"
	if got, err := parseStat(stat); err != nil || got != 2*time.Second {
		t.Errorf("processor time %v, %v; want 2s", got, err)
	}
	if got, err := parseRSS("Name:\thub\nVmHWM:\t  90000 kB\nVmRSS:\t   51200 kB\nThreads:\t9\n"); err != nil || got != 50 {
		t.Errorf("memory %v MiB, %v; want 50", got, err)
	}
	if got, err := parseStat("4242 (hub) S"); err == nil {
		t.Errorf("processor time %v of a line that is cut, want an error", got)
	}
	if got, err := parseRSS("Name:\thub\n"); err == nil {
		t.Errorf("memory %v MiB of a kernel thread, want an error", got)
	}
	if u, err := sample(t.Context(), os.Getpid(), time.Millisecond); err != nil || u.rssMiB < 1 {
		t.Errorf("this process takes %+v, %v; want some memory", u, err)
	}
}

func TestFiguresStandBesideTheirTargets(t *testing.T) {
	f := figures{readerNs: 63.24, readerAllocs: 0, overFloorMax: 0.61}
	chosen, err := choose([]string{"reader", "failover"})
	harness.Must(t, err)
	var got []string
	for line := range strings.Lines(f.table(chosen)) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"figure measured target",
		"reader.nsPerOp 63.24 ≤ 100",
		"reader.allocsPerOp 0 ≤ 0",
		"reader.resyncSeconds not measured ≤ 1",
		"reader.firstActSeconds not measured ≤ 1",
		"failover.overFloorMedianSeconds not measured ≤ 0.1",
		"failover.overFloorMaxSeconds 0.61 ≤ 0.5 MISSED",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}

	file := filepath.Join(t.TempDir(), "out", "bench.json")
	harness.Must(t, f.write(file, chosen))
	raw, err := os.ReadFile(file)
	harness.Must(t, err)
	var written map[string]any
	harness.Must(t, json.Unmarshal(raw, &written))
	wantWritten := map[string]any{readerNs: 63.24, readerAllocs: 0.0, resyncSeconds: nil, firstActSeconds: nil, overFloorMedian: nil, overFloorMax: 0.61}
	if diff := cmp.Diff(wantWritten, written); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	if _, err := choose([]string{"everything"}); err == nil {
		t.Error("a measurement that does not exist can be chosen")
	}
}

func TestEveryTargetIsMeasured(t *testing.T) {
	measured := map[string]bool{}
	for _, key := range keysOf(measurements) {
		measured[key] = true
	}
	for key := range targets {
		if !measured[key] {
			t.Errorf("nobody measures %s", key)
		}
	}
}
