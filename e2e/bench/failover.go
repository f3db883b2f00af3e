package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	failoverRuns = 10
	handoverRuns = 20
)

// fault breaks a server in one of two ways.
type fault struct {
	name         string
	strike, heal func(b *bench, leader string) error
}

var faults = []fault{
	{
		"API server paused",
		func(b *bench, leader string) error { return b.Fleet.Member(leader).Pause() },
		func(b *bench, leader string) error { return b.Fleet.Member(leader).Resume() },
	},
	{
		"link dead",
		func(b *bench, leader string) error { b.Fleet.Member(leader).Proxy().BlackHole(); return nil },
		func(b *bench, leader string) error { b.Fleet.Member(leader).Proxy().Heal(); return nil },
	},
}

// measureFailover breaks the leader again and again, in both ways and at all points between two renewals, and compares
// the first act in the next leader with the floor.
func measureFailover(ctx context.Context, b *bench) {
	first := must.Get(b.AwaitAct(ctx, leadLimit, "the first leader acts", func(harness.Act) bool { return true }))
	var over []time.Duration
	leader := first.Cluster
	for i := range failoverRuns {
		for _, name := range clusters { // also the one that was broken last
			must.Do(b.AwaitEligible(ctx, leadLimit, name, namespace), "run %d", i+1)
		}
		f := faults[(i+i/2)%len(faults)] // as the leaders alternate too, both kinds strike each of them
		share := time.Duration(i) * b.Timings.Renew / failoverRuns
		next, above := b.failover(ctx, f, leader, share)
		b.say("%2d of %d: %-5s → %-5s %-17s %5.1f ms over the floor", i+1, failoverRuns, leader, next, f.name, ms(above))
		over = append(over, above)
		leader = next
	}
	_, err := b.view.Judge()
	must.Do(err, "figures of a run with overlaps are worth nothing")
	b.figures["failover.overFloorMedianSeconds"] = median(over).Seconds()
	b.figures["failover.overFloorMaxSeconds"] = quantile(over, 1).Seconds()
}

// failover breaks the leader some time after a renewal and heals it when another cluster has acted. It returns that
// cluster, and by how much the failover took longer than its floor.
func (b *bench) failover(ctx context.Context, f fault, leader string, after time.Duration) (next string,
	above time.Duration) {
	leases := b.view.Leases[leader]
	must.Do(awaitLease(ctx, leases, len(leases.Seen()), true))
	must.Do(process.Pass(ctx, after))
	at := harness.Now().Boot
	must.Do(f.strike(b, leader))
	act, err := b.AwaitAct(ctx, leadLimit, "another cluster acts", func(a harness.Act) bool {
		return a.Cluster != leader && a.Begin > at
	})
	must.Do(errors.Join(err, f.heal(b, leader)))
	// Only when the watch goes on it shows what was stored just before it was paused with its server.
	must.Do(awaitLease(ctx, leases, 0, false))
	stamp, ok := harness.LastRenewTime(leases.Seen(), namespace, at)
	if !ok {
		must.Fail("no Lease was seen that let the leader act")
	}
	return act.Cluster, act.Begin - at - harness.Floor(b.Timings, at, stamp, 0)
}

// awaitLease returns when more than so many versions of a member's Lease were seen, and the last one names the member,
// or another one.
func awaitLease(ctx context.Context, leases *harness.Watch[*coordinationv1.Lease], more int, leads bool) error {
	return harness.Await(ctx, leadLimit, "the Lease is written", func(context.Context) error {
		seen := leases.Seen()
		if len(seen) <= more {
			return errors.New("it is not")
		}
		if c, _ := wire.Read(seen[len(seen)-1].Object); c.LeadsHere() != leads {
			return fmt.Errorf("it names %q", c.Holder)
		}
		return nil
	})
}

// measureHandover moves a namespace between clusters again and again, whose readers acknowledge, and measures for how
// long nobody acts.
func measureHandover(ctx context.Context, b *bench) {
	leader, at := "", time.Duration(0)
	for i := range handoverRuns + 1 {
		must.Get(b.AwaitAct(ctx, leadLimit, "the leader acts", func(a harness.Act) bool {
			return a.Begin > at && (leader == "" || leader == a.Cluster)
		}))
		if i == handoverRuns {
			break
		}
		// Handovers come at all points between two renewals.
		must.Do(process.Pass(ctx, time.Duration(i%10)*b.Timings.Renew/10+200*time.Millisecond))
		at = harness.Now().Boot
		leader = must.Get(b.HandOver(ctx, namespace))
	}
	acts := must.Get(b.Acts())
	verdicts := harness.Judge(acts)
	if breaches := harness.Breaches(verdicts); len(breaches) > 0 {
		must.Fail("figures of a run with %d overlaps are worth nothing; the first: %s", len(breaches), breaches[0])
	}
	var gaps []time.Duration
	for _, v := range verdicts {
		for _, change := range v.Changes {
			gaps = append(gaps, change.Gap())
		}
	}
	if len(gaps) != handoverRuns {
		must.Fail("the leader changed %d times, want %d", len(gaps), handoverRuns)
	}
	b.say("%d handovers, gaps: median %.1f ms, worst %.1f ms", len(gaps), ms(median(gaps)), ms(quantile(gaps, 1)))
	b.figures["handover.gapMedianSeconds"] = median(gaps).Seconds()
	b.figures["handover.gapMaxSeconds"] = quantile(gaps, 1).Seconds()
}
