package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	failoverRuns  = 10
	failoverIn    = "shop" // the namespace
	failoverLimit = time.Minute
	recoverLimit  = time.Minute
)

// fault breaks the leader in one of two ways.
type fault struct {
	name         string
	strike, heal func(*harness.Drill, string) error
}

var faults = []fault{
	{
		"API server paused",
		func(d *harness.Drill, leader string) error { return d.Fleet.Member(leader).Pause() },
		func(d *harness.Drill, leader string) error { return d.Fleet.Member(leader).Resume() },
	},
	{
		"link dead",
		func(d *harness.Drill, leader string) error { d.Fleet.Member(leader).Proxy().BlackHole(); return nil },
		func(d *harness.Drill, leader string) error { d.Fleet.Member(leader).Proxy().Heal(); return nil },
	},
}

// measureFailover breaks the leader again and again, in both ways and at all points between two renewals, and compares
// the first act in the next leader with the floor.
func measureFailover(ctx context.Context, b *bench) (err error) {
	d, err := b.start(ctx, harness.Options{
		Timings: harness.Fast, ActEvery: 200 * time.Millisecond, Members: members(failoverIn),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	first, err := d.AwaitAct(ctx, failoverLimit, "the first leader acts", func(harness.Act) bool { return true })
	if err != nil {
		return err
	}
	v, err := d.Look(ctx)
	if err != nil {
		return err
	}
	defer v.Close()
	var over []time.Duration
	leader := first.Cluster
	for i := range failoverRuns {
		if err := settle(ctx, d); err != nil {
			return fmt.Errorf("run %d: settle: %w", i+1, err)
		}
		f := faults[(i+i/2)%len(faults)]   // as the leaders alternate too, both kinds strike each of them
		share := float64(i) / failoverRuns // of r, between the renewal and the fault
		r, err := failover(ctx, d, f, leader, v.Leases[leader], share)
		if err != nil {
			return fmt.Errorf("run %d, %s, %s: %w", i+1, leader, f.name, err)
		}
		b.say("%2d of %d: %-5s → %-5s %-17s %.3f s, floor %.3f s, over it %5.1f ms",
			i+1, failoverRuns, leader, r.to, f.name, r.took.Seconds(), r.floor.Seconds(), ms(r.took-r.floor))
		over = append(over, r.took-r.floor)
		leader = r.to
	}
	if _, err := v.Judge(); err != nil {
		return fmt.Errorf("figures of a run with overlaps are worth nothing: %w", err)
	}
	b.figures[overFloorMedian], b.figures[overFloorMax] = median(over).Seconds(), quantile(over, 1).Seconds()
	return nil
}

// settle returns when every member may be chosen: also the one that was broken last.
func settle(ctx context.Context, d *harness.Drill) error {
	for _, name := range clusters {
		if err := d.AwaitEligible(ctx, recoverLimit, name, failoverIn); err != nil {
			return err
		}
	}
	return nil
}

// outcome is one failover: how long it took, at least, and to whom it went.
type outcome struct {
	took, floor time.Duration
	to          string
}

// failover breaks the leader a share of r after a renewal and heals it when another cluster has acted.
func failover(
	ctx context.Context, d *harness.Drill, f fault, leader string, copies *harness.Watch[*coordinationv1.Lease],
	share float64,
) (outcome, error) {
	if err := awaitRenewal(ctx, copies); err != nil {
		return outcome{}, err
	}
	if err := process.Pass(ctx, time.Duration(share*float64(d.Timings.Renew))); err != nil {
		return outcome{}, err
	}
	at := harness.Now().Boot
	if err := f.strike(d, leader); err != nil {
		return outcome{}, err
	}
	next, err := d.AwaitAct(ctx, failoverLimit, "another cluster acts", func(a harness.Act) bool {
		return a.Cluster != leader && a.Begin > at
	})
	if err := errors.Join(err, f.heal(d, leader)); err != nil {
		return outcome{}, err
	}
	// Only when the watch goes on it shows what was stored just before it was paused with its server.
	if err := awaitReplaced(ctx, copies, leader); err != nil {
		return outcome{}, err
	}
	stamp, ok := harness.LastRenewTime(copies.Seen(), failoverIn, at)
	if !ok {
		return outcome{}, errors.New("no Lease was seen that let the leader act")
	}
	return outcome{took: next.Begin - at, floor: harness.Floor(d.Timings, at, stamp, 0), to: next.Cluster}, nil
}

// awaitRenewal returns when the leader's Lease is renewed.
func awaitRenewal(ctx context.Context, copies *harness.Watch[*coordinationv1.Lease]) error {
	before := len(copies.Seen())
	return harness.Await(ctx, recoverLimit, "the leader's Lease is renewed", func(context.Context) error {
		seen := copies.Seen()
		if len(seen) == before {
			return errors.New("no renewal")
		}
		if c, _ := wire.Read(seen[len(seen)-1].Object); !c.LeadsHere() {
			return fmt.Errorf("the Lease names %q", c.Holder)
		}
		return nil
	})
}

// awaitReplaced returns when the Lease in the old leader names another.
func awaitReplaced(ctx context.Context, copies *harness.Watch[*coordinationv1.Lease], leader string) error {
	return harness.Await(ctx, recoverLimit, "the Lease in "+leader+" names its successor", func(context.Context) error {
		seen := copies.Seen()
		if c, _ := wire.Read(seen[len(seen)-1].Object); c.LeadsHere() {
			return errors.New("it names itself")
		}
		return nil
	})
}
