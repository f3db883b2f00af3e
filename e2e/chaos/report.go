package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

// report is out/chaos.json.
type report struct {
	Schedules int            `json:"schedules"`
	Faults    int            `json:"faults"`
	ByKind    map[Kind]tally `json:"faultsByKind"`
	Acts      int            `json:"acts"`
	Changes   int            `json:"leaderChanges"`
	Overlaps  int            `json:"overlaps"`
	// Margin is the least time between a leader's last deadline and its successor's first permit.
	Margin   float64 `json:"leastMarginSeconds"`
	WorstGap float64 `json:"worstGapSeconds"`
	// Recovery is the longest time from the end of the last fault until every namespace had a leader that acts.
	Recovery     float64  `json:"worstRecoverySeconds"`
	Stuck        int      `json:"stuck"`
	Registers    int      `json:"registersChecked"`
	Linearizable int      `json:"registersLinearizable"`
	StaleFenced  int      `json:"staleFenced"`
	Failed       []string `json:"failedSeeds"`
	Runs         []run    `json:"runs"`
	margin       bool
}

// tally counts the faults of one kind.
type tally struct {
	Played int `json:"played"`
	// Took counts those whose effect was seen, apart from what readers did.
	Took int `json:"effectSeen"`
}

// run is one schedule in the report. Times are seconds from its beginning.
type run struct {
	Seed     uint64   `json:"seed"`
	Verdict  []string `json:"verdict"`
	Faults   []string `json:"faults"`
	Changes  int      `json:"leaderChanges"`
	Margin   float64  `json:"marginSeconds"`
	Gap      float64  `json:"gapSeconds"`
	Recovery float64  `json:"recoverySeconds"`
}

func newReport() *report { return &report{ByKind: map[Kind]tally{}, Failed: []string{}, Runs: []run{}} }

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

// add counts an outcome.
func (r *report) add(o *Outcome) {
	r.Schedules++
	entry := run{
		Seed: o.Seed, Verdict: o.verdict(), Changes: o.Changes, Margin: seconds(o.Margin), Gap: seconds(o.Gap),
		Recovery: seconds(o.Recovery),
	}
	for _, f := range o.Faults {
		r.Faults++
		t := r.ByKind[f.Kind]
		t.Played++
		if f.Took {
			t.Took++
		}
		r.ByKind[f.Kind] = t
		entry.Faults = append(entry.Faults, fmt.Sprintf("%s: %s", f.Fault, f.Effect))
	}
	r.Acts += o.Acts
	r.Changes += o.Changes
	r.Overlaps += len(o.Overlaps)
	if o.Changes > 0 && (!r.margin || seconds(o.Margin) < r.Margin) {
		r.Margin, r.margin = seconds(o.Margin), true
	}
	r.WorstGap = max(r.WorstGap, seconds(o.Gap))
	r.Recovery = max(r.Recovery, seconds(o.Recovery))
	r.Stuck += len(o.Stuck)
	r.Registers += o.Registers
	r.Linearizable += o.Registers - len(o.Unordered)
	r.StaleFenced += o.StaleFenced
	if o.Failed() {
		r.Failed = append(r.Failed, fmt.Sprint(o.Seed))
	}
	r.Runs = append(r.Runs, entry)
}

// mostListed is how many overlaps of a schedule the verdict lists.
const mostListed = 20

// verdict lists what is wrong, a line each.
func (o *Outcome) verdict() []string {
	lines := []string{}
	if o.Unsound != "" {
		lines = append(lines, o.Unsound)
	}
	for i, b := range o.Overlaps {
		if i == mostListed {
			lines = append(lines, fmt.Sprintf("and %d more overlaps", len(o.Overlaps)-i))
			break
		}
		lines = append(lines, relative(b, o.Began).String())
	}
	lines = append(lines, o.Stuck...)
	for _, what := range o.Unordered {
		lines = append(lines, "a register is not linearizable: "+what)
	}
	if o.StaleFenced > 0 {
		lines = append(lines, fmt.Sprintf("the fenced register took %d writes of a term that was over", o.StaleFenced))
	}
	return lines
}

// relative counts the times of a breach from an instant.
func relative(b harness.Breach, began time.Duration) harness.Breach {
	for _, a := range []*harness.Act{&b.Earlier, &b.Later} {
		a.Begin -= began
		a.End -= began
	}
	return b
}

func (r *report) write(file string) error { return harness.WriteReport(file, r) }

// summary is the last output of a run.
func (r *report) summary() string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("%d schedules, %d faults, %d acts, %d changes of leader", r.Schedules, r.Faults, r.Acts, r.Changes)
	line("  %-26s %7s %12s", "kind of fault", "played", "effect seen")
	for _, k := range slices.Sorted(maps.Keys(r.ByKind)) {
		line("  %-26s %7d %12d", k, r.ByKind[k].Played, r.ByKind[k].Took)
	}
	line("overlaps                               %d   (least margin between two leaders: %.3f s)", r.Overlaps, r.Margin)
	line("stuck                                  %d   (worst recovery %.1f s, limit %.1f s; worst gap %.1f s)",
		r.Stuck, r.Recovery, (floor + slack).Seconds(), r.WorstGap)
	line("histories linearizable                 %d of %d", r.Linearizable, r.Registers)
	if len(r.Failed) > 0 {
		line("FAILED seeds                           %s", strings.Join(r.Failed, " "))
	}
	return out.String()
}
