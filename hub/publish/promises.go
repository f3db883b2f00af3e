package publish

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
)

// Get is what this tenure has promised for one namespace, in all members and
// terms together.
type Promise struct {
	// Until is the latest stamp + the duration sent with it, by the hub's wall clock.
	Until time.Time
	// BootUntil is the latest boot reading at a send + the duration sent.
	BootUntil time.Duration
	// Skew is an ε so large that nobody acts any more by anything promised when it has passed after Until, and
	// after BootUntil: each promise stands for as long as was right under the policy that it was sent under.
	Skew time.Duration
	// Epoch is that of the last stamp sent.
	Epoch int64
}

// Promises remembers every promise of a tenure. It is safe for concurrent use.
type Promises struct {
	mu          sync.Mutex
	byNamespace map[types.NamespacedName]Promise // by fleet and namespace
}

// NewPromises returns an empty ledger.
func NewPromises() *Promises {
	return &Promises{byNamespace: map[types.NamespacedName]Promise{}}
}

// put notes a stamp that is about to be sent, under a policy of that ε.
func (l *Promises) add(key types.NamespacedName, epoch int64, stamp lease.Reading, d, skew time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.byNamespace[key]
	until := stamp.Wall.Add(d)
	if skew > p.Skew || !until.Add(skew).Before(p.Until.Add(p.Skew)) && stamp.Boot+d+skew >= p.BootUntil+p.Skew {
		p.Skew = skew // a smaller one once this outlasts all that was sent under the larger
	}
	if until.After(p.Until) {
		p.Until = until
	}
	p.Epoch = epoch
	p.BootUntil = max(p.BootUntil, stamp.Boot+d)
	l.byNamespace[key] = p
}

// Get returns what was promised for a namespace of a fleet. It is final once no
// Publisher has an assignment to lead there.
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
