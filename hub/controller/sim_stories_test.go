package controller

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// TestStories plays traces that need several things in the right order, which seeds draw
// too seldom: in the worlds of the simulation, with its oracle, under many clocks, and with no other fault.
func TestStories(t *testing.T) {
	log.SetLogger(logr.Discard())
	for name, happens := range map[string]func(w *world){
		"D is raised, lowered, and forgotten with the records while the leader is out of reach": func(w *world) {
			w.cutOff(w.longTerm())
			w.setD(w.durations[0])
			w.loseRecords()
		},
		"D is raised and lowered, and both replicas end while the leader is out of reach": func(w *world) {
			w.cutOff(w.longTerm())
			w.setD(w.durations[0])
			for _, r := range w.replicas {
				r.crash()
			}
		},
		// It wakes when its right to stamp is gone and the Lease still stands, which it alone can reach.
		"the elected replica is stopped at a reading, for longer than its tenure and shorter than a term": func(w *world) {
			w.stopAtReadings(w.timings.Duration * 2 / 3)
		},
		"the elected replica is stopped at a reading, for a little longer than its tenure": func(w *world) {
			w.stopAtReadings(w.h * 4 / 3)
		},
		// More than ε, or readers would not tell; less than that a reader takes the new stamp for one of the future.
		"the wall clock of the hub steps while a leader is replaced": func(w *world) {
			old, half := w.leader(w.spaces[0]), w.timings.Skew/2
			for _, r := range w.readers {
				if r.host.from = half; r.m == old.m {
					r.host.from = -half
				}
				r.host.to = r.host.from
			}
			for _, r := range w.replicas {
				r.host.from, r.host.to = 0, 0
			}
			w.run(w.now + 2*w.timings.Renew)
			w.drainAll()
			w.run(w.now + w.timings.Renew/2)
			w.jumped = true // nobody need lead as long as it lasts
			for _, r := range w.replicas {
				r.host.step(w.timings.Skew * 7 / 5)
			}
			// Something has the hub decide before it would look again by itself, as anything may.
			for limit := w.now + w.timings.Duration; w.now < limit; w.hubChanged() {
				w.run(w.now + w.timings.Skew/5)
			}
		},
		// All that is left to see is the Lease of the old leader, which says the same as the record.
		"the hub is restored to before a failover, and all but the old leader are out of reach": func(w *world) {
			before := map[string]*v1alpha1.NamespaceLeader{}
			for _, ns := range w.spaces {
				before[ns] = w.hub.records[ns].DeepCopy()
			}
			old := w.leader(w.spaces[0]).m
			old.down = true
			w.run(w.now + 2*w.timings.Duration)
			w.lead()
			w.run(w.now + 3*time.Second) // so that the seconds lead beyond the epoch that the hub forgets
			for _, m := range w.members {
				if m != old {
					w.cutOff(m)
				}
			}
			old.down = false
			for _, ns := range w.spaces {
				w.hub.putRecord(ns, before[ns])
			}
			for _, r := range w.replicas {
				r.crash()
			}
		},
		"ε goes down while a leader is replaced whose clock was right under the larger one": func(w *world) {
			old, late := w.leader(w.spaces[0]).m, -w.timings.Skew/2
			for _, r := range w.replicas {
				r.host.from, r.host.to = 0, 0
			}
			for _, r := range w.readers {
				r.host.from, r.host.to = 0, 0
				if r.m == old {
					r.host.from, r.host.to = late, late
				}
			}
			w.run(w.now + 2*w.timings.Renew)
			w.setSkew(time.Millisecond)
			w.drainAll()
			w.run(w.now + 3*w.timings.Duration)
			for _, r := range w.readers {
				r.host.from, r.host.to = 0, 0 // before the old leader may lead again
			}
		},
		// As the hub advises: delete it, or use another leaseName.
		"a foreign Lease is in the way in every cluster, and the policy is made again with another name": func(w *world) {
			for _, m := range w.members {
				for _, ns := range w.spaces {
					key := types.NamespacedName{Namespace: ns, Name: leaseNames[0]}
					_ = m.remove(key, nil) // there need not be one
					if _, err := m.create(key,
						&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a tenant")}}); err != nil {
						w.stuck("%v", err)
					}
				}
			}
			w.run(w.now + 4*w.timings.Duration)
			w.putPolicy(w.newPolicy("p1", 2, w.spaces, w.durations[0], leaseNames[1]))
		},
		"the policy goes after a takeover, for longer than anything is remembered, and comes back": func(w *world) {
			for _, r := range w.replicas {
				r.crash() // the next tenure finds Leases
			}
			w.lead()
			policies := w.hub.policies
			w.hub.policies = nil
			w.hubChanged()
			w.run(w.now + 4*w.timings.Duration)
			for _, ns := range w.spaces {
				versions := len(w.hub.history[ns])
				w.run(w.now + w.timings.Duration)
				if made := len(w.hub.history[ns]) - versions; made > 0 || w.hub.records[ns] != nil {
					w.stuck("%s: nobody manages it any more, and its record was written %d times", ns, made)
				}
			}
			w.hub.policies = policies
			w.hubChanged()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var crew crew
			defer crew.end()
			const shortest = time.Second // of the hub's election, so that it does not hide what a grant forgets
			played := uint64(0)
			for seed := uint64(1); played < worlds(50); seed++ {
				w := newWorld(seed, nil, &crew)
				if w.h != shortest || !w.usual() {
					w.end()
					continue
				}
				played++
				w.calmDown()
				happens(w)
				w.run(w.now + 2*w.timings.Duration)
				w.heal()
				w.run(w.now + w.settle())
				if w.oracle.violation == "" && !w.jumped {
					w.judge()
				}
				w.end()
				if w.oracle.violation != "" {
					t.Fatalf("seed %d: %s", seed, w.oracle.violation)
				}
			}
		})
	}
}

