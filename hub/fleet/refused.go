package fleet

import (
	"regexp"

	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/guard"
)

// missingRight matches what an API server answers to a user without the rights that the hub needs at any time.
// Admission policies reject in other words.
var missingRight = regexp.MustCompile(
	`is forbidden: User .* cannot \w+ resource \W+(leases|namespaces)\W+in API group `)

// noteRefusal records that the member refuses the hub's user, if the words of an answer show that.
func (m *member) noteRefusal(words string) {
	if missingRight.MatchString(words) || guard.RefusesWriter(words) {
		m.noteRefused()
	}
}

// noteRefused records that the member refuses the hub's user, so that its rights are installed again.
func (m *member) noteRefused() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.state.target; t != nil && t.User != "" && !m.state.refused {
		m.state.refused = true
		wake.Wake(m.wake)
	}
}
