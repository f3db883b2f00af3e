package publish

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/assign"
)

// MayHaveWritten returns the namespaces with Leases that this hub has written, as their seals prove, or may have
// written.
func (p *Publisher) MayHaveWritten() (namespaces []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for namespace := range p.syncers {
		if p.mayHaveWrittenIn(namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces
}

// MayHaveWrittenIn is MayHaveWritten for one namespace.
func (p *Publisher) MayHaveWrittenIn(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mayHaveWrittenIn(namespace)
}

// mayHaveWrittenIn is MayHaveWrittenIn. The caller holds mu.
func (p *Publisher) mayHaveWrittenIn(namespace string) bool {
	for l := range p.syncers.in(namespace) {
		if !l.known.read || l.known.lease != nil && (l.known.sealed || l.known.ours) {
			return true
		}
	}
	return false
}

// Lease is a Lease that exists in a member, or that was not read yet.
type Lease struct {
	Key types.NamespacedName
	lease.Content
	Known, Sealed bool
}

// LeasesIn returns the Leases in a namespace that are known to exist in the member, or have to be read. It leaves out
// those that no hub has marked: a label alone makes no Lease a hub's.
func (p *Publisher) LeasesIn(namespace string) (all []Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.syncers.in(namespace) {
		if k := &l.known; k.mayBeHubs(l.ownUID) {
			all = append(all, Lease{Key: l.key, Content: k.content, Known: k.lease != nil, Sealed: k.sealed})
		}
	}
	return all
}

// Remaining reports what is left in the member. ours: Leases that are, or may be, this hub's. others: Leases with
// another hub's mark, which this hub never removes.
func (p *Publisher) Remaining() (ours, others bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.syncers.all() {
		switch obj := l.known.lease; {
		case !l.known.read, obj != nil && !l.blocked():
			ours = true
		case obj != nil && wire.MadeByHub(obj):
			others = true
		}
	}
	return ours, others
}

// Observe records a Lease from a watch.
func (p *Publisher) Observe(obj *coordinationv1.Lease) {
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	p.Readers.see(obj.ResourceVersion, false)
	p.mu.Lock()
	had := p.syncers.find(key) != nil
	l := p.syncer(key)
	before := l.observations
	l.observe(obj)
	if l.observations != before {
		p.Queue.Add(key)
	}
	found := !had && l.known.mayBeHubs(l.ownUID)
	p.mu.Unlock()
	if found {
		p.Changed(key.Namespace)
	}
}

// ObserveGone records that a watch no longer shows a Lease.
func (p *Publisher) ObserveGone(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.syncers.find(key); l != nil {
		l.observe(nil)
		p.Queue.Add(key)
	}
}

// Forget drops what is known of a namespace without a record or a promise, whose epoch is below the seconds since
// 2025. It also drops the Leases found at the start, because they would create a new record. A syncer stays if it
// still has to read or remove a Lease.
func (p *Publisher) Forget(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.initial.Leases = slices.DeleteFunc(slices.Clone(p.initial.Leases), func(c lease.Content) bool {
		return c.Namespace == namespace
	})
	for l := range p.syncers.in(namespace) {
		idle := l.want.Role == assign.Absent || l.want.Role == assign.Hold
		if idle && l.known.read && l.known.lease == nil && !p.silence.holds(l.key) {
			p.syncers.remove(l)
		}
		if l.want.Role == assign.Absent {
			l.want.Term = lease.Term{} // a record that comes late may be older, and has to get its new term
		}
	}
}
