package publish

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
)

// Promise is what this tenure has promised for one namespace, in all members and
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

// Ledger remembers every promise of a tenure. It is safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	promises map[types.NamespacedName]Promise // by fleet and namespace
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{promises: map[types.NamespacedName]Promise{}}
}

// enter notes a stamp that is about to be sent, under a policy of that ε.
func (l *Ledger) enter(key types.NamespacedName, epoch int64, stamp lease.Reading, d, skew time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.promises[key]
	until := stamp.Wall.Add(d)
	if skew > p.Skew || !until.Add(skew).Before(p.Until.Add(p.Skew)) && stamp.Boot+d+skew >= p.BootUntil+p.Skew {
		p.Skew = skew // a smaller one once this outlasts all that was sent under the larger
	}
	if until.After(p.Until) {
		p.Until = until
	}
	p.Epoch = epoch
	p.BootUntil = max(p.BootUntil, stamp.Boot+d)
	l.promises[key] = p
}

// Promise returns what was promised for a namespace of a fleet. It is final once no
// Publisher has an assignment to lead there.
func (l *Ledger) Promise(key types.NamespacedName) Promise {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.promises[key]
}

// Forget drops a namespace whose promises have all passed.
func (l *Ledger) Forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.promises, key)
}
