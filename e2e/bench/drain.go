package main

import (
	"context"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// drainedAtOnce is how many namespaces the policy lets move at once.
const drainedAtOnce = 20

// measureDrain drains the cluster that leads 200 namespaces, and measures how long they take to move, and how many do so
// at once.
func measureDrain(ctx context.Context, b *bench) {
	b.awaitLed(ctx, clusters[0], changed)
	records := must.Get(b.WatchRecords(ctx))
	defer records.Stop()
	began := time.Now()
	must.Do(b.Drain(ctx, clusters[0], began.Add(time.Hour)))
	b.awaitLed(ctx, clusters[1], changed)
	b.figures["drain.seconds"] = time.Since(began).Seconds()
	moving, most := map[string]bool{}, 0
	for _, s := range records.Seen() {
		if s.Object.Spec.State == v1alpha1.StateDraining {
			moving[s.Object.Name] = true
		} else {
			delete(moving, s.Object.Name)
		}
		most = max(most, len(moving))
	}
	b.figures["drain.mostAtOnce"] = float64(most)
	breaches := harness.Breaches(harness.Judge(must.Get(b.Acts())))
	must.FailIf(len(breaches) > 0, "%d overlaps: %s", len(breaches), breaches)
	b.say("%d namespaces moved in %.1f s, %d at once at most", changed, b.figures["drain.seconds"], most)
}
