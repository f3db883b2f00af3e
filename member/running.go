package member

import (
	"fmt"
	"slices"
	"sync"
)

// running holds the Members of this process that run now.
var running struct {
	mu  sync.Mutex
	all []*Member
}

// join adds a Member to the running ones. It rejects one that would release terms while others act in them. The hub
// does not track a Member that is not registered, and would not wait for it.
func (m *Member) join() error {
	running.mu.Lock()
	defer running.mu.Unlock()
	for _, other := range running.all {
		common, found := m.follows(other)
		if !found {
			continue
		}
		if (m.registrar == nil) != (other.registrar == nil) {
			return fmt.Errorf("%w: two Members of this process follow %s of the API server %s, and one of them is registered and the "+
				"other is not: a term would be released while the other acts. Use one Member for all, or give both a Registration", ErrMisused, common, m.host)
		}
		m.log.Info("Another Member of this process follows the same, so each line is told by both: one Member is enough", "scope", common)
	}
	running.all = append(running.all, m)
	return nil
}

// part reverts join.
func (m *Member) part() {
	running.mu.Lock()
	defer running.mu.Unlock()
	running.all = slices.DeleteFunc(running.all, func(o *Member) bool { return o == m })
}

// follows returns a namespace that both Members follow, and false if they share no namespace.
func (m *Member) follows(other *Member) (what string, found bool) {
	if m.host != other.host {
		return "", false
	}
	for _, w := range m.watches {
		for _, o := range other.watches {
			switch {
			case w.namespace == o.namespace, o.namespace == allNamespaces:
				return w.String(), true
			case w.namespace == allNamespaces:
				return o.String(), true
			}
		}
	}
	return "", false
}
