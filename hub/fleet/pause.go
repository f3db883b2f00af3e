package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leasecast/leasecast/hub/fleet/wake"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/health"
)

const (
	// pauseCheckEvery is how often the process checks whether it was paused.
	pauseCheckEvery = 250 * time.Millisecond
	// pauseLeast is the shortest pause that is noticed.
	pauseLeast = time.Second
)

// pauseDetector notices pauses of this process (a stopped process, a suspended machine). In a pause nobody
// hears what members answer.
type pauseDetector struct {
	mu   sync.Mutex
	last *lease.Reading
}

// detectPauses checks for pauses until ctx ends.
func (p *Provider) detectPauses(ctx context.Context) {
	p.noticePause()
	for wake.For(ctx, p.timers, pauseCheckEvery, nil) == nil {
		p.noticePause()
	}
}

// noticePause excuses all members for a pause that has just ended, before anybody judges their health. It
// returns the reading of the clocks that it took.
func (p *Provider) noticePause() lease.Reading {
	p.pauses.mu.Lock()
	defer p.pauses.mu.Unlock()
	now := p.clock.Now()
	last := p.pauses.last
	p.pauses.last = &now
	if last == nil || now.Boot-last.Boot < pauseLeast {
		return now
	}
	p.mu.Lock()
	members := slices.Collect(maps.Values(p.members))
	p.mu.Unlock()
	for _, m := range members {
		m.excuse(health.Read, *last, now)
		m.excuse(health.Write, *last, now)
	}
	return now
}
