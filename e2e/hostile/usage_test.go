package hostile

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/process"
)

// lookEvery is how often memory is looked at.
const lookEvery = 50 * time.Millisecond

// usage measures what processes take from its start. It kills a process that takes too much memory.
type usage struct {
	end  context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	peak  int // bytes of the process that took most
	cores float64
}

// watchUsage begins to look at the two replicas until the test ends or stop is called.
func (s *testbed) watchUsage(t *testing.T) *usage {
	ctx, cancel := context.WithCancel(t.Context())
	u := &usage{end: cancel}
	hubs := s.Hubs()
	for _, p := range hubs[len(hubs)-2:] {
		proc := musttest.Get(procfs.NewProc(p.PID()))(t)
		u.done.Go(func() { u.look(ctx, t, p, proc) })
	}
	return u
}

func (u *usage) look(ctx context.Context, t *testing.T, p *process.Process, proc procfs.Proc) {
	first, _ := proc.Stat() // a process that has ended takes nothing, and fails the test elsewhere
	began := time.Now()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		now, _ := proc.Stat()
		u.mu.Lock()
		u.peak = max(u.peak, now.ResidentMemory())
		u.mu.Unlock()
		if now.ResidentMemory() > mostMemory<<20 {
			t.Logf("%s has %d MiB and is killed", p.Name(), now.ResidentMemory()>>20)
			if err := p.Kill(); err != nil {
				t.Error(err)
			}
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			u.mu.Lock()
			u.cores = max(u.cores, (now.CPUTime()-first.CPUTime())/time.Since(began).Seconds())
			u.mu.Unlock()
			return
		}
	}
}

// stop ends the look, and returns what was taken by the process that took most.
func (u *usage) stop() (mebibytes, cores float64) {
	u.end()
	u.done.Wait()
	return float64(u.peak) / (1 << 20), u.cores
}
