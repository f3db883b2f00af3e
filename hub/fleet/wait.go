package fleet

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// wait returns after d, or earlier when wake can be received from, or with the error of ctx when
// that ends. A d below zero waits for wake only.
func wait(ctx context.Context, c clock.Clock, d time.Duration, wake <-chan struct{}) error {
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

// signal tells any number of waiters that something happened.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// next is closed at the next fire.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// workQueue collects keys for one reader. A key that waits already is not added again.
type workQueue struct {
	mu   sync.Mutex
	keys []Key
	wake chan struct{} // holds one
}

func newWorkQueue() *workQueue { return &workQueue{wake: make(chan struct{}, 1)} }

func (b *workQueue) add(k Key) {
	b.mu.Lock()
	if !slices.Contains(b.keys, k) {
		b.keys = append(b.keys, k)
	}
	b.mu.Unlock()
	wake(b.wake)
}

// sample returns what waits, perhaps nothing, and leaves the inbox empty.
func (b *workQueue) getAll() []Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := b.keys
	b.keys = nil
	return keys
}

// wake wakes the one goroutine that listens to wake, now or when it listens next.
func wake(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
