package publish

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
)

// noteOutcome notes the outcome of a request, and reports it to whoever tracks the member's health.
func (p *Publisher) noteOutcome(write bool, sent lease.Reading, err error) {
	v := outcomeOf(err)
	p.mu.Lock()
	if p.silent = v == ambiguous; !p.silent {
		p.hasAnswered, p.lastAnswer = true, p.Clock.Now().Boot
		p.prober = nil
		p.unpark(len(p.parked))
	}
	p.mu.Unlock()
	if v == conflict {
		err = nil // the member works: it says that this hub is out of date
	}
	p.Report(write, sent, err)
}

// park sets a syncer aside until the member answers, or until it is its turn to ask. The caller holds mu.
func (p *Publisher) park(key types.NamespacedName, l *leaseSyncer) {
	if !l.parked {
		l.parked = true
		p.parked = append(p.parked, key)
	}
}

// unpark brings back the n syncers that have waited longest. The caller holds mu.
func (p *Publisher) unpark(n int) {
	for _, key := range p.parked[:n] {
		p.syncer(key).parked = false
		p.Queue.Add(key)
	}
	p.parked = p.parked[n:]
}

// chooseProber makes a syncer that is about to ask the prober of a silent member. One that has nothing to ask
// leaves that to another. The caller holds mu.
func (p *Publisher) chooseProber(key types.NamespacedName, asks bool) {
	if asks {
		p.prober = &key
		return
	}
	p.prober = nil
	p.unpark(min(1, len(p.parked)))
}
