package controller

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/worker"
)

// fault is something that happens to the world.
type fault struct {
	name string
	do   func(*world)
	// member says that it concerns what is in members or on the way to them, loses that
	// it takes records away.
	member, loses bool
	clock         bool // of a host, outside the promise
	edits         bool // an operator asks for something else
}

// pick draws one of several.
func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// toReplica is what happens to a replica that lives.
func toReplica(do func(*world, *replica)) func(*world) {
	return func(w *world) {
		if alive := w.living(); len(alive) > 0 {
			do(w, pick(w.rng, alive))
		}
	}
}

var allFaults = []fault{
	{name: "a replica is stopped", do: toReplica(func(w *world, r *replica) { r.freeze(w.longOrShort(), nil) })},
	{name: "the elected replica is stopped at its next reading, the others are cut off from a member", do: func(w *world) {
		m, d := pick(w.rng, w.members), w.between(w.h, 2*w.h+w.timings.Duration)
		for _, r := range w.living() {
			if r.working {
				r.stopNext = d
			} else {
				w.cutAs(r.proc, &m.machine, link{true, true}, d+w.timings.Duration)
			}
		}
	}, member: true},
	{name: "a replica is killed", do: toReplica(func(_ *world, r *replica) { r.crash() })},
	{name: "a replica is asked to end", do: toReplica(func(_ *world, r *replica) { r.stopping = true })},
	{name: "the elected replica ends and does not hear of it, while the leaders' labels go", do: func(w *world) {
		for _, r := range w.elected() {
			r.stopping, r.deaf = true, true
		}
		w.after(w.h/4, w.unlabelLeaders)
	}, edits: true},
	{name: "the elected replica loses its election, is stopped before it gives it up, and the leaders' labels go " +
		"when it has", do: func(w *world) {
		for _, r := range w.elected() {
			w.cutAs(r.proc, &w.hub.machine, link{true, true}, w.h)
			r.stopAtEnd = w.between(w.h, 2*w.h)
		}
	}, edits: true},
	{name: "D goes up, the elected replica is killed, D goes down, and the leaders' labels go", do: func(w *world) {
		w.setD(w.durations[len(w.durations)-1])
		w.soon(w.timings.Renew, 3*w.timings.Renew, func() {
			w.killElected()
			w.setD(w.durations[0])
			w.unlabelLeaders()
		})
	}, edits: true},
	{name: "a replica is cut off from a member", do: toReplica(func(w *world, r *replica) {
		w.cut(&pick(w.rng, w.members).machine, r)
	}), member: true},
	{name: "a replica is cut off from the hub's API server", do: toReplica(func(w *world, r *replica) {
		w.cut(&w.hub.machine, r)
	})},
	{name: "a member is cut off from all replicas", do: func(w *world) {
		w.cut(&pick(w.rng, w.members).machine, w.living()...)
	}, member: true},
	{name: "an API server of a member is stopped", do: func(w *world) {
		pick(w.rng, w.members).frozen = w.now + w.between(100*time.Millisecond, 12*time.Second)
	}, member: true},
	{name: "the API server of the hub is stopped", do: func(w *world) {
		w.hub.frozen = w.now + w.between(100*time.Millisecond, 12*time.Second)
	}},
	{name: "an API server of a member is down", do: func(w *world) {
		w.cutOff(pick(w.rng, w.members), w.between(100*time.Millisecond, 12*time.Second))
	}, member: true},
	{name: "a reader restarts", do: func(w *world) { w.restartReader(w.rng.IntN(len(w.readers))) }},
	{name: "a reader leaves in order, and another comes", do: func(w *world) {
		i := w.rng.IntN(len(w.readers))
		r := w.readers[i]
		r.leave(func() {
			if w.readers[i] == r {
				w.restartReader(i)
			}
		})
	}},
	{name: "the wall clock of a reader's host steps back", do: func(w *world) {
		w.jumped = true
		pick(w.rng, w.readers).host.jump = -time.Hour
	}, clock: true},
	{name: "a reader's watch repeats itself while its wall clock is behind", do: func(w *world) {
		r, d := pick(w.rng, w.readers), 2*w.timings.Duration
		if r.wt == nil || r.host.jump != 0 || r.muted {
			return // what a reader has only ever seen with a wrong clock is outside the promise
		}
		r.host.jump, r.muted = -w.between(2*w.timings.Skew, w.timings.Duration), true
		for range 20 {
			r.after(w.between(0, d), func() {
				for _, key := range sortedKeys(r.wt.view) {
					r.seen(r.wt.view[key])
				}
			})
		}
		w.after(d, func() {
			r.host.jump = 0
			r.hear()
		})
	}, clock: true},
	{name: "the wall clock of the elected replica's host steps forward", do: func(w *world) {
		if rs := w.elected(); len(rs) > 0 {
			w.ahead = true // epochs follow the seconds
			rs[0].host.step(time.Hour)
			if w.chance(0.7) { // and is put right soon
				w.after(w.between(10*time.Millisecond, 2*time.Second), func() { rs[0].host.step(0) })
			}
		}
	}, clock: true},
	{name: "a reader is stopped", do: func(w *world) { pick(w.rng, w.readers).freeze(w.longOrShort(), nil) }},
	{name: "a watch breaks", do: func(w *world) {
		if ws := pick(w.rng, w.members).watchers; len(ws) > 0 {
			pick(w.rng, ws).relist(w.staleBy())
		}
	}},
	priorityFault,
	{name: "a priority label comes or goes", do: func(w *world) {
		w.editCluster(w.someCluster(), func(c *simCluster) { c.label = !c.label })
	}, edits: true},
	{name: "a Cluster is paused or unpaused", do: func(w *world) {
		w.editCluster(w.someCluster(), func(c *simCluster) { c.paused = !c.paused })
	}, edits: true},
	drainFault,
	freezeFault, fenceFault, moveFault, rebalanceFault, overrideFault, requireFault,
	{name: "the policy is deleted or made again", do: (*world).togglePolicy, edits: true},
	{name: "the policy is edited", do: (*world).editPolicy, edits: true},
	{name: "a Lease is deleted", do: func(w *world) {
		m := pick(w.rng, w.members)
		if keys := m.copyKeys(); len(keys) > 0 {
			_ = m.remove(pick(w.rng, keys), nil)
		}
	}, member: true},
	{name: "a Lease is edited", do: (*world).editLease, member: true},
	{name: "a namespace goes or comes", do: func(w *world) {
		w.toggleSpace(pick(w.rng, w.members), pick(w.rng, w.spaces))
	}, member: true},
	{name: "a member is restored", do: (*world).restoreMember, member: true},
	{name: "the Lease of the hub's election is deleted", do: (*world).loseElection},
	{name: "the Lease of the hub's election is deleted, and again when another replica has made it", do: func(w *world) {
		for _, r := range w.elected() { // it hears of it last
			w.cutAs(r.proc, &w.hub.machine, link{true, true}, w.between(w.h/3, w.h))
		}
		w.loseElection()
		w.soon(10*time.Millisecond, w.h, w.loseElection)
	}},
	{name: "the Lease of the hub's election is deleted, who makes it anew ends, and the leaders' labels go",
		do: func(w *world) {
			for _, r := range w.living() {
				if r.working { // it renews for as long as it may
					w.cutAs(r.proc, &w.hub.machine, link{true, true}, 2*w.h)
				} else {
					r.stopping = true
				}
			}
			w.loseElection()
			w.soon(w.h/3, w.h, w.unlabelLeaders)
		}, edits: true},
	{name: "the Lease of the hub's election is edited", do: (*world).editElection},
	deadReader,
	reattach,
	{name: "a record is deleted, created again, or labelled", do: func(w *world) { w.touchRecord(pick(w.rng, w.spaces)) },
		loses: true},
	{name: "the records are lost", do: (*world).loseRecords, loses: true},
}

