package member_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
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

// Thousands of short requests in one long term must leave nothing behind.
func TestMemory_OfFinishedWorkIsFreed(t *testing.T) {
	each(t, map[string]func(c *testTerms){
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

// Ten minutes of renewals of a thousand namespaces, each led, with a context open in each: what a steady reader costs,
// and that it costs no more after them.
func TestMemory_OfAThousandNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces = 1000
		c := newTestTerms(t)
		renewAll := func() {
			for i := range namespaces {
				c.Observe(c.leaseOf(name(i), us, 7))
			}
		}
		first := heapGrowth(renewAll)
		for i := range namespaces {
			_, done := contextOf(t, c, name(i))
			defer done()
		}
		later := heapGrowth(func() {
			for range 60 {
				pass(10 * time.Second)
				renewAll()
			}
		})
		t.Logf("%d bytes per led namespace, %+d in ten minutes of renewals of all", first/namespaces, later)
		if first > 3000*namespaces || later > 100_000 {
			t.Errorf("%d bytes for %d namespaces, and %d more after ten minutes: want at most 3000 each and no growth",
				first, namespaces, later)
		}
		if term, ok := c.Term(name(0)); !ok || term.Remaining() != duration {
			t.Errorf("%s leads = %v for %v, want %v", name(0), ok, term.Remaining(), duration)
		}
	})
}
