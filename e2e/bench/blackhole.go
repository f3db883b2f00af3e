package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// ledEach is how many namespaces each member leads: they exist in it alone.
	ledEach = 10
	// blackHoleWindow is how long renewals are watched, without and with the black hole.
	blackHoleWindow = 20 * time.Second
	// leadLimit bounds the wait until all namespaces are led.
	leadLimit = 2 * time.Minute
)

// measureBlackHole watches the renewals in three members while the link to the fourth is dead without a word. The
// profile is the fast one, so that many renewals come in a short time.
func measureBlackHole(ctx context.Context, b *bench) (err error) {
	o := harness.Options{Timings: harness.Fast}
	for i, name := range []string{"east", "west", "south", "north"} {
		m := harness.Member{Name: name, Priority: 100 - i}
		for n := range ledEach {
			m.Namespaces = append(m.Namespaces, fmt.Sprintf("%s-%d", name, n))
		}
		o.Members = append(o.Members, m)
	}
	d, err := b.start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if err := awaitLed(ctx, d, ledEach*len(o.Members)); err != nil {
		return err
	}
	v, err := d.Look(ctx)
	if err != nil {
		return err
	}
	defer v.Close()
	b.say("every member leads; watching the renewals in west, south and north without a fault")
	if err := process.Pass(ctx, 2*d.Timings.Renew); err != nil { // the first renewals of a term come early
		return err
	}
	without := harness.Now().Boot
	if err := process.Pass(ctx, blackHoleWindow); err != nil {
		return err
	}
	with := harness.Now().Boot
	d.Fleet.Member("east").Proxy().BlackHole()
	b.say("the link to east is dead")
	if err := process.Pass(ctx, blackHoleWindow); err != nil {
		return err
	}
	end := harness.Now().Boot
	if err := d.Check(); err != nil {
		return err
	}
	others := maps.Clone(v.Leases)
	delete(others, "east")
	before, during := allDelays(others, d.Timings.Renew, without, with), allDelays(others, d.Timings.Renew, with, end)
	enough := (len(o.Members) - 1) * ledEach * int(blackHoleWindow/d.Timings.Renew) / 2
	if len(before) < enough || len(during) < enough {
		return fmt.Errorf("only %d and %d renewals were due, want %d at least", len(before), len(during), enough)
	}
	b.say(fmt.Sprintf("renewals late at p99: %.1f ms of %d without the black hole, %.1f ms of %d (worst %.1f ms) with it",
		ms(quantile(before, 0.99)), len(before), ms(quantile(during, 0.99)), len(during), ms(quantile(during, 1))))
	b.figures[renewalDelayP99] = quantile(during, 0.99).Seconds()
	return nil
}

func allDelays(watches map[string]*harness.Watch[*coordinationv1.Lease], r, from, to time.Duration) []time.Duration {
	var all []time.Duration
	for _, w := range watches {
		for _, copies := range renewals(w.Seen()) {
			all = append(all, delays(copies, r, from, to)...)
		}
	}
	return all
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// awaitLed returns when this many namespaces have a leader, with every Lease in place.
func awaitLed(ctx context.Context, d *harness.Drill, want int) error {
	return d.Await(ctx, leadLimit, fmt.Sprintf("%d namespaces are led", want), func(ctx context.Context) error {
		records := &v1alpha1.NamespaceLeaderList{}
		if err := d.Hub.List(ctx, records); err != nil {
			return err
		}
		led, last := 0, "there is no record"
		for _, r := range records.Items {
			if r.Spec.State == v1alpha1.StateLeading && isTrue(r, v1alpha1.ConditionReady) && isTrue(r, v1alpha1.ConditionLeasesInPlace) {
				led++
				continue
			}
			last = fmt.Sprintf("%s: leader %q, state %s, %s, conditions %+v", r.Name, r.Spec.Leader, r.Spec.State, r.Status.Message, r.Status.Conditions)
		}
		if led < want {
			return fmt.Errorf("%d are; %s", led, last)
		}
		return nil
	})
}

func isTrue(r v1alpha1.NamespaceLeader, condition string) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == condition {
			return c.Status == "True"
		}
	}
	return false
}
