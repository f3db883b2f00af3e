package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
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
	must.FailIf(!ok, "no Lease was seen that let the leader act")
	return act.Cluster, act.Begin - at - harness.Floor(b.Timings, at, stamp, 0)
}

// awaitLease returns when more than so many versions of a member's Lease were seen, and the last one names the member,
// or another one.
func awaitLease(ctx context.Context, leases *harness.Watch[*coordinationv1.Lease], more int, leads bool) error {
	return must.Await(ctx, leadLimit, "the Lease is written", func(context.Context) error {
		seen := leases.Seen()
		if len(seen) <= more {
			return errors.New("it is not")
		}
		c, _ := wire.Read(seen[len(seen)-1].Object)
		return must.ErrorIf(c.LeadsHere() != leads, "it names %q", c.Holder)
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
	must.FailIf(len(gaps) != handoverRuns, "the leader changed %d times, want %d", len(gaps), handoverRuns)
	b.say("%d handovers, gaps: median %.1f ms, worst %.1f ms", len(gaps), ms(median(gaps)), ms(quantile(gaps, 1)))
	b.figures["handover.gapMedianSeconds"] = median(gaps).Seconds()
	b.figures["handover.gapMaxSeconds"] = quantile(gaps, 1).Seconds()
}

const (
	// changed is how many namespaces change their leader at once.
	changed = 200
	// afterwards is how long after the change the hub may still write because of it.
	afterwards = 5 * time.Second
)

// measureChange prefers another cluster, and counts what the hub asks of its own API server for that.
func measureChange(ctx context.Context, b *bench) {
	b.awaitLed(ctx, clusters[0], changed)
	begin := time.Now()
	must.Do(b.SetPriority(ctx, clusters[1], 1000))
	b.awaitLed(ctx, clusters[1], changed)
	must.Do(process.Pass(ctx, afterwards))
	requests := b.requestsBetween(begin, time.Now())
	for key, counted := range hubRequests {
		n := 0
		for _, r := range requests[b.Fleet.Hub().Name()] {
			if counted(r) {
				n++
			}
		}
		b.figures[key] = float64(n) / changed
		b.say("%s: %.2f for each", key, b.figures[key])
	}
}

// measureMass prefers another cluster, and then loses the one that leads. It measures each time how long all namespaces
// need until they are led again. Audit logs would take a share of that time.
func measureMass(ctx context.Context, b *bench) {
	b.awaitLed(ctx, clusters[0], changed)
	over := b.change(ctx, clusters[0], "are handed over", func() { must.Do(b.SetPriority(ctx, clusters[1], 1000)) })
	b.figures["mass.handoverOverFloorSeconds"] = over.Seconds()
	b.awaitLed(ctx, clusters[1], changed)
	must.Do(process.Pass(ctx, afterwards))
	proxy := b.Fleet.Member(clusters[1]).Proxy()
	defer proxy.Heal()
	over = b.change(ctx, clusters[1], "have another leader", proxy.BlackHole)
	b.figures["mass.failoverOverFloorSeconds"] = over.Seconds()
	must.Do(b.Check())
}

// change returns how long after the floor the last namespace is led by another cluster. A namespace is led again when
// the watch of its new leader shows the Lease. The floor is that of the namespace whose old leader was renewed last.
func (b *bench) change(ctx context.Context, old, what string, cause func()) time.Duration {
	must.Do(process.Pass(ctx, 2*b.Timings.Renew)) // so that a renewal of each is seen
	at := harness.Now().Boot
	cause()
	led := map[string]time.Duration{} // when each namespace is first led by another cluster
	must.Do(b.Await(ctx, leadLimit, fmt.Sprintf("%d namespaces %s", changed, what), func(context.Context) error {
		for cluster, w := range b.view.Leases {
			if cluster == old {
				continue
			}
			for namespace, copies := range harness.LedIn(w.Take()) {
				for _, c := range copies {
					if first, known := led[namespace]; c.At.Boot > at && (!known || c.At.Boot < first) {
						led[namespace] = c.At.Boot
					}
				}
			}
		}
		return must.ErrorIf(len(led) < changed, "%d of them", len(led))
	}))
	var took []time.Duration
	var floor time.Duration
	seen := b.view.Leases[old].Take()
	for namespace, first := range led {
		stamp, ok := harness.LastRenewTime(seen, namespace, at)
		must.FailIf(!ok, "no renewal of %s was seen before the change", namespace)
		floor = max(floor, harness.Floor(b.Timings, at, stamp, 0))
		took = append(took, first-at)
	}
	b.say("%d namespaces %s: median %.2f s, last %.2f s; floor %.2f s", changed, what,
		median(took).Seconds(), quantile(took, 1).Seconds(), floor.Seconds())
	return quantile(took, 1) - floor
}

// hubRequests are the requests to the hub's API server that each figure counts. The hub follows all that it reads by
// watches, so that what it gets or lists is a live read.
var hubRequests = map[string]func(fleet.Request) bool{
	"change.recordWrites": func(r fleet.Request) bool { return r.Writes() && isRecord(r) && !isStatus(r) },
	"change.statusWrites": func(r fleet.Request) bool { return r.Writes() && isRecord(r) && isStatus(r) },
	"change.events":       func(r fleet.Request) bool { return r.Writes() && strings.Contains(r.URI, "/events") },
	"change.liveReads": func(r fleet.Request) bool {
		ours := strings.Contains(r.URI, "/"+v1alpha1.GroupVersion.Group+"/") ||
			strings.Contains(r.URI, "/cluster.x-k8s.io/") || strings.Contains(r.URI, "/secrets")
		return ours && (r.Verb == "get" || r.Verb == "list")
	},
}

func isRecord(r fleet.Request) bool { return strings.Contains(r.URI, "/namespaceleaders") }

func isStatus(r fleet.Request) bool {
	path, _, _ := strings.Cut(r.URI, "?")
	return strings.HasSuffix(path, "/status")
}
