package fleet

import (
	"slices"
	"sync"

	"github.com/leasecast/leasecast/hub/fleet/wake"
)

// workQueue collects keys for one goroutine. A key that waits already is not added again.
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
	wake.Wake(b.wake)
}

// getAll returns the keys that wait, perhaps none, and empties the queue.
func (b *workQueue) getAll() []Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := b.keys
	b.keys = nil
	return keys
}
