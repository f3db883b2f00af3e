package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	leasereport "github.com/leasecast/leasecast/cmd/kubectl-leasecast/report"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

func main() {
	n := flag.Int("n", 10, "how many schedules to play, of as many seeds in a row")
	seed := flag.Uint64("seed", 1, "the first seed")
	flag.Parse()
	harness.Quiet()
	must.Run("chaos", func(ctx context.Context) { chaos(ctx, *seed, *n) })
}

// chaos plays the schedules and reports. It goes on after one that fails, and ends early when the testbed is broken.
func chaos(ctx context.Context, first uint64, n int) {
	began := time.Now()
	say := func(line string) { fmt.Printf("%7.1f s  %s\n", time.Since(began).Seconds(), line) }
	file := filepath.Join("out", "chaos.json")
	must.Do(os.RemoveAll(file), "remove the last result")
	st := must.Get(start(ctx, filepath.Join("out", "chaos"), say))
	r := &report{Failed: []string{}, Runs: []*Outcome{}}
	err := must.Try(func() {
		for seed := first; seed < first+uint64(n); seed++ {
			s := Generate(seed)
			o, err := st.play(ctx, s)
			if err != nil {
				must.Do(errors.Join(fmt.Errorf("%scannot be judged: %w", s, err), harness.WriteReport(file, r)))
			}
			r.add(o)
			must.Do(harness.WriteReport(file, r))
			say(fmt.Sprintf("%s | so far %d schedules, %d overlaps, %d stuck", o, r.Schedules, r.Overlaps, r.Stuck))
			if o.Failed() || n == 1 {
				page := filepath.Join("out", "chaos", fmt.Sprintf("%d.html", seed))
				must.Do(errors.Join(o.page().WriteFile(page), o.page().WriteFile(harness.ReportFile)))
				fmt.Print(o.details(page))
			}
		}
	})
	must.Do(errors.Join(err, st.close()))
	fmt.Printf("\n%s", r)
	must.FailIf(len(r.Failed) > 0, "%d of %d schedules failed: see %s", len(r.Failed), r.Schedules, file)
}

// String is what is printed of a schedule while others follow.
func (o *Outcome) String() string {
	how := "ok"
	if o.Failed() {
		how = "FAILED"
	}
	return fmt.Sprintf("seed %d %s: %d faults, %d answers, %d changes, margin %.2f s, gap %.1f s, back after %.1f s",
		o.Seed, how, len(o.Faults), o.answers, o.Changes, o.Margin, o.Gap, o.Recovery)
}

// details are for a schedule that failed, or that was asked for: its faults, what is wrong, and where it is drawn.
func (o *Outcome) details(page string) string {
	var out strings.Builder
	for _, line := range slices.Concat(o.Faults, o.Verdict) {
		fmt.Fprintf(&out, "    %s\n", line)
	}
	fmt.Fprintf(&out, "    drawn in %s\n", page)
	return out.String()
}

// page draws who could act when.
func (o *Outcome) page() *harness.Page {
	p := harness.NewPage(fmt.Sprintf("Chaos, seed %d", o.Seed), "A cluster could act from an answer of its reader to the "+
		"deadline in it. All clocks are one machine's.", o.began, o.ended)
	p.Problems = o.Verdict
	for i, f := range o.faults {
		p.AddFault(harness.Span{From: f.Began, To: f.Ended}, o.Faults[i])
	}
	for _, namespace := range allNamespaces() {
		n := leasereport.Namespace{Name: namespace}
		for _, m := range cast {
			if could := p.Spans(o.permits, namespace, m.Name, 0); len(could) > 0 {
				n.Rows = append(n.Rows, leasereport.Row{Cluster: m.Name, Could: could})
			}
		}
		p.Namespaces = append(p.Namespaces, n)
	}
	p.Gaps(func(namespace string, g leasereport.Gap) (earliest time.Duration) {
		for _, s := range harness.SpansOf(o.permits, namespace, g.Before) {
			if g.Before != g.After && s.From < o.began+g.To {
				earliest = max(earliest, s.To+harness.Fast.Skew)
			}
		}
		return earliest
	})
	return p
}

// report is out/chaos.json.
type report struct {
	Schedules int `json:"schedules"`
	Faults    int `json:"faults"`
	Answers   int `json:"answers"`
	Changes   int `json:"leaderChanges"`
	Overlaps  int `json:"overlaps"`
	// Margin is the least time between a leader's last deadline and its successor's first permit.
	Margin   float64 `json:"leastMarginSeconds"`
	WorstGap float64 `json:"worstGapSeconds"`
	// Recovery is the longest time from the end of the last fault until every namespace had a leader that acts.
	Recovery float64    `json:"worstRecoverySeconds"`
	Stuck    int        `json:"stuck"`
	Failed   []string   `json:"failedSeeds"`
	Runs     []*Outcome `json:"runs"`
}

// add counts an outcome.
func (r *report) add(o *Outcome) {
	r.Schedules++
	r.Faults += len(o.faults)
	if o.Changes > 0 && (r.Changes == 0 || o.Margin < r.Margin) {
		r.Margin = o.Margin
	}
	r.Answers += o.answers
	r.Changes += o.Changes
	r.Overlaps += o.overlaps
	r.WorstGap, r.Recovery = max(r.WorstGap, o.Gap), max(r.Recovery, o.Recovery)
	r.Stuck += o.stuck
	if o.Failed() {
		r.Failed = append(r.Failed, fmt.Sprint(o.Seed))
	}
	r.Runs = append(r.Runs, o)
}

// String is the last output of a run.
func (r *report) String() string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("%d schedules, %d faults, %d answers, %d changes of leader", r.Schedules, r.Faults, r.Answers,
		r.Changes)
	line("overlaps                %d   (least margin between two leaders: %.3f s)", r.Overlaps, r.Margin)
	line("stuck                   %d   (worst recovery %.1f s, limit %.1f s; worst gap %.1f s)",
		r.Stuck, r.Recovery, (floor + slack).Seconds(), r.WorstGap)
	if len(r.Failed) > 0 {
		line("FAILED seeds            %s", strings.Join(r.Failed, " "))
	}
	return out.String()
}
