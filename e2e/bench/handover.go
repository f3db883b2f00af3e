package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	handoverRuns  = 20
	handoverIn    = "shop" // the namespace
	handoverLimit = time.Minute
	// handoverActs is the time between two acts of a guestbook: it is part of every gap.
	handoverActs = 5 * time.Millisecond
)

// measureHandover moves a namespace between two clusters again and again, whose readers say when they have
// stopped, and measures for how long nobody acts.
func measureHandover(ctx context.Context, b *bench) (err error) {
	d, err := b.start(ctx, harness.Options{
		Timings: harness.Default, ActEvery: handoverActs, Register: true, Members: members(handoverIn),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	first, err := d.AwaitAct(ctx, handoverLimit, "the first leader acts", func(harness.Act) bool { return true })
	if err != nil {
		return err
	}
	leader := first.Cluster
	for i := range handoverRuns {
		next := clusters[i%2]
		if next == leader {
			next = clusters[(i+1)%2]
		}
		if err := handOver(ctx, d, next, 1000+i); err != nil {
			return fmt.Errorf("handover %d, %s to %s: %w", i, leader, next, err)
		}
		leader = next
		// Handovers come at all points between two renewals.
		if err := process.Pass(ctx, time.Duration(i%10)*d.Timings.Renew/10+200*time.Millisecond); err != nil {
			return err
		}
	}
	gaps, err := gapsOf(d)
	if err != nil {
		return err
	}
	b.say("%d handovers, gaps: median %.1f ms, worst %.1f ms", len(gaps), ms(median(gaps)), ms(quantile(gaps, 1)))
	b.figures[handoverGapMedian], b.figures[handoverGapMax] = median(gaps).Seconds(), quantile(gaps, 1).Seconds()
	return nil
}

// handOver raises a cluster above all others, and returns when it acts.
func handOver(ctx context.Context, d *harness.Drill, to string, priority int) error {
	if err := d.AwaitEligible(ctx, recoverLimit, to, handoverIn); err != nil {
		return err
	}
	at := harness.Now().Boot
	if err := d.SetPriority(ctx, to, priority); err != nil {
		return err
	}
	_, err := d.AwaitAct(ctx, handoverLimit, to+" acts", func(a harness.Act) bool {
		return a.Cluster == to &&
			a.Begin > at
	})
	return err
}

// gapsOf are the times in which nobody acted, from one leader to the next.
func gapsOf(d *harness.Drill) (gaps []time.Duration, err error) {
	acts, err := d.Acts()
	if err != nil {
		return nil, err
	}
	verdicts := harness.Judge(acts)
	if breaches := harness.Breaches(verdicts); len(breaches) > 0 {
		return nil, fmt.Errorf("figures of a run with %d overlaps are worth nothing; the first: %s", len(breaches),
			breaches[0])
	}
	for _, v := range verdicts {
		for _, change := range v.Changes {
			gaps = append(gaps, change.Gap())
		}
	}
	if len(gaps) != handoverRuns {
		return nil, fmt.Errorf("the leader changed %d times, want %d", len(gaps), handoverRuns)
	}
	return gaps, nil
}
