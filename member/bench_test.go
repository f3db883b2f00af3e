package member_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/member"
)

// BenchmarkTerm measures "do I lead?" among 1000 led namespaces, and reports how
// many bare readings of the clocks one check costs.
func BenchmarkTerm(b *testing.B) {
	var c clock.System
	terms := member.NewTerms(&c, time.Second)
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("team-%d", i)
		now := c.Now().Wall
		terms.Observe(leaseIn(b, names[i], lease.Term{
			Holder:      us,
			Epoch:       lease.EpochFloor(now),
			AcquireTime: now,
			RenewTime:   now,
			Duration:    time.Hour,
		}))
	}
	var bare float64 // ns
	b.Run("clock", func(b *testing.B) {
		for b.Loop() {
			c.Now()
		}
		bare = nsPerOp(b)
	})
	b.Run("term", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, ok := terms.Term(names[i%len(names)]); !ok {
				b.Fatal("not leading")
			}
		}
		b.ReportMetric(nsPerOp(b)/bare, "clock-readings/op")
	})
}

func nsPerOp(b *testing.B) float64 { return float64(b.Elapsed().Nanoseconds()) / float64(b.N) }
