package member_test

import (
	"fmt"
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

// Ten minutes of renewals of a thousand namespaces, each led, with a context open in
// each: what a steady reader costs, and that it costs no more after them.
func TestMemoryOfAThousandNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces = 1000
		c := newCluster(t)
		renewAll := func() {
			for i := range namespaces {
				c.write(fmt.Sprintf("team-%d", i), us, 7)
			}
		}
		first := heapGrowth(renewAll)
		for i := range namespaces {
			_, cancel := c.context(fmt.Sprintf("team-%d", i))
			defer cancel()
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
		if term, ok := c.Term("team-0"); !ok || term.Remaining() != duration {
			t.Errorf("team-0 leads = %v for %v, want %v", ok, term.Remaining(), duration)
		}
	})
}
