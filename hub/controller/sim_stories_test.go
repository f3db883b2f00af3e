package controller

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// TestStories plays traces that need several things in the right order, which seeds draw
// too seldom: in the worlds of the simulation, with its oracle, under many clocks, and with no other fault.
func TestStories(t *testing.T) {
	playWorlds(t)
	for name, happens := range map[string]func(w *world){
		"D is raised, lowered, and forgotten with the records while the leader is out of reach": func(w *world) {
			w.cutOff(w.longTerm(), 2*w.timings.Duration)
			w.setD(w.durations[0])
			w.loseRecords()
		},
		"D is raised and lowered, and both replicas end while the leader is out of reach": func(w *world) {
			w.cutOff(w.longTerm(), 2*w.timings.Duration)
			w.setD(w.durations[0])
			w.crash(w.replicas)
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
				if r.host.err(half); r.m == old.m {
					r.host.err(-half)
				}
			}
			for _, r := range w.replicas {
				r.host.err(0)
			}
			w.run(w.now + 2*w.timings.Renew)
			w.unlabelLeaders()
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
					w.cutOff(m, 2*w.timings.Duration)
				}
			}
			old.down = false
			for _, ns := range w.spaces {
				w.hub.putRecord(ns, before[ns])
			}
			w.crash(w.replicas)
		},
		"ε goes down while a leader is replaced whose clock was right under the larger one": func(w *world) {
			old, late := w.leader(w.spaces[0]).m, -w.timings.Skew/2
			for _, p := range w.procs {
				p.host.err(0)
			}
			for _, r := range w.readers {
				if r.m == old {
					r.host.err(late)
				}
			}
			w.run(w.now + 2*w.timings.Renew)
			w.setSkew(time.Millisecond)
			w.unlabelLeaders()
			w.run(w.now + 3*w.timings.Duration)
			for _, r := range w.readers {
				r.host.err(0) // before the old leader may lead again
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
			w.crash(w.replicas) // the next tenure finds Leases
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
		playAll(t, name, 50, func(seed uint64) *world {
			w := usualWorld(seed)
			switch {
			case w == nil:
			case w.h != time.Second: // a longer election hides what a grant forgets
				w.end()
				return nil
			default:
				w.playStory(happens)
			}
			return w
		})
	}
}

