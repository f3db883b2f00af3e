package member_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
)

// Thousands of short requests in one long term must leave nothing behind.
func TestLead_LeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestTerms(t)
		c.write(ns, us, 7)
		reachable := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := reachable()
		for range 1000 {
			if err := c.Lead(t.Context(), ns, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // its listener has been notified
		}
		if grew := reachable() - before; grew > 100_000 {
			t.Errorf("finished work left %d bytes behind", grew)
		}
	})
}
