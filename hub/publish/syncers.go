package publish

import (
	"iter"
	"maps"

	"k8s.io/apimachinery/pkg/types"
)

// syncers holds the syncers of one member, by the namespace and the name of their Leases. A decision on one
// namespace must not cost more where there are many.
type syncers map[string]map[string]*leaseSyncer

// find returns the syncer of a Lease, or nil.
func (s syncers) find(key types.NamespacedName) *leaseSyncer { return s[key.Namespace][key.Name] }

func (s syncers) add(l *leaseSyncer) {
	if s[l.key.Namespace] == nil {
		s[l.key.Namespace] = map[string]*leaseSyncer{}
	}
	s[l.key.Namespace][l.key.Name] = l
}

func (s syncers) remove(l *leaseSyncer) {
	delete(s[l.key.Namespace], l.key.Name)
	if len(s[l.key.Namespace]) == 0 {
		delete(s, l.key.Namespace)
	}
}

// in iterates over the syncers of one namespace. The current one may be removed.
func (s syncers) in(namespace string) iter.Seq[*leaseSyncer] {
	return maps.Values(s[namespace])
}

func (s syncers) all() iter.Seq[*leaseSyncer] {
	return func(yield func(*leaseSyncer) bool) {
		for _, in := range s {
			for _, l := range in {
				if !yield(l) {
					return
				}
			}
		}
	}
}

// syncer returns the syncer of a Lease, and creates it if necessary. The caller holds mu.
func (p *Publisher) syncer(key types.NamespacedName) *leaseSyncer {
	l := p.syncers.find(key)
	if l == nil {
		l = &leaseSyncer{
			key:          key,
			self:         self{cluster: p.Cluster, uid: p.ClusterUID, hub: p.Hub, key: p.Key},
			relinquished: p.relinquished,
		}
		p.syncers.add(l)
	}
	return l
}
