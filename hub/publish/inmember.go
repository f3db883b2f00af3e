package publish

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
)

// Leases returns the names of all copies that are known to be in the member.
func (p *Publisher) Leases() []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	var keys []types.NamespacedName
	for key, l := range p.syncers {
		if l.known.lease != nil || !l.known.read {
			keys = append(keys, key)
		}
	}
	return keys
}

// LeasesIn returns the names of the copies in one namespace.
func (p *Publisher) LeasesIn(namespace string) []types.NamespacedName {
	return slices.DeleteFunc(p.Leases(), func(k types.NamespacedName) bool { return k.Namespace != namespace })
}

// Remaining reports what is known to be left in the member: copies of this hub, or at least
// what may be one, and marked copies of others, which it never removes.
func (p *Publisher) Remaining() (ours, others bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.syncers {
		switch obj := l.known.lease; {
		case !l.known.read, obj != nil && !l.blocked():
			ours = true
		case obj != nil && wire.MadeByHub(obj):
			others = true
		}
	}
	return ours, others
}

// Observe takes in a copy from a watch.
func (p *Publisher) Observe(obj *coordinationv1.Lease) {
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	p.mu.Lock()
	_, had := p.syncers[key]
	l := p.syncer(key)
	before := l.observations
	p.history.observe(obj.ResourceVersion)
	l.observe(obj)
	if l.observations != before {
		p.Queue.Add(key)
	}
	p.mu.Unlock()
	if !had {
		p.Changed(key.Namespace)
	}
}

// ObserveGone takes in that a watch no longer shows a copy.
func (p *Publisher) ObserveGone(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.syncers[key]; ok {
		l.observeGone()
		p.Queue.Add(key)
	}
}

// Find returns the copy of that name as it is known now, whether or not anything was done with it
// yet, and whether its seal is right; and false if there is none.
func (p *Publisher) Find(key types.NamespacedName) (c lease.Content, sealed, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.syncers[key]
	if l == nil || l.known.lease == nil {
		return lease.Content{}, false, false
	}
	return l.known.content, l.known.sealed, true
}

// Forget drops what is known of a namespace of which nothing is left: no record, no promise, and no epoch that the
// seconds have not outlived. So what was found at the start does not count any more: or a record would be made of
// it again. A syncer stays that still has something to find out or a copy to remove.
func (p *Publisher) Forget(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.initial.Leases = slices.DeleteFunc(slices.Clone(p.initial.Leases), func(c lease.Content) bool { return c.Namespace == namespace })
	for key, l := range p.syncers {
		asks := p.prober != nil && *p.prober == key
		idle := l.want.Role == lease.Absent || l.want.Role == lease.Hold
		if key.Namespace == namespace && idle && l.known.read && l.known.lease == nil && !l.parked && !asks {
			delete(p.syncers, key)
		}
	}
}
