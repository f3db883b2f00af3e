package fleet

import (
	"net/http"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/skew"
)

// setSkews sets the ε under which the clock is judged.
func (m *member) setSkews(eps []time.Duration) {
	now := m.p.clock.Now()
	m.changeClock(now, func() { m.clock.Judge(now, eps) })
}

// changeClock changes what is known of the clock, and logs and announces a verdict that changes.
func (m *member) changeClock(now lease.Reading, change func()) {
	var before, after []skew.State
	var worst skew.Verdict
	m.change(func(s *state) {
		before = m.clock.States()
		change()
		after = m.clock.States()
		worst, _ = m.clock.Worst(now)
		if !slices.Equal(before, after) {
			s.clockVerdicts++
		}
	})
	logger := m.p.log.WithValues("cluster", klog.KRef(m.key.Fleet, m.key.Name))
	switch was, is := slices.Contains(before, skew.Beyond), slices.Contains(after, skew.Beyond); {
	case is && !was:
		logger.Info("The clock of the member is off", "reason", reason.ClockSkewed, "offset", worst.String())
	case was && !is:
		logger.Info("The clock of the member is right again")
	}
}

// requestSent returns the handler of the answer to a request that is sent now. The Date of the answer measures the
// member's clock.
func (m *member) requestSent() transport.AnswerFunc {
	sent := m.p.clock.Now()
	return func(status int, header http.Header) {
		now := m.p.clock.Now()
		if sample, ok := skew.SampleOf(sent, now, status, header); ok {
			m.changeClock(now, func() { m.clock.Observe(sample, now) })
		}
	}
}

// Clock judges the member's clock by the hub's at now, under a policy's ε, which [Provider.SetProbing] was given.
func (m Member) Clock(now lease.Reading, eps time.Duration) skew.Verdict {
	m.live.mu.Lock()
	defer m.live.mu.Unlock()
	return m.live.clock.Verdict(now, eps)
}

// Skewed is the verdict under the largest ε under which the member's clock is beyond it, with that ε. Its State is
// another one if the clock is not known to be off.
func (m Member) Skewed() (skew.Verdict, time.Duration) {
	now := m.live.p.clock.Now()
	m.live.mu.Lock()
	defer m.live.mu.Unlock()
	return m.live.clock.Worst(now)
}

// Offsets are how far the clocks of the API servers are from the hub's now: of all members that have
// answered, each cluster once.
func (p *Provider) Offsets() map[Key]skew.Interval {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	owners, offsets := p.ownersLocked(), map[Key]skew.Interval{}
	for key, m := range p.members {
		if owner, ok := owners[m.uidOwner().uid]; ok && owner != key {
			continue // the same cluster by another name
		}
		m.mu.Lock()
		offset, ok := m.clock.Offset(now)
		m.mu.Unlock()
		if ok {
			offsets[key] = offset
		}
	}
	return offsets
}
