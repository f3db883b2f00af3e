package main

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

// fine is what a good run shows.
func fine() []harness.Verdict {
	var verdicts []harness.Verdict
	for _, namespace := range namespaces {
		verdicts = append(verdicts, harness.Verdict{Namespace: namespace, Acts: 9, Leaders: wantLeaders})
	}
	return verdicts
}

func TestFlaws(t *testing.T) {
	done := result{FailedOver: true, HandedOver: true}
	for name, c := range map[string]struct {
		result result
		change func(*harness.Verdict)
		fails  bool
	}{
		"a good run passes":                 {result: done},
		"an overlap fails":                  {result: done, change: func(v *harness.Verdict) { v.Breaches = make([]harness.Breach, 1) }, fails: true},
		"a missing failover fails":          {result: result{HandedOver: true}, fails: true},
		"a failover below its floor fails":  {result: result{FailedOver: true, HandedOver: true, Failover: 1, Floor: 2}, fails: true},
		"a missing handover fails":          {result: result{FailedOver: true}, fails: true},
		"a flap back fails":                 {result: done, change: func(v *harness.Verdict) { v.Leaders = []string{"east", "west", "east", "south"} }, fails: true},
		"a namespace in which nobody acted": {result: done, change: func(v *harness.Verdict) { v.Namespace = "elsewhere" }, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			verdicts := fine()
			if c.change != nil {
				c.change(&verdicts[1])
			}
			if err := flaws(c.result, verdicts); (err != nil) != c.fails {
				t.Errorf("flaws: %v, want any: %v", err, c.fails)
			}
		})
	}
}

func TestReportHasFlatKeysAndNullForWhatDidNotHappen(t *testing.T) {
	raw, err := json.Marshal(report(result{FailedOver: true, Failover: 3100 * time.Millisecond, Floor: 3 * time.Second}, fine()))
	harness.Must(t, err)
	want := `{"failover.seconds":3.1,"failover.floorSeconds":3,"handover.seconds":null,"overlaps":0,` +
		`"leaders":["east","west","south"]}`
	if string(raw) != want {
		t.Errorf("report %s\nwant   %s", raw, want)
	}
}

func TestReportShowsTheLeadersThatAreWrong(t *testing.T) {
	verdicts := fine()
	verdicts[0].Leaders = []string{"east", "west", "east"}
	if got := report(result{}, verdicts).Leaders; !slices.Equal(got, verdicts[0].Leaders) {
		t.Errorf("leaders %v, want those of the namespace in which they are wrong", got)
	}
}
