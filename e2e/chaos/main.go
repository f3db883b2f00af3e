package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

const outDir = "out"

type flags struct {
	n         int
	seed      uint64
	timelines bool
}

func main() {
	var f flags
	flag.IntVar(&f.n, "n", 10, "how many schedules to play, of as many seeds in a row")
	flag.Uint64Var(&f.seed, "seed", 1, "the first seed")
	flag.BoolVar(&f.timelines, "timelines", false, "write a timeline of every schedule, not only of those that fail; alone, a schedule always has one")
	flag.Parse()
	harness.Quiet()
	harness.Run("chaos", func(ctx context.Context) error { return play(ctx, f) })
}

// play plays the schedules and reports. It goes on after one that fails, and ends early when the stage is broken.
func play(ctx context.Context, f flags) (err error) {
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
	for seed := f.seed; seed < f.seed+uint64(f.n); seed++ {
		o, err := st.play(ctx, Generate(seed))
		if err != nil {
			return errors.Join(fmt.Errorf("%scannot be judged: %w", Generate(seed), err), r.write(file))
		}
		timeline := ""
		if o.Failed() || f.timelines || f.n == 1 {
			if timeline, err = writeTimeline(dir, o); err != nil {
				return err
			}
		}
		r.add(o, timeline)
		if err := r.write(file); err != nil {
			return err
		}
		say(o.line(r))
		if o.Failed() || f.n == 1 {
			fmt.Print(o.details(timeline))
		}
	}
	fmt.Printf("\n%s", r.summary())
	if len(r.Failed) > 0 {
		return fmt.Errorf("%d of %d schedules failed: see %s", len(r.Failed), r.Schedules, file)
	}
	return nil
}

// line is what is said of a schedule while others follow.
func (o *Outcome) line(so *report) string {
	how := "ok"
	if o.Failed() {
		how = "FAILED"
	}
	return fmt.Sprintf("seed %d %s: %d faults, %d acts, %d changes, margin %.2f s, gap %.1f s, back after %.1f s | so far %d schedules, %d overlaps, %d stuck",
		o.Seed, how, len(o.Faults), o.Acts, o.Changes, o.Margin.Seconds(), o.Gap.Seconds(), o.Recovery.Seconds(),
		so.Schedules, so.Overlaps, so.Stuck)
}

// details are for a schedule that failed, or that was asked for.
func (o *Outcome) details(timeline string) string {
	out := ""
	for _, f := range o.Faults {
		out += fmt.Sprintf("    %s: %s\n", f.Fault, f.Effect)
	}
	for _, line := range o.verdict() {
		out += "    " + line + "\n"
	}
	return out + "    timeline: " + timeline + "\n"
}

// settle returns when the fleet is as it should be before the first schedule.
func (st *stage) settle(ctx context.Context) error {
	o := &Outcome{}
	o.Over = 0
	if err := st.recover(ctx, o); err != nil {
		return err
	}
	if len(o.Stuck) > 0 {
		return fmt.Errorf("before the first schedule: %v", o.Stuck)
	}
	return nil
}
