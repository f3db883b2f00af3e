package publish

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/election"
)

// Promise is what this tenure has promised for one namespace, in all members and terms together.
type Promise struct {
	// Sent is final once no Publisher has an assignment to lead in the namespace.
	Sent election.Sent
	// Epoch is the epoch of the last promise.
	Epoch int64
}

// Promises remembers every promise of a tenure. It is safe for concurrent use.
type Promises struct {
	mu          sync.Mutex
	byNamespace map[types.NamespacedName]Promise // by fleet and namespace
}

// NewPromises returns an empty Promises.
func NewPromises() *Promises {
	return &Promises{byNamespace: map[types.NamespacedName]Promise{}}
}

// add records a promise that is about to be sent, under a policy with this ε and this stop time.
func (l *Promises) add(key types.NamespacedName, epoch int64, sent lease.Reading, d, skew, stop time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.byNamespace[key]
	p := &all.Sent
	if rest := p.Skew + p.Stop; skew < p.Skew || stop < p.Stop {
		p.EarlierEnd = latest(p.EarlierEnd, p.Until.Add(rest))
		p.BootEarlierEnd = max(p.BootEarlierEnd, p.BootUntil+rest)
	}
	p.Skew, p.Stop = skew, stop
	p.Until = latest(p.Until, sent.Wall.Add(d))
	p.BootUntil = max(p.BootUntil, sent.Boot+d)
	all.Epoch = epoch
	l.byNamespace[key] = all
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// Get returns what was promised for a namespace of a fleet.
func (l *Promises) Get(key types.NamespacedName) Promise {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byNamespace[key]
}

// Forget drops a namespace whose promises have all passed.
func (l *Promises) Forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byNamespace, key)
}