// priorityFault has people ask for another leader.
var priorityFault = fault{name: "a priority is edited", do: func(w *world) {
	w.editCluster(w.someCluster(), func(c *simCluster) { c.priority = int32(w.rng.IntN(4)) })
}, edits: true}

// longOrShort draws how long a process is stopped, or a link is cut.
func (w *world) longOrShort() time.Duration { return w.between(50*time.Millisecond, 15*time.Second) }

// living returns the replicas that live.
func (w *world) living() []*replica {
	return slices.DeleteFunc(slices.Clone(w.replicas), func(r *replica) bool { return !r.alive })
}

// elected returns the replicas that live and are elected: one, or one for each installation.
func (w *world) elected() []*replica {
	return slices.DeleteFunc(w.living(), func(r *replica) bool { return !r.working })
}

// killElected kills the elected replica.
func (w *world) killElected() { w.crash(w.elected()) }

// crash kills replicas.
func (w *world) crash(replicas []*replica) {
	for _, r := range replicas {
		r.crash()
	}
}

// restartReader has a reader end, and another one begin in its place.
func (w *world) restartReader(i int) {
	r := w.readers[i]
	r.crash()
	r.host.jump = 0 // a reader that begins with a wrong clock is outside the promise
	w.readers[i] = w.newReader(r.m, r.number, r.host)
}

