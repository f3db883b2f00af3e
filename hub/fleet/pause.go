package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/fleet/wake"
)

const (
	// pauseCheckEvery is how often the process checks whether it was paused.
	pauseCheckEvery = 250 * time.Millisecond
	// pauseLeast is the shortest pause that is noticed.
	pauseLeast = time.Second
)

// pauses are the times in which this process did not run: it was stopped, or its machine was suspended. Nobody receives
// then what members answer.
type pauses struct {
	mu   sync.Mutex
	last *lease.Reading
	all  []pause
}

type pause struct{ from, to lease.Reading }

// notice returns all pauses, the one included that ends at now.
func (p *pauses) notice(now lease.Reading) []pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && now.Boot-p.last.Boot >= pauseLeast {
		p.all = append(p.all, pause{*p.last, now})
	}
	if p.last == nil || now.Boot > p.last.Boot {
		p.last = &now
	}
	return p.all
}

// detectPauses checks for pauses until ctx ends.
func (s *shared) detectPauses(ctx context.Context) {
	s.pauses.notice(s.clock.Now())
	for wake.For(ctx, s.timers, pauseCheckEvery, nil) == nil {
		s.pauses.notice(s.clock.Now())
	}
}
