package fleet

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/fleet/wake"
)

const (
	// firstBanishment and longestBanishment are for how long nothing is asked of a member that has sent too much: the
	// time doubles each time. It begins anew once the member has behaved for longestBanishment.
	firstBanishment   = time.Minute
	longestBanishment = 15 * time.Minute
)

// banishment is what happened to a member that has sent too much.
type banishment struct {
	why   string
	since lease.Reading
	until time.Duration // boot reading
	times int
	done  bool // the connection has ended
}

func (b *banishment) problem(now lease.Reading) Problem {
	return Problem{reason.SendsTooMuch, fmt.Sprintf("%s; it was disconnected, and that is tried again in %v: see how large and how many its Namespaces and Leases are",
		b.why, (b.until - now.Boot).Round(time.Second))}
}

// sentTooMuch has the member disconnected. Its meter calls it, in the middle of a request.
func (m *member) sentTooMuch(err error) {
	now := m.p.clock.Now()
	m.change(func(s *state) {
		times := 0
		if b := s.banished; b != nil && now.Boot-b.until < longestBanishment {
			times = b.times
		}
		pause := wait.Jitter(min(firstBanishment<<min(times, 8), longestBanishment), 0.1)
		s.banished = &banishment{why: transport.Shorten(err.Error()), since: now, until: now.Boot + pause, times: times + 1}
		if s.interrupt != nil {
			s.interrupt()
		}
		s.contact = s.banished.problem(now)
		transport.Lead(nil, m.caches, m.renewals)
	})
	wake.Wake(m.wake)
}

// heedBanishment disconnects a member that has sent too much. It returns how long to wait before anything is asked of
// it again, and zero if that is now.
func (c *connection) heedBanishment(ctx context.Context, s state, now lease.Reading) time.Duration {
	b := s.banished
	if b == nil {
		return 0
	}
	if !b.done {
		log.FromContext(ctx).Info("Member disconnected", "cluster", klog.KRef(c.key.Fleet, c.key.Name), "reason", reason.SendsTooMuch,
			"why", b.why, "until", b.until-now.Boot)
		c.end() // gives back what its caches hold
		c.endDrain(never)
		var t *transport.Target
		c.change(func(s *state) {
			t, s.target, b.done = s.target, nil, true
			s.contact = b.problem(now) // a step under way may have put something else there
		})
		if t != nil {
			t.Close()
		}
	}
	if wait := b.until - now.Boot; wait > 0 {
		return wait
	}
	c.meter.Reset()
	return 0
}
