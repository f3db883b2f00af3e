package publish

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
)

// noteOutcome records the outcome of a request, and reports it for the member's health.
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
		err = nil // the member works: it rejects an outdated request
	}
	p.Report(write, sent, err)
}

// park sets a syncer aside until the member answers, or until it becomes the prober. The caller holds mu.
func (p *Publisher) park(key types.NamespacedName, l *leaseSyncer) {
	if !l.parked {
		l.parked = true
		p.parked = append(p.parked, key)
	}
}

// unpark enqueues the n syncers that have been parked longest. The caller holds mu.
func (p *Publisher) unpark(n int) {
	for _, key := range p.parked[:n] {
		p.syncer(key).parked = false
		p.Queue.Add(key)
	}
	p.parked = p.parked[n:]
}

// chooseProber makes a syncer that is about to send a request the prober of a silent member. A syncer without a
// request leaves that to another one. The caller holds mu.
func (p *Publisher) chooseProber(key types.NamespacedName, asks bool) {
	if asks {
		p.prober = &key
		return
	}
	p.prober = nil
	p.unpark(min(1, len(p.parked)))
}
