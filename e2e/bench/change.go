package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// changed is how many namespaces change their leader at once.
	changed = 200
	// afterwards is how long after the change the hub may still write because of it.
	afterwards = 5 * time.Second
)

// measureChange prefers another cluster, counts what the hub asks of its own API server for that, and then loses the
// cluster that leads. It measures each time how long all namespaces need until they are led again.
func measureChange(ctx context.Context, b *bench) {
	b.awaitLed(ctx, clusters[0], changed)
	var begin time.Time
	over := b.change(ctx, clusters[0], "are handed over", func() {
		begin = time.Now()
		must.Do(b.SetPriority(ctx, clusters[1], 1000))
	})
	b.figures["mass.handoverOverFloorSeconds"] = over.Seconds()
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
			for namespace, copies := range renewals(w.Take()) {
				for _, c := range copies {
					if first, known := led[namespace]; c.seen > at && (!known || c.seen < first) {
						led[namespace] = c.seen
					}
				}
			}
		}
		if len(led) < changed {
			return fmt.Errorf("%d of them", len(led))
		}
		return nil
	}))
	var took []time.Duration
	var floor time.Duration
	seen := b.view.Leases[old].Take()
	for namespace, first := range led {
		stamp, ok := harness.LastRenewTime(seen, namespace, at)
		if !ok {
			must.Fail("no renewal of %s was seen before the change", namespace)
		}
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
