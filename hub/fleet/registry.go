package fleet

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/hub/skew"
)

// registry holds the members. Its lock is never held across I/O.
type registry struct {
	*shared

	mu      sync.Mutex
	members map[Key]*member
	moved   map[Key]types.UID    // the Clusters that were last seen to be moving away
	probing map[string][]Probing // by fleet
}

// get returns a member, or nil.
func (r *registry) get(k Key) *member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[k]
}

// of returns the members of a fleet, or all if it is empty.
func (r *registry) of(fleet string) (members []*member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, m := range r.members {
		if fleet == "" || k.Fleet == fleet {
			members = append(members, m)
		}
	}
	return members
}

// add adds a member.
func (r *registry) add(m *member) {
	r.mu.Lock()
	r.members[m.key] = m
	r.mu.Unlock()
	r.demandProbes(m)
	r.changed.Add(m.key)
}

// remove takes out a member that is to be forgotten. It returns false if the member takes part again.
func (r *registry) remove(m *member) bool {
	r.mu.Lock()
	takesPart := m.get().spec.takesPart()
	if !takesPart {
		delete(r.members, m.key)
	}
	r.mu.Unlock()
	if takesPart {
		return false
	}
	r.changed.Add(m.key)
	r.wake("")        // another one may wait for the UID
	r.work.Add(m.key) // the Cluster may have come back
	return true
}

// wake has the members of a fleet, or all if it is empty, take their next steps.
func (r *registry) wake(fleet string) {
	for _, m := range r.of(fleet) {
		m.wakeAll()
	}
}

// noteMove records whether a Cluster is moving to another hub. The move annotates and deletes it within
// milliseconds, and after that the cache shows nothing.
func (r *registry) noteMove(k Key, uid types.UID, moves bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if moves {
		r.moved[k] = uid
	} else {
		delete(r.moved, k)
	}
}

// movedUID is the UID of the Cluster of this name that has moved to another hub, or empty.
func (r *registry) movedUID(k Key) types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.moved[k]
}

// hasLeft reports whether a Cluster of the fleet has moved to another hub.
func (r *registry) hasLeft(fleet string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.moved {
		if k.Fleet == fleet {
			return true
		}
	}
	return false
}

// owners returns the rightful owner of each UID.
func (r *registry) owners() map[string]Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ownersLocked()
}

func (r *registry) ownersLocked() map[string]Key {
	all := make([]uidOwner, 0, len(r.members))
	for k, m := range r.members {
		s := m.get()
		all = append(all, s.uidOwner(k))
	}
	return owners(all)
}

// takeUID gives its UID to a member, unless the UID belongs to another one. The member then keeps it against
// all that are not pinned to it.
func (r *registry) takeUID(m *member) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := m.get()
	if r.ownersLocked()[s.uidOwner(m.key).uid] != m.key {
		return false
	}
	m.change(func(s *state) { s.ownsUID = true })
	return true
}

// SetProbing sets what the policies of a fleet need. Each member is probed for the policies that select it, and its
// clocks are judged under their ε: there is no verdict under any other one.
func (r *registry) SetProbing(fleet string, by []Probing) {
	r.mu.Lock()
	r.probing[fleet] = slices.Clone(by)
	r.mu.Unlock()
	for _, m := range r.of(fleet) {
		r.demandProbes(m)
	}
}

// demandProbes has a member probed for the policies that select it. The lock keeps two calls in order.
func (r *registry) demandProbes(m *member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.setProbing(r.probing[m.key.Fleet])
}

// Offsets are how far the clocks of the API servers are from the hub's now: of all members that have
// answered, each cluster once.
func (r *registry) Offsets() map[Key]skew.Interval {
	owners, offsets := r.owners(), map[Key]skew.Interval{}
	now := r.clock.Now()
	for _, m := range r.of("") {
		s := m.get()
		if owner, ok := owners[s.uidOwner(m.key).uid]; ok && owner != m.key {
			continue // the same cluster by another name
		}
		m.mu.Lock()
		offset, ok := m.skew.Offset(now)
		m.mu.Unlock()
		if ok {
			offsets[m.key] = offset
		}
	}
	return offsets
}