// cut cuts some replicas off from a server, one way or both, for a while.
func (w *world) cut(m *machine, from ...*replica) {
	l := link{noRequests: w.chance(0.6), noAnswers: w.chance(0.6)}
	if l == (link{}) {
		l = link{true, true}
	}
	d := w.between(500*time.Millisecond, 15*time.Second)
	for _, r := range from {
		w.cutAs(r.proc, m, l, d)
	}
}

func (w *world) cutAs(p *proc, m *machine, l link, d time.Duration) {
	*p.link(m) = l
	w.after(d, func() { *p.link(m) = link{} })
}

// cutOff takes a member's API server away for a while. Its readers live on.
func (w *world) cutOff(m *member, d time.Duration) {
	m.down = true
	w.after(d, func() { m.down = false })
}

// someCluster draws the name of a Cluster.
func (w *world) someCluster() string { return pick(w.rng, w.members).name }

// editCluster edits a Cluster, and tells the replicas.
func (w *world) editCluster(name string, edit func(*simCluster)) {
	w.setClusters([]string{name}, edit)
	w.hubChanged()
}

// setClusters edits those Clusters of some names that exist.
func (w *world) setClusters(names []string, edit func(*simCluster)) {
	clusters := maps.Clone(w.hub.clusters)
	for _, name := range names {
		if c, exists := clusters[name]; exists {
			edit(&c)
			clusters[name] = c
			w.say("FAULT", "%s: %+v", name, c)
		}
	}
	w.hub.clusters = clusters
}

// unlabelLeaders takes the labels of all leaders away.
func (w *world) unlabelLeaders() {
	if !w.faulty {
		return
	}
	for _, ns := range w.spaces {
		if r := w.hub.records[ns]; r != nil {
			w.setClusters([]string{r.Spec.Leader}, func(c *simCluster) { c.label = false })
		}
	}
	w.hubChanged()
}

// setD changes the D of all policies.
func (w *world) setD(seconds int32) {
	w.setTimings(func(t *v1alpha1.Timings) { t.LeaseDurationMilliseconds = 1000 * seconds })
}

// setSkew changes the ε of all policies.
func (w *world) setSkew(skew time.Duration) {
	w.setTimings(func(t *v1alpha1.Timings) { t.MaxClockSkewMilliseconds = int32(skew / time.Millisecond) })
}

func (w *world) setTimings(set func(*v1alpha1.Timings)) {
	for _, p := range w.hub.policies {
		w.editPolicyNamed(p.Name, func(p *v1alpha1.LeadershipPolicy) { set(&p.Spec.Timings) })
	}
}

// editLease changes a Lease in a way that lets nobody act who could not before: the guard
// in the member refuses everything else.
func (w *world) editLease() {
	m := pick(w.rng, w.members)
	keys := m.copyKeys()
	if len(keys) == 0 {
		return
	}
	key := pick(w.rng, keys)
	obj := m.leases[key].DeepCopy()
	switch w.rng.IntN(6) {
	case 0:
		delete(obj.Labels, v1alpha1.ManagedLabel)
	case 1:
		obj.Spec.HolderIdentity = new(string)
	case 2:
		obj.Annotations[v1alpha1.SealAnnotation] = "v1.forged"
	case 3:
		obj.Spec.AcquireTime.Time = obj.Spec.AcquireTime.Add(-time.Hour)
	case 4:
		obj.Spec.RenewTime.Time = obj.Spec.RenewTime.Add(-time.Minute)
	case 5:
		*obj.Spec.LeaseDurationSeconds = 1
	}
	m.put(key, obj, obj.UID)
}

