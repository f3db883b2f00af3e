// Package wake lets goroutines wait for a time, for a wake-up, or for something that happens.
package wake

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// For returns after d, or earlier when it receives from wake, or with the error of ctx when that ends. A d
// below zero waits for wake only.
func For(ctx context.Context, c clock.Clock, d time.Duration, wake <-chan struct{}) error {
	var expired <-chan time.Time
	if d >= 0 {
		timer := c.NewTimer(d)
		defer timer.Stop()
		expired = timer.C()
	}
	select {
	case <-expired:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Signal announces to any number of waiters that something happened.
type Signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// Next is closed at the next Fire.
func (s *Signal) Next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// Fire announces it.
func (s *Signal) Fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// Wake wakes the one goroutine that listens to wake, now or when it listens next.
func Wake(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
