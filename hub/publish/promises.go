package publish

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
)

// Promise is what this tenure has promised for one namespace, in all members and terms together.
type Promise struct {
	// Until is the latest renewTime + the duration sent with it, by the hub's wall clock.
	Until time.Time
	// BootUntil is the latest boot reading at a send + the duration sent.
	BootUntil time.Duration
	// Skew is the ε of the last promise. It has to pass after Until and after BootUntil.
	Skew time.Duration
	// Stop is the stop time of fenced locks in the last promise. It has to pass after Skew.
	Stop time.Duration
	// EarlierEnd is the end of what was sent under a larger ε or stop time, with both included.
	EarlierEnd time.Time
	// BootEarlierEnd is EarlierEnd on the boot clock.
	BootEarlierEnd time.Duration
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
	p := l.byNamespace[key]
	if rest := p.Skew + p.Stop; skew < p.Skew || stop < p.Stop {
		p.EarlierEnd = latest(p.EarlierEnd, p.Until.Add(rest))
		p.BootEarlierEnd = max(p.BootEarlierEnd, p.BootUntil+rest)
	}
	p.Skew, p.Stop = skew, stop
	p.Until = latest(p.Until, sent.Wall.Add(d))
	p.Epoch = epoch
	p.BootUntil = max(p.BootUntil, sent.Boot+d)
	l.byNamespace[key] = p
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// Get returns what was promised for a namespace of a fleet. It is final once no Publisher has an assignment
// to lead there.
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
