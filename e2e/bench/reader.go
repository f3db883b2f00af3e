package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/member"
)

// readerRuns is how often the check is measured. The fastest run counts: other programs, which a shared
// machine always has, can only add to what the check takes.
const readerRuns = 5

// measureReader measures "do I lead?" of a Member that watches a real API server and holds a term that the hub renews
// in the meantime.
func measureReader(ctx context.Context, b *bench, d *harness.Drill, cluster, namespace string) (err error) {
	m, err := member.New(d.Fleet.Member(cluster).AdminConfig(), member.Options{
		Namespaces: []string{namespace}, MaxClockSkew: d.Timings.Skew,
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var stopped sync.WaitGroup
	var ended error
	stopped.Go(func() { ended = m.Start(running) })
	defer func() { stop(); stopped.Wait(); err = errors.Join(err, ended) }()
	if err := harness.Await(ctx, time.Minute, cluster+" leads by the member library", func(context.Context) error {
		if _, ok := m.Term(namespace); !ok {
			return errors.New("it does not")
		}
		return nil
	}); err != nil {
		return err
	}
	var perOp []float64
	var allocs int64
	for range readerRuns {
		denied := 0
		r := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := m.Term(namespace); !ok {
					denied++
				}
			}
		})
		if r.N == 0 || denied > 0 {
			return fmt.Errorf("%d of %d checks said no: the term did not last", denied, r.N)
		}
		perOp = append(perOp, float64(r.T.Nanoseconds())/float64(r.N))
		allocs = max(allocs, r.AllocsPerOp())
	}
	slices.Sort(perOp)
	b.say("the reader's check takes %.1f to %.1f ns, %d allocations", perOp[0], perOp[readerRuns-1], allocs)
	b.figures[readerNs], b.figures[readerAllocs] = perOp[0], float64(allocs)
	return nil
}
