package publish

import (
	"iter"

	"k8s.io/apimachinery/pkg/types"
)

// syncers holds the syncers of one member, by the namespace and the name of their Leases. A decision on one
// namespace must not cost more where there are many.
type syncers map[string]map[string]*leaseSyncer

// find returns the syncer of a Lease, or nil.
func (s syncers) find(key types.NamespacedName) *leaseSyncer { return s[key.Namespace][key.Name] }

func (s syncers) add(l *leaseSyncer) {
	if s[l.namespace] == nil {
		s[l.namespace] = map[string]*leaseSyncer{}
	}
	s[l.namespace][l.name] = l
}

func (s syncers) remove(l *leaseSyncer) {
	delete(s[l.namespace], l.name)
	if len(s[l.namespace]) == 0 {
		delete(s, l.namespace)
	}
}

// in iterates over the syncers of one namespace. The current one may be removed.
func (s syncers) in(namespace string) iter.Seq[*leaseSyncer] {
	return func(yield func(*leaseSyncer) bool) {
		for _, l := range s[namespace] {
			if !yield(l) {
				return
			}
		}
	}
}

func (s syncers) all() iter.Seq[*leaseSyncer] {
	return func(yield func(*leaseSyncer) bool) {
		for namespace := range s {
			for l := range s.in(namespace) {
				if !yield(l) {
					return
				}
			}
		}
	}
}

// key returns the name of a syncer's Lease.
func (l *leaseSyncer) key() types.NamespacedName {
	return types.NamespacedName{Namespace: l.namespace, Name: l.name}
}
