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
	// firstQuarantine and longestQuarantine are for how long nothing is asked of a member that has sent too much: the
	// time doubles each time. It begins anew once the member has behaved for longestQuarantine.
	firstQuarantine   = time.Minute
	longestQuarantine = 15 * time.Minute
)

// quarantine is that of a member that has sent too much: it is disconnected for a while.
type quarantine struct {
	why   string
	until time.Duration // boot reading
	times int
	done  bool // the connection has ended
}

func (q *quarantine) problem(now lease.Reading) Problem {
	return Problem{reason.SendsTooMuch, fmt.Sprintf("%s; it was disconnected, and that is tried again in %v: see what answers in the place of its API server",
		q.why, (q.until - now.Boot).Round(time.Second))}
}

// sentTooMuch has the member disconnected, in the middle of a request: its answer about one Lease is larger than any that an
// API server stores. Nothing that tenants write leads here.
func (m *member) sentTooMuch(err error) {
	now := m.p.clock.Now()
	m.change(func(s *state) {
		times := 0
		if q := s.quarantine; q != nil {
			if now.Boot < q.until {
				return // another request has noticed the same
			}
			if now.Boot-q.until < longestQuarantine {
				times = q.times
			}
		}
		pause := wait.Jitter(min(firstQuarantine<<min(times, 8), longestQuarantine), 0.1)
		s.quarantine = &quarantine{why: transport.Shorten(err.Error()), until: now.Boot + pause, times: times + 1}
		if s.interrupt != nil {
			s.interrupt()
		}
		s.contact = s.quarantine.problem(now)
		transport.Lead(nil, m.caches, m.renewals)
	})
	wake.Wake(m.wake)
}

// enforceQuarantine disconnects a member that has sent too much. It returns how long to wait before anything is asked of
// it again, and zero if that is now.
func (c *connection) enforceQuarantine(ctx context.Context, s state, now lease.Reading) time.Duration {
	q := s.quarantine
	if q == nil {
		return 0
	}
	if !q.done {
		log.FromContext(ctx).Info("Member disconnected", "cluster", klog.KRef(c.key.Fleet, c.key.Name), "reason", reason.SendsTooMuch,
			"why", q.why, "until", q.until-now.Boot)
		c.end() // gives back what its caches hold
		var t *transport.Target
		c.change(func(s *state) {
			t, s.target, q.done = s.target, nil, true
			s.contact = q.problem(now) // a step under way may have put something else there
		})
		if t != nil {
			t.Close()
		}
	}
	if wait := q.until - now.Boot; wait > 0 {
		return wait
	}
	return 0
}
