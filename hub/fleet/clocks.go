package fleet

import (
	"net/http"
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/skew"
)

// changeSkew changes the measurement of the clock. It logs a verdict that changes, and notifies subscribers of it.
func (m *member) changeSkew(now lease.Reading, change func(*skew.Track)) {
	var before, after []skew.State
	var worst skew.Verdict
	m.change(func(s *state) {
		before = m.skew.States()
		change(&m.skew)
		after = m.skew.States()
		worst, _ = m.skew.Worst(now)
		if !slices.Equal(before, after) {
			s.clockVerdicts++
		}
	})
	switch was, is := slices.Contains(before, skew.Beyond), slices.Contains(after, skew.Beyond); {
	case is && !was:
		m.logger().Info("The clock of the member is off", "reason", reason.ClockSkewed, "offset", worst.String())
	case was && !is:
		m.logger().Info("The clock of the member is right again")
	}
}

// requestSent returns the handler of the answer to a request that is sent now. The Date of the answer measures the
// member's clock. Even one that refuses shows that the member is not off.
func (m *member) requestSent() transport.AnswerFunc {
	sent := m.clock.Now()
	return func(status int, header http.Header) {
		now := m.clock.Now()
		if status < http.StatusInternalServerError { // else it may be an error of a gateway
			m.lastAnswer.Store(&now)
		}
		if sample, ok := skew.SampleOf(sent, now, status, header); ok {
			m.changeSkew(now, func(t *skew.Track) { t.Observe(sample, now) })
		}
	}
}

// Clock judges the member's clock by the hub's at now, under a policy's ε, which [Provider.SetProbing] was given.
func (m Member) Clock(now lease.Reading, eps time.Duration) skew.Verdict {
	m.live.mu.Lock()
	defer m.live.mu.Unlock()
	return m.live.skew.Verdict(now, eps)
}

// Skewed is the verdict under the largest ε under which the member's clock is beyond it, with that ε. Its State is
// another one if the clock is not known to be off.
func (m Member) Skewed() (skew.Verdict, time.Duration) {
	now := m.live.clock.Now()
	m.live.mu.Lock()
	defer m.live.mu.Unlock()
	return m.live.skew.Worst(now)
}
