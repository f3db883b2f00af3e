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

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// renewed is a Lease of an epoch that was seen and stamped at these instants of the boot clock.
func renewed(seen, stamped time.Duration, epoch int64) harness.Led {
	began := time.Unix(0, 0)
	return harness.Led{At: lease.Reading{Boot: seen, Wall: began.Add(seen)},
		Content: lease.Content{Term: lease.Term{RenewTime: began.Add(stamped), Epoch: epoch}}}
}

func TestDelays(t *testing.T) {
	for name, c := range map[string]struct {
		copies   []harness.Led
		from, to time.Duration
		want     []time.Duration
	}{
		"a renewal is as late as its sighting is after r": {copies: []harness.Led{renewed(0, 0, 1), renewed(12, 11, 1)},
			to: 15, want: []time.Duration{2}},
		"what comes early is punctual": {copies: []harness.Led{renewed(0, 0, 1), renewed(5, 5, 1)}, to: 14,
			want: []time.Duration{0}},
		"the next one is due r after the renewTime, not after the sight": {copies: []harness.Led{renewed(0, 0, 1),
			renewed(14, 10, 1), renewed(23, 22, 1)}, to: 24, want: []time.Duration{4, 3}},
		"a renewal that never comes is late until the end": {copies: []harness.Led{renewed(0, 0, 1)}, to: 60,
			want: []time.Duration{50}},
		"one that comes after the end is late until the end": {copies: []harness.Led{renewed(0, 0, 1),
			renewed(70, 70, 1)}, to: 60, want: []time.Duration{50}},
		"what was due before the beginning does not count": {copies: []harness.Led{renewed(0, 0, 1), renewed(30, 30, 1)},
			from: 20, to: 40},
		"what is due after the end does not count": {copies: []harness.Led{renewed(35, 35, 1)}, to: 40},
		"nothing was seen":                         {to: 40},
	} {
		if diff := cmp.Diff(c.want, delays(c.copies, 10, c.from, c.to), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: delays (-want +got):\n%s", name, diff)
		}
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
	ages, missed := renewalAges(map[string][]harness.Led{
		"punctual":        {renewed(1*s, 0, 7), renewed(6*s, 5*s, 7), renewed(11*s, 10*s, 7)},
		"late":            {renewed(1*s, 0, 7), renewed(12*s, 11*s, 7)},
		"another term":    {renewed(1*s, 0, 7), renewed(6*s, 5*s, 8), renewed(11*s, 10*s, 8)},
		"missing at last": {renewed(1*s, 0, 7)},
		"before the start": {renewed(-9*s, -10*s, 7), renewed(-4*s, -5*s, 7), renewed(1*s, 0, 7),
			renewed(11*s, 10*s, 7)},
	}, 10*s, 0, 15*s)
	if len(ages) != 7 || quantile(ages, 1) != 12*s || missed != 3 {
		t.Errorf("ages %v, %d missed; want 7 up to 12 s, and 3", ages, missed)
	}
}

func TestFiguresStandBesideTheirAims(t *testing.T) {
	f := figures{"reader.nsPerOp": 63.24, "reader.allocsPerOp": 0, "failover.overFloorMaxSeconds": 0.61}
	chosen := musttest.Get(choose([]string{"reader", "failover"}))(t)
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
	musttest.Do(t, f.write(file, chosen))
	raw := musttest.Get(os.ReadFile(file))(t)
	var written map[string]any
	musttest.Do(t, json.Unmarshal(raw, &written))
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
