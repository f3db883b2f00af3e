package gate

import (
	"reflect"
	"sync"

	"github.com/go-logr/logr"

	"github.com/leasecast/leasecast/member"
)

// resynced are the Leaders that a Resync of this process listens to.
var resynced sync.Map

// listensTo notes that a Resync listens.
func listensTo(m member.Leader) {
	if reflect.TypeOf(m).Comparable() {
		resynced.Store(m, true)
	}
}

// isResynced reports whether a Resync has listened. Of a Leader that cannot be compared nothing is known.
func isResynced(m member.Leader) bool {
	if !reflect.TypeOf(m).Comparable() {
		return true
	}
	_, found := resynced.Load(m)
	return found
}

// skipped are the namespaces in which a Gate has skipped requests. What was skipped is lost if nobody enqueues it again,
// and nothing happens after a promotion then.
type skipped struct {
	namespaces   sync.Map
	listen, told sync.Once
}

// note notes a request that was skipped. It is told once if the namespace is promoted and no Resync listens.
func (s *skipped) note(m member.Leader, namespace string, logger logr.Logger) {
	s.namespaces.Store(namespace, true)
	s.listen.Do(func() {
		m.Listen(member.Listener{Promoted: func(ns string, _ member.Term) {
			if _, found := s.namespaces.Load(ns); !found || isResynced(m) {
				return
			}
			s.told.Do(func() {
				logger.Info("This cluster leads, but requests were skipped before, and no Resync enqueues them again: "+
					"add gate.Resync to the controller", "namespace", ns)
			})
		}})
	})
}