// calmDown takes away all faults, and waits until every namespace has a leader.
func (w *world) calmDown() {
	s := &w.scenario
	s.start, s.kinds, s.acknowledged = epoch0, nil, false
	s.late, s.veryLate, s.loss, s.twice, s.busy, s.broken = 0, 0, 0, 0, 0, 0
	s.lateHub, s.lateWatch, s.staleLists, s.stopAtReading = 0, 0, 0, 0
	for _, m := range w.members {
		for _, ns := range w.spaces {
			m.spaces[ns] = space{}
		}
		for _, wt := range m.watchers {
			wt.lateness = 0
		}
	}
	w.setD(w.durations[0])
	w.run(w.now + w.timings.Duration) // what is late already has arrived
	w.lead()
}

// lead waits until every namespace has a leader.
func (w *world) lead() {
	for limit := w.now + w.settle(); w.now < limit && w.oracle.violation == ""; {
		w.run(w.now + 100*time.Millisecond)
		led := true
		for _, ns := range w.spaces {
			led = led && w.leader(ns) != nil
		}
		if led {
			return
		}
	}
	w.stuck("nobody leads although nothing is wrong")
}

// longTerm has the leader of the first namespace renewed with the longest D, and returns its member.
func (w *world) longTerm() *member {
	w.setD(w.durations[len(w.durations)-1])
	w.run(w.now + 3*w.timings.Renew)
	leader := w.leader(w.spaces[0])
	if leader == nil {
		w.stuck("%s: nobody leads although nothing is wrong", w.spaces[0])
		return w.members[0]
	}
	return leader.m
}

// stopAtReadings stops the elected replica for so long at its next reading, while the others cannot reach the leader. A
// few times, because most readings are harmless.
func (w *world) stopAtReadings(d time.Duration) {
	for range 6 {
		m := w.longTerm()
		for _, r := range w.replicas {
			if r.working {
				r.stopNext = d
			} else {
				w.cutAs(r.proc, &m.machine, link{true, true}, 3*w.timings.Duration)
			}
		}
		w.run(w.now + 4*w.timings.Duration)
		w.lead()
	}
}

// cutOff takes a member's API server away. Its readers live on.
func (w *world) cutOff(m *member) {
	m.down = true
	w.after(2*w.timings.Duration, func() { m.down = false })
}