func (m *member) makeSpace(ns string) {
	m.uids++
	m.spaces[ns] = space{uid: m.uids}
}

func (w *world) toggleSpace(m *member, ns string) {
	s, ok := m.spaces[ns]
	if !ok {
		m.makeSpace(ns)
		m.spacesChanged()
		return
	}
	if s.terminating {
		return
	}
	s.terminating = true
	m.spaces[ns] = s
	m.spacesChanged()
	w.after(w.between(10*time.Millisecond, 3*time.Second), func() {
		if s, ok := m.spaces[ns]; !ok || !s.terminating {
			return // restored meanwhile
		}
		for _, key := range sortedKeys(m.leases) {
			if key.Namespace == ns {
				_ = m.remove(key, nil)
			}
		}
		delete(m.spaces, ns)
		m.spacesChanged()
	})
}

// restoreMember goes back to a state of some time ago.
func (w *world) restoreMember() {
	m, then := pick(w.rng, w.members), w.now
	restore := m.snapshot()
	w.soon(100*time.Millisecond, 10*time.Second, func() {
		if w.promised(m, then) {
			w.say("FAULT", "%s is as it was at %.4f", m.name, then.Seconds())
			restore()
		}
	})
}

// touchRecord is what the API server lets others do to a record.
func (w *world) touchRecord(ns string) {
	r := w.hub.records[ns].DeepCopy()
	if r == nil {
		return
	}
	switch w.rng.IntN(3) {
	case 0:
		w.hub.putRecord(ns, nil)
	case 1:
		w.createAgain(ns, pick(w.rng, w.hub.history[ns]).record)
	case 2:
		r.Annotations = map[string]string{"touched": w.now.String()}
		w.hub.putRecord(ns, r)
	}
}

// createAgain replaces a record by one of a backup.
func (w *world) createAgain(ns string, backup *v1alpha1.NamespaceLeader) {
	w.hub.putRecord(ns, nil)
	if backup == nil {
		return
	}
	r := backup.DeepCopy()
	w.hub.uids++
	r.UID, r.Status = types.UID("r"+strconv.Itoa(w.hub.uids)), v1alpha1.NamespaceLeaderStatus{}
	w.hub.putRecord(ns, r)
}

// loseRecords is a restore of the management cluster from a backup without records: other processes begin.
func (w *world) loseRecords() {
	w.crash(w.replicas)
	if w.chance(0.5) {
		w.hub.leases = map[types.NamespacedName]*coordinationv1.Lease{}
	}
	for _, ns := range w.spaces {
		if w.hub.records[ns] != nil {
			w.hub.putRecord(ns, nil)
		}
	}
}

// heal ends all faults.
func (w *world) heal() {
	w.faulty = false
	w.say("FAULT", "no more faults")
	w.setClusters(slices.Sorted(maps.Keys(w.hub.clusters)), func(c *simCluster) {
		c.label, c.paused, c.drained, c.fenced = true, false, 0, "" // one that is gone is made again soon
	})
	w.hub.frozen, w.hub.down = 0, false
	w.restorePolicies()
	w.hubChanged()
	for _, m := range w.members {
		m.frozen, m.down, m.unfenceable, m.unguarded, m.away = 0, false, 0, 0, 0
		m.required = worker.Required{}
		for _, s := range m.servers {
			s.until = 0
		}
		for _, ns := range w.spaces {
			if s := m.spaces[ns]; s.terminating {
				s.terminating = false
				m.spaces[ns] = s
			}
		}
		for _, ns := range w.spaces {
			if _, ok := m.spaces[ns]; !ok && m.index == 0 {
				m.makeSpace(ns)
			}
		}
		m.spacesChanged()
	}
	for _, r := range w.replicas {
		clear(r.links)
		if r.host.jump != 0 {
			r.host.step(0)
		}
	}
	for _, r := range w.readers {
		clear(r.links)
	}
}
