package member_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
)

// heapGrowth returns how many bytes more are reachable after f than before.
func heapGrowth(f func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// Thousands of short requests and renewals in one long term must leave nothing behind.
func TestMemory_OfFinishedWorkIsFreed(t *testing.T) {
	each(t, map[string]func(c *testTerms){
		"renewals": func(c *testTerms) {
			for range 10_000 {
				pass(duration / 3)
				c.write(ns, us, 7)
			}
		},
		"contexts": func(c *testTerms) {
			for range 10_000 {
				_, done := contextOf(c.t, c, ns)
				done()
			}
		},
		"calls of Lead": func(c *testTerms) {
			for range 1000 {
				if err := c.Lead(c.t.Context(), ns, func(context.Context) error { return nil }); err != nil {
					c.t.Fatal(err)
				}
				synctest.Wait() // its listener has been notified
			}
		},
	}, func(t *testing.T, work func(c *testTerms)) {
		c := newTestTerms(t)
		c.write(ns, us, 7)
		if grew := heapGrowth(func() { work(c) }); grew > 100_000 {
			t.Errorf("finished work left %d bytes behind", grew)
		}
	})
}
