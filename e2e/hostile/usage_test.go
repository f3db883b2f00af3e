package hostile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// lookEvery is how often memory is looked at.
	lookEvery = 50 * time.Millisecond
	// ticks is how many of the kernel's ticks a second has.
	ticks = 100
)

// usage measures what processes take from its start. It kills a process that takes too much memory.
type usage struct {
	end    context.CancelFunc
	done   sync.WaitGroup
	latest func() string // what was sent last

	mu    sync.Mutex
	peak  int64 // bytes of the process that took most
	cores float64
}

// watchUsage begins to look at the two replicas until the test ends or stop is called.
func (s *scene) watchUsage(t *testing.T) *usage {
	ctx, cancel := context.WithCancel(t.Context())
	u := &usage{end: cancel, latest: s.latest}
	hubs := s.Hubs()
	for _, p := range hubs[len(hubs)-2:] {
		u.done.Go(func() { u.look(ctx, t, p) })
	}
	return u
}

func (u *usage) look(ctx context.Context, t *testing.T, p *process.Process) {
	pid := p.PID()
	began, before := time.Now(), processorTime(pid)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		rss := residentBytes(pid)
		u.mu.Lock()
		u.peak = max(u.peak, rss)
		u.mu.Unlock()
		if rss > mostMemory<<20 {
			t.Logf("%s has %d MiB and is killed. %s", p.Name(), rss>>20, u.latest())
			if err := p.Kill(); err != nil {
				t.Error(err)
			}
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			u.mu.Lock()
			u.cores = max(u.cores, (processorTime(pid)-before).Seconds()/time.Since(began).Seconds())
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

// residentBytes is the memory of a process now; zero if it has ended.
func residentBytes(pid int) int64 {
	fields := procFields(pid, "statm")
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// processorTime is what a process has taken so far.
func processorTime(pid int) time.Duration {
	fields := procFields(pid, "stat")
	if len(fields) < 15 {
		return 0
	}
	user, errUser := strconv.ParseInt(fields[13], 10, 64)
	system, errSystem := strconv.ParseInt(fields[14], 10, 64)
	if errUser != nil || errSystem != nil {
		return 0
	}
	return time.Duration(user+system) * time.Second / ticks
}

// procFields are the fields of a file of the kernel about a process.
func procFields(pid int, file string) (fields []string) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return nil
	}
	for _, f := range bytes.Fields(content) {
		fields = append(fields, string(f))
	}
	return fields
}
