package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

const (
	// drainedAtOnce is how many namespaces the policy lets move at once.
	drainedAtOnce = 20
	// drainLimit bounds the wait for all of them.
	drainLimit = 5 * time.Minute
)

// measureDrain drains the cluster that leads 200 namespaces, and measures how long they take to move, and how many do
// so at once. A term that a busy machine lets lapse meanwhile is no planned change.
func measureDrain(ctx context.Context, b *bench) {
	b.awaitLed(ctx, clusters[0], changed)
	records := must.Get(b.WatchRecords(ctx))
	defer records.Stop()
	began := time.Now()
	must.Do(b.Drain(ctx, clusters[0], began.Add(time.Hour)))
	moving, moved, most := map[string]bool{}, map[string]bool{}, 0
	must.Do(b.Await(ctx, drainLimit, fmt.Sprintf("%d namespaces have moved", changed), func(context.Context) error {
		for _, s := range records.Take() {
			name, is := s.Object.Name, s.Object.Spec
			if delete(moving, name); is.State == v1alpha1.StateEnding && is.Reason == reason.Drained {
				moving[name] = true
			}
			moved[name] = is.State == v1alpha1.StateLeading && is.Leader != clusters[0]
			most = max(most, len(moving))
		}
		n := 0
		for _, is := range moved {
			if is {
				n++
			}
		}
		return must.ErrorIf(n < changed, "%d have", n)
	}))
	b.figures["drain.seconds"], b.figures["drain.mostAtOnce"] = time.Since(began).Seconds(), float64(most)
	b.say("%d namespaces moved in %.1f s, %d at once at most", changed, b.figures["drain.seconds"], most)
	last := harness.LedIn(b.view.Leases[clusters[0]].Seen())
	for namespace, next := range harness.LedIn(b.view.Leases[clusters[1]].Seen()) {
		before := last[namespace][len(last[namespace])-1]
		rest := before.RenewTime.Add(before.Duration + b.Timings.Skew).Sub(next[0].AcquireTime)
		must.FailIf(rest > 0, "%s: the next term began %v before the last one was over", namespace, rest)
	}
}
