package fleet

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

// quarantineTime is for how long nothing is asked of a member that has sent too much, and up to a tenth more.
const quarantineTime = time.Minute

// quarantine is until when a member stays disconnected that has sent too much. The zero value is over.
type quarantine struct {
	until   time.Duration // a boot reading
	problem Problem
}

// sentTooMuch has the member disconnected, in the middle of a request: its answer about one Lease is larger than any
// that an API server stores. Nothing that tenants write leads here.
func (m *member) sentTooMuch(err error) {
	now := m.clock.Now()
	m.mu.Lock()
	t := m.state.target
	if now.Boot < m.state.quarantine.until { // another request has noticed the same
		m.mu.Unlock()
		return
	}
	pause := wait.Jitter(quarantineTime, 0.1)
	q := quarantine{until: now.Boot + pause, problem: Problem{reason.SendsTooMuch, fmt.Sprintf(
		"%s; it was disconnected, and that is tried again in %v: see what answers in the place of its API server",
		transport.Shorten(err.Error()), pause.Round(time.Second))}}
	m.state.quarantine = q
	m.mu.Unlock()
	m.logger().Info("Member disconnected", "reason", reason.SendsTooMuch, "message", q.problem.Message)
	m.drop(t, q.problem)
}
