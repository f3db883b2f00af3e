package fleet

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

const (
	// firstQuarantine and longestQuarantine are for how long nothing is asked of a member that has sent too much: the
	// time doubles each time. It begins again once the member has behaved for longestQuarantine.
	firstQuarantine   = time.Minute
	longestQuarantine = 15 * time.Minute
)

// quarantine is how long a member stays disconnected that has sent too much. The zero value is over.
type quarantine struct {
	until, lasts time.Duration // a boot reading, and how long, give or take a tenth
	problem      Problem
}

// sentTooMuch has the member disconnected, in the middle of a request: its answer about one Lease is larger than any
// that an API server stores. Nothing that tenants write leads here.
func (m *member) sentTooMuch(err error) {
	now := m.clock.Now()
	m.mu.Lock()
	was, t := m.state.quarantine, m.state.target
	if now.Boot < was.until { // another request has noticed the same
		m.mu.Unlock()
		return
	}
	lasts := firstQuarantine
	if was.lasts > 0 && now.Boot-was.until < longestQuarantine {
		lasts = min(2*was.lasts, longestQuarantine)
	}
	pause := wait.Jitter(lasts, 0.1)
	q := quarantine{until: now.Boot + pause, lasts: lasts, problem: Problem{reason.SendsTooMuch, fmt.Sprintf(
		"%s; it was disconnected, and that is tried again in %v: see what answers in the place of its API server",
		transport.Shorten(err.Error()), pause.Round(time.Second))}}
	m.state.quarantine = q
	m.mu.Unlock()
	m.logger().Info("Member disconnected", "reason", reason.SendsTooMuch, "message", q.problem.Message)
	m.drop(t, q.problem)
}
