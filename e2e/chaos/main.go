package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

const outDir = "out"

func main() {
	n := flag.Int("n", 10, "how many schedules to play, of as many seeds in a row")
	seed := flag.Uint64("seed", 1, "the first seed")
	flag.Parse()
	harness.Quiet()
	harness.Run("chaos", func(ctx context.Context) error { return play(ctx, *seed, *n) })
}

// play plays the schedules and reports. It goes on after one that fails, and ends early when the stage is broken.
func play(ctx context.Context, first uint64, n int) (err error) {
	began := time.Now()
	say := func(line string) { fmt.Printf("%7.1f s  %s\n", time.Since(began).Seconds(), line) }
	dir := filepath.Join(outDir, "chaos")
	file := filepath.Join(outDir, "chaos.json")
	if err := os.RemoveAll(file); err != nil {
		return fmt.Errorf("remove the last result: %w", err)
	}
	st, err := start(ctx, dir, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.settle(ctx); err != nil {
		return err
	}
	r := newReport()
	for seed := first; seed < first+uint64(n); seed++ {
		o, err := st.play(ctx, Generate(seed))
		if err != nil {
			return errors.Join(fmt.Errorf("%scannot be judged: %w", Generate(seed), err), r.write(file))
		}
		r.add(o)
		if err := r.write(file); err != nil {
			return err
		}
		say(o.line(r))
		if o.Failed() || n == 1 {
			fmt.Print(o.details())
		}
	}
	fmt.Printf("\n%s", r.summary())
	if len(r.Failed) > 0 {
		return fmt.Errorf("%d of %d schedules failed: see %s", len(r.Failed), r.Schedules, file)
	}
	return nil
}

// line is what is printed of a schedule while others follow.
func (o *Outcome) line(so *report) string {
	how := "ok"
	if o.Failed() {
		how = "FAILED"
	}
	return fmt.Sprintf("seed %d %s: %d faults, %d acts, %d changes, margin %.2f s, gap %.1f s, back after %.1f s | "+
		"so far %d schedules, %d overlaps, %d stuck", o.Seed, how, len(o.Faults), o.Acts, o.Changes, o.Margin.Seconds(),
		o.Gap.Seconds(), o.Recovery.Seconds(), so.Schedules, so.Overlaps, so.Stuck)
}

// details are for a schedule that failed, or that was asked for: its faults, what is wrong, and who could act when.
func (o *Outcome) details() string {
	var out strings.Builder
	var faults []harness.Span
	for _, f := range o.Faults {
		fmt.Fprintf(&out, "    %s: %s\n", f.Fault, f.Effect)
		faults = append(faults, harness.Span{From: f.Began, To: f.Ended})
	}
	for _, line := range o.verdict() {
		fmt.Fprintf(&out, "    %s\n", line)
	}
	const step = 250 * time.Millisecond
	end := o.Over + o.Recovery + 4*time.Second
	row := func(cell rune, spans []harness.Span) string {
		return harness.Bar(o.Began, end, step, harness.Spans{Cell: cell, All: spans})
	}
	fmt.Fprintf(&out, "    %-12s %s\n", "faults", row('x', faults))
	for _, namespace := range allNamespaces() {
		for _, member := range homes(namespace) {
			var could []harness.Span
			for _, p := range o.permits {
				if p.Namespace == namespace && p.Cluster == member {
					could = append(could, harness.Span{From: p.Begin, To: p.End})
				}
			}
			fmt.Fprintf(&out, "    %-6s %-5s %s\n", namespace, member, row('█', could))
		}
	}
	return out.String()
}

// settle returns when the fleet is as it should be before the first schedule.
func (st *stage) settle(ctx context.Context) error {
	o := &Outcome{}
	if err := st.recover(ctx, o); err != nil {
		return err
	}
	if len(o.Stuck) > 0 {
		return fmt.Errorf("before the first schedule: %v", o.Stuck)
	}
	return nil
}
