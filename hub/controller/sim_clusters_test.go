package controller

import (
	"maps"
	"strconv"
	"strings"
	"time"
)

// rebuiltWorld has Clusters that are deleted, and made again for another cluster of the same name.
var rebuiltWorld = special{"Clusters are deleted, and made again for other clusters", func(w *world) {
	if w.chance(0.5) {
		w.drawLocks()
	}
	if w.chance(0.5) {
		w.only(func(f fault) bool { return hubsOwn(f) || strings.Contains(f.name, "priority") })
	}
	w.quiet = w.chance(0.5)
	w.kinds = append(w.kinds, rebuiltFault, rebuiltFault)
}}

// rebuiltFault deletes a Cluster, and makes it again a while later. What was behind it is another cluster then. The old
// one may be gone, or it goes on out of the hub's reach.
var rebuiltFault = fault{name: "a Cluster is deleted, and made again for another cluster", do: func(w *world) {
	i := w.rng.IntN(len(w.members))
	old := w.members[i]
	if w.hub.clusters[old.name].gone {
		return
	}
	w.setCluster(old.name, func(c *simCluster) { c.gone = true })
	if w.chance(0.5) {
		w.after(w.between(0, 3*time.Second), func() { w.endProcesses(old) })
	}
	w.after(w.between(500*time.Millisecond, 10*time.Second), func() { w.rebuild(i) })
}, edits: true}

// setCluster edits the Cluster of a name.
func (w *world) setCluster(name string, edit func(*simCluster)) {
	clusters := maps.Clone(w.hub.clusters)
	c := clusters[name]
	edit(&c)
	clusters[name] = c
	w.hub.clusters = clusters
	w.say("FAULT", "%s: %+v", name, c)
	w.hubChanged()
}

// endProcesses ends all readers and controllers of a member.
func (w *world) endProcesses(m *member) {
	for _, r := range w.readers {
		if r.m == m {
			r.crash()
		}
	}
	for _, s := range w.stocks {
		if s.m == m {
			s.crash()
		}
	}
}

// rebuild makes a Cluster again. The cluster behind it has a UID of its own, and no Leases yet.
func (w *world) rebuild(i int) {
	old := w.members[i]
	w.identities++
	m := w.newMember(i)
	m.uid += "-" + strconv.Itoa(w.identities)
	for ns := range old.spaces {
		m.spaces[ns] = space{}
	}
	m.generation = old.generation + 1
	w.members[i] = m
	for j, r := range w.readers {
		switch {
		case r.m != old:
		case r.alive: // it goes on, out of the hub's reach
			w.readers = append(w.readers, w.newReader(m, r.number, w.newClock()))
		default:
			w.readers[j] = w.newReader(m, r.number, w.newClock())
		}
	}
	for _, l := range w.locks {
		w.startStock(m, l)
	}
	w.setCluster(m.name, func(c *simCluster) { c.gone, c.generation = false, m.generation })
}

// follow has a replica reach the clusters that are behind the Clusters now.
func (r *replica) follow() {
	for i, ct := range r.contacts {
		m := r.w.members[i]
		if c := r.clusters[m.name]; c.gone || c.generation != m.generation || ct.m == m {
			continue
		}
		r.w.say(r.name, "reaches another cluster as %s", m.name)
		next := r.newContact(m)
		r.contacts[i] = next
		ct.detach(func() {
			next.probe()
			if r.working {
				r.spawn(next.attach)
			}
		})
	}
}
