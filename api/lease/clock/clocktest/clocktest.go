// Package clocktest has clocks for tests.
package clocktest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// Start is the first reading of a clock in tests that need no other.
var Start = lease.Reading{Wall: time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}

// Hand shows the reading that it was set to. It is safe for concurrent use.
type Hand struct {
	mu  sync.Mutex
	now lease.Reading
}

var _ lease.Clock = (*Hand)(nil)

// NewHand returns a clock that shows now.
func NewHand(now lease.Reading) *Hand { return &Hand{now: now} }

// Now returns the current reading.
func (c *Hand) Now() lease.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Set sets the clock to now.
func (c *Hand) Set(now lease.Reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// Advance moves both clocks.
func (c *Hand) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = lease.Reading{Wall: c.now.Wall.Add(d), Boot: c.now.Boot + d}
}

// Step moves the wall clock alone, as setting the time does.
func (c *Hand) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Wall = c.now.Wall.Add(d)
}

// Bubble runs with the time of a testing/synctest bubble. It is safe for concurrent use.
type Bubble struct {
	start           time.Time
	from            lease.Reading
	stepped, asleep atomic.Int64 // nanoseconds
}

var _ lease.Clock = (*Bubble)(nil)

// NewBubble returns a clock that starts at from and runs on. Call it in the bubble.
func NewBubble(from lease.Reading) *Bubble { return &Bubble{start: time.Now(), from: from} }

// Now returns the current reading.
func (c *Bubble) Now() lease.Reading {
	ran := time.Since(c.start) + time.Duration(c.asleep.Load())
	return lease.Reading{Wall: c.from.Wall.Add(ran + time.Duration(c.stepped.Load())), Boot: c.from.Boot + ran}
}

// Step moves the wall clock alone, as setting the time does.
func (c *Bubble) Step(d time.Duration) { c.stepped.Add(int64(d)) }

// Suspend moves both clocks without firing timers.
func (c *Bubble) Suspend(d time.Duration) { c.asleep.Add(int64(d)) }