// playStory plays a story in a world without faults.
func (w *world) playStory(happens func(w *world)) {
	w.calmDown()
	happens(w)
	w.run(w.now + 2*w.timings.Duration + w.stops)
	w.heal()
	w.run(w.now + w.settle() + w.stops)
	if w.oracle.violation == "" && !w.jumped {
		w.judge()
	}
	w.end()
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

// await runs the world until something is so.
func (w *world) await(otherwise string, within time.Duration, is func() bool) {
	for limit := w.now + within; w.oracle.violation == ""; {
		if w.run(w.now + 100*time.Millisecond); is() {
			return
		}
		if w.now >= limit {
			w.stuck("%s although nothing is wrong", otherwise)
		}
	}
}

// lead waits until every namespace has a leader.
func (w *world) lead() {
	w.await("nobody leads", w.settle(), func() bool {
		return !slices.ContainsFunc(w.spaces, func(ns string) bool { return w.leader(ns) == nil })
	})
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

// slowLock is a world whose one lock is that of an old client-go without any timeout, and nothing else happens.
var slowLock = special{"", func(w *world) {
	w.spaces, w.kinds, w.quiet = w.spaces[:1], nil, true
	l := w.drawLock("slow")
	l.stockElector = stockElector{
		lease: 5 * time.Second, renew: 4 * time.Second, retry: time.Second, request: 5 * time.Second,
		reads: true, releases: true, unbounded: true,
	}
	w.locks, w.hanging = []*stockLock{l}, 0.4
	w.fenced = map[string][]v1alpha1.LockFence{policyNames[0]: {l.stated(0)}}
	w.homes, w.stops = w.fenced, stopTimeOf(l.stated(mostMore))
}}

// moreSpaces is such a world with another namespace, whose policy fences nothing.
var moreSpaces = special{"", func(w *world) {
	w.twoSpaces()
	both := w.spaces
	slowLock.draw(w)
	w.spaces = both
}}

// held runs a world until the lock is held where its leader is.
func (w *world) held() (holder *stock) {
	holder = w.stocks[0]
	w.await("nobody holds the lock", w.settle()+w.stops, func() bool {
		r := w.leader(w.spaces[0])
		i := slices.IndexFunc(w.stocks, func(s *stock) bool { return r != nil && s.m == r.m && s.works && s.fenced })
		if i >= 0 {
			holder = w.stocks[i]
		}
		return i >= 0
	})
	return holder
}

// cutOffHeld takes the leader away from the hub, and not from the holder of the lock.
func (w *world) cutOffHeld() {
	s, d := w.held(), 4*w.timings.Duration+2*w.stops
	s.m.away = w.now + d
	for _, r := range w.replicas {
		w.cutAs(r.proc, &s.m.machine, link{true, false}, d)
	}
	w.run(w.now + 10*time.Millisecond) // what was on its way has arrived
}

// TestStoriesOfLocks plays what makes a lock be held for longer than its policy says now, or where the policy that it
// moves to does not see it.
func TestStoriesOfLocks(t *testing.T) {
	playWorlds(t)
	for of, stories := range map[*special]map[string]func(w *world){
		&slowLock: {
			"the stop time falls while the leader is out of reach": func(w *world) {
				w.cutOffHeld()
				w.shorten(w.locks[0])
			},
			"the stop time falls while the leader is out of reach, and the elected replica ends": func(w *world) {
				w.cutOffHeld()
				w.shorten(w.locks[0])
				w.run(w.now + w.timings.Renew/2)
				w.killElected()
			},
			"the stop time falls while the leader is out of reach, and the records are lost": func(w *world) {
				w.cutOffHeld()
				w.shorten(w.locks[0])
				w.run(w.now + w.timings.Renew/2)
				w.loseRecords()
			},
			"the leader is out of reach, and a record from before its term is created again while no hub runs": func(w *world) {
				w.cutOffHeld()
				w.shorten(w.locks[0])
				w.crash(w.replicas)
				for _, ns := range w.spaces {
					w.createAgain(ns, w.hub.history[ns][0].record)
				}
			},
			// The hub reads the Lease, and then promises what never arrives.
			"the stop time falls while a webhook fails the hub's writes in the leader's cluster": func(w *world) {
				m := w.held().m
				w.run(w.now + 10*time.Millisecond)
				m.deny = func(key types.NamespacedName) error {
					if !w.faulty || key.Namespace == podSpace {
						return nil
					}
					return apierrors.NewInternalError(errRefused)
				}
				w.shorten(w.locks[0])
				w.run(w.now + 2*w.timings.Duration + w.stops)
			},
		},
		&moreSpaces: {
			"a lock moves to a policy whose namespace its holder's cluster lacks, and the fence is late there": func(w *world) {
				m, l, to := w.held().m, w.locks[0], w.spaces[1]
				w.toggleSpace(m, to)
				w.await("no other cluster leads", w.settle()+4*w.stops, func() bool {
					return w.leader(to) != nil && w.leader(to).m != m
				})
				w.refence(policyNames[0], nil)
				w.run(w.now + w.timings.Duration) // its fences are gone
				for _, s := range m.servers {
					s.policies = 2 * (w.timings.Duration + w.stops)
				}
				w.refence(policyNames[1], []v1alpha1.LockFence{l.stated(0)})
				w.run(w.now + stopTimeOf(l.stated(0))) // whom an earlier fence has admitted has stopped
				w.allFenced = true
				w.await("nobody holds the lock that has moved", w.settle()+4*w.stops, func() bool {
					return slices.ContainsFunc(w.stocks, func(s *stock) bool {
						return s.works && s.fenced && w.leader(to) != nil && s.m == w.leader(to).m
					})
				})
				for _, s := range m.servers {
					s.policies = slowestPolicies
				}
				w.allFenced = false // it moves back
			},
		},
	} {
		for name, happens := range stories {
			playAll(t, name, 40, func(seed uint64) *world {
				w := newWorldOf(of, seed, nil)
				w.playStory(happens)
				return w
			})
		}
	}
}
