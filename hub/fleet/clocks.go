package fleet

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/skew"
	"github.com/leasecast/leasecast/hub/skew/sample"
)

const (
	// sampleEvery is the least time between two lists of the Leases of hosts and API servers.
	// samplePausePerHost is how much each host adds to it: the Leases of 500 hosts are read twice a minute,
	// those of 5000 every five minutes.
	sampleEvery        = 30 * time.Second
	samplePausePerHost = 60 * time.Millisecond
)

// setSkews sets the ε under which the clocks are judged.
func (m *member) setSkews(eps []time.Duration) {
	now := m.p.clock.Now()
	m.changeClocks(func() { m.clocks.Judge(now, eps) })
}

// changeClocks changes what is known of the clocks, and logs and announces a verdict that changes.
func (m *member) changeClocks(change func()) {
	var was, is skew.Verdict
	m.change(func(s *state) {
		before := m.clocks.States()
		was, _ = m.clocks.Worst()
		change()
		is, _ = m.clocks.Worst()
		if !slices.Equal(before, m.clocks.States()) {
			s.clockVerdicts++
		}
	})
	logger := m.p.log.WithValues("cluster", klog.KRef(m.key.Fleet, m.key.Name))
	switch {
	case was.State != skew.Beyond && is.State == skew.Beyond:
		logger.Info("A clock of the member is off", "reason", reason.ClockSkewed, "offset", is.String())
	case was.State == skew.Beyond && is.State != skew.Beyond:
		logger.Info("The clocks of the member are right again")
	}
}

// requestSent notes when a request is sent. The Date of the answer tells the time of the member's clock.
func (m *member) requestSent() transport.AnswerFunc {
	sent := m.p.clock.Now()
	return func(status int, header http.Header) {
		now := m.p.clock.Now()
		if date, ok := sample.Date(status, header); ok {
			m.changeClocks(func() { m.clocks.Answer(skew.Dated(sent, now, date), now) })
		}
	}
}

// sampleLeases lists what hosts and API servers renew until ctx ends, while this replica has the right to
// write: one replica is enough.
func (m *member) sampleLeases(ctx context.Context) {
	c := &leaseSampler{member: m}
	for pause := time.Duration(0); wake.For(ctx, m.p.timers, pause, nil) == nil; {
		s := m.get()
		if s.cluster == nil || s.target == nil || s.spec.pin != s.target.UID || s.spec.moved || !m.p.mayWrite(m.key.Fleet) {
			pause = time.Second
			continue
		}
		pause = c.sample(ctx, s.target)
	}
}

// leaseSampler lists the Leases that hosts and API servers renew, in a goroutine of its own.
type leaseSampler struct {
	*member
	failed bool // the last list failed
}

// sample lists the Leases of API servers and hosts, and returns how long to wait before it does so again.
func (c *leaseSampler) sample(ctx context.Context, t *transport.Target) time.Duration {
	servers, err := sample.Servers(ctx, c.leases, c.p.clock)
	if err == nil {
		c.changeClocks(func() { c.clocks.Servers(servers.Renewals, servers.Sent, servers.Answered) })
	}
	hosts, hostsErr := sample.Hosts(ctx, c.leases, c.p.clock)
	if hostsErr == nil {
		c.changeClocks(func() { c.clocks.Hosts(hosts.Renewals, hosts.Answered) })
	}
	c.logFailure(errors.Join(err, hostsErr), t)
	return max(sampleEvery, time.Duration(len(hosts.Renewals))*samplePausePerHost)
}

// logFailure logs once that the lists fail. The hub then does without what they would measure.
func (c *leaseSampler) logFailure(err error, t *transport.Target) {
	if err != nil && !c.failed {
		c.p.log.Info("The Leases of the member's API servers and hosts cannot be listed, so their clocks are not measured",
			"cluster", klog.KRef(c.key.Fleet, c.key.Name), "error", t.Clean(err.Error()))
	}
	c.failed = err != nil
}

// Clocks judges the member's clocks under a policy's ε, which [Provider.SetProbing] was given.
func (m Member) Clocks(eps time.Duration) skew.Verdict {
	m.live.mu.Lock()
	defer m.live.mu.Unlock()
	return m.live.clocks.Verdict(eps)
}

// Skewed is the verdict under the largest ε under which a clock of the member is beyond it, with that ε. Its
// State is another one if no clock is.
func (m Member) Skewed() (skew.Verdict, time.Duration) {
	m.live.mu.Lock()
	defer m.live.mu.Unlock()
	return m.live.clocks.Worst()
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
		offset, ok := m.clocks.Server(now)
		m.mu.Unlock()
		if ok {
			offsets[key] = offset
		}
	}
	return offsets
}

// Clock is how far the clock of the member's API server is from the hub's now. It returns false if the member
// has not answered yet.
func (m Member) Clock() (skew.Interval, bool) {
	now := m.live.p.clock.Now()
	m.live.mu.Lock()
	defer m.live.mu.Unlock()
	return m.live.clocks.Server(now)
}
