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
	// ledNamespaces is how many namespaces there are in the steady state, in every member.
	ledNamespaces = 100
	steadyWindow  = time.Minute
	sampleEvery   = time.Second
)

// measureSteady counts the writes of a minute in which nothing happens, and measures the hub process meanwhile.
func measureSteady(ctx context.Context, b *bench) (err error) {
	d, err := b.start(ctx, harness.Options{Timings: harness.Default, Members: members(teams(ledNamespaces)...)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if err := awaitLed(ctx, d, ledNamespaces); err != nil {
		return err
	}
	b.say(fmt.Sprintf("%d namespaces are led; waiting %s for the beginning to be over", ledNamespaces, 2*d.Timings.Duration))
	if err := process.Pass(ctx, 2*d.Timings.Duration); err != nil {
		return err
	}
	counter, err := newWriteCounter(ctx, d)
	if err != nil {
		return err
	}
	defer counter.stop()
	from, err := counter.count(ctx)
	if err != nil {
		return err
	}
	b.say(fmt.Sprintf("measuring for %s", steadyWindow))
	usage, err := sample(ctx, d.Hubs()[0].PID(), steadyWindow)
	if err != nil {
		return err
	}
	to, err := counter.count(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Check(), awaitLed(ctx, d, ledNamespaces)); err != nil {
		return fmt.Errorf("the minute was not steady: %w", err)
	}
	for _, s := range d.Fleet.Servers() {
		rate := to[s.Name()].rateSince(from[s.Name()])
		b.say(fmt.Sprintf("%s: %.2f writes a second by the hub", s.Name(), rate))
		if s == d.Fleet.Hub() {
			b.figures[hubPerSecond] = rate
		} else {
			b.figures[membersPerSecond] += rate
		}
	}
	b.figures[cpuCores], b.figures[rssMiB] = usage.cores, usage.rssMiB
	return nil
}
