package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// ledEach is how many namespaces each member leads: they exist in it alone.
	ledEach = 10
	// blackHoleWindow is how long renewals are watched, without and with the black hole.
	blackHoleWindow = 20 * time.Second
)

// blackHoleFleet has the fast profile, so that many renewals come in a short time.
func blackHoleFleet() harness.Options {
	o := harness.Options{Timings: harness.Fast}
	for i, name := range append(slices.Clone(clusters), "north") {
		m := harness.Member{Name: name, Priority: 100 - i}
		for n := range ledEach {
			m.Namespaces = append(m.Namespaces, fmt.Sprintf("%s-%d", name, n))
		}
		o.Members = append(o.Members, m)
	}
	return o
}

// measureBlackHole watches the renewals in three members while the link to the fourth is dead without a word.
func measureBlackHole(ctx context.Context, b *bench) {
	others := maps.Clone(b.view.Leases)
	delete(others, clusters[0])
	b.awaitLed(ctx, "", ledEach*(len(others)+1))
	b.say("every member leads; watching the renewals in west, south and north without a fault")
	must.Do(process.Pass(ctx, 2*b.Timings.Renew)) // the first renewals of a term come early
	without := harness.Now().Boot
	must.Do(process.Pass(ctx, blackHoleWindow))
	with := harness.Now().Boot
	b.Fleet.Member(clusters[0]).Proxy().BlackHole()
	b.say("the link to east is dead")
	must.Do(process.Pass(ctx, blackHoleWindow))
	end := harness.Now().Boot
	must.Do(b.Check())
	before, during := allDelays(others, b.Timings.Renew, without, with), allDelays(others, b.Timings.Renew, with, end)
	enough := len(others) * ledEach * int(blackHoleWindow/b.Timings.Renew) / 2
	if len(before) < enough || len(during) < enough {
		must.Fail("only %d and %d renewals were due, want %d at least", len(before), len(during), enough)
	}
	b.say("renewals late at p99: %.1f ms of %d without the black hole, %.1f ms of %d (worst %.1f ms) with it",
		ms(quantile(before, 0.99)), len(before), ms(quantile(during, 0.99)), len(during), ms(quantile(during, 1)))
	b.figures["blackhole.renewalDelayP99Seconds"] = quantile(during, 0.99).Seconds()
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

// renewals are those of one member by namespace.
func renewals(seen []harness.Sighting[*coordinationv1.Lease]) map[string][]renewal {
	all := map[string][]renewal{}
	for namespace, led := range harness.LedIn(seen) {
		for _, l := range led {
			all[namespace] = append(all[namespace], renewal{l.At.Boot, l.Stamp(), l.Epoch})
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
