package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// ledEach is how many namespaces each member leads: they exist in it alone.
	ledEach = 10
	// blackHoleWindow is how long renewals are watched, without and with the black hole.
	blackHoleWindow = 20 * time.Second
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
	if err := awaitLed(ctx, d, "", ledEach*len(o.Members)); err != nil {
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
	b.say("renewals late at p99: %.1f ms of %d without the black hole, %.1f ms of %d (worst %.1f ms) with it",
		ms(quantile(before, 0.99)), len(before), ms(quantile(during, 0.99)), len(during), ms(quantile(during, 1)))
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

// renewal is a Lease of a leader, when it was seen and when it was stamped, on the boot clock.
type renewal struct {
	seen, stamped time.Duration
	epoch         int64
}

// renewals sorts the sightings in one member by namespace. Only Leases that name the member are renewed.
func renewals(seen []harness.Sighting[*coordinationv1.Lease]) map[string][]renewal {
	all := map[string][]renewal{}
	for _, s := range seen {
		if c, _ := wire.Read(s.Object); !s.Gone && c.LeadsHere() {
			is := renewal{s.At.Boot, harness.BootOf(c.RenewTime, s.At), c.Epoch}
			all[c.Namespace] = append(all[c.Namespace], is)
		}
	}
	return all
}

// delays returns of each renewal of one Lease that was due between two instants how much later it was seen than it was
// due, which is every r after the last stamp. One that is still missing when the time is over counts as seen then.
// One that came early counts as punctual.
func delays(copies []renewal, r, from, to time.Duration) []time.Duration {
	var all []time.Duration
	for i, last := range copies {
		due, seen := last.stamped+r, to
		if i+1 < len(copies) {
			seen = min(copies[i+1].seen, to)
		}
		if due >= from && due < to {
			all = append(all, max(0, seen-due))
		}
	}
	return all
}
