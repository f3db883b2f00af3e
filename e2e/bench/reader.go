package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/member"
)

// readerRuns is how often the check is measured. The fastest run counts: other programs, which a shared
// machine always has, can only add to what the check takes.
const readerRuns = 5

// measureReader measures "do I lead?" of a Member that watches a real API server and holds a term that the hub renews
// in the meantime.
func measureReader(ctx context.Context, b *bench) {
	m := must.Get(member.New(b.Fleet.Member(clusters[0]).AdminConfig(), member.Options{
		Namespaces: []string{namespace}, MaxClockSkew: b.Timings.Skew,
	}))
	running, stop := context.WithCancel(ctx)
	var stopped sync.WaitGroup
	stopped.Go(func() { _ = m.Start(running) }) // without it no term is held
	defer stopped.Wait()
	defer stop()
	must.Do(harness.Await(ctx, leadLimit, "the cluster leads by the member library", func(context.Context) error {
		if _, ok := m.Term(namespace); !ok {
			return errors.New("it does not")
		}
		return nil
	}))
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
			must.Fail("%d of %d checks said no: the term did not last", denied, r.N)
		}
		perOp = append(perOp, float64(r.T.Nanoseconds())/float64(r.N))
		allocs = max(allocs, r.AllocsPerOp())
	}
	slices.Sort(perOp)
	b.say("the reader's check takes %.1f to %.1f ns, %d allocations", perOp[0], perOp[readerRuns-1], allocs)
	b.figures["reader.nsPerOp"], b.figures["reader.allocsPerOp"] = perOp[0], float64(allocs)
}
