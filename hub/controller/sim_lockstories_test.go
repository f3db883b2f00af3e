package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

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

// await runs a world until something is so.
func (w *world) await(otherwise string, is func() bool) {
	for limit := w.now + w.settle() + 4*w.stops; !is() && w.oracle.violation == ""; w.run(w.now + 100*time.Millisecond) {
		if w.now > limit {
			w.stuck("%s although nothing is wrong", otherwise)
		}
	}
}

// held runs a world until the lock is held where its leader is.
func (w *world) held() *stock {
	for limit := w.now + w.settle() + w.stops; w.now < limit; w.run(w.now + 100*time.Millisecond) {
		for _, s := range w.stocks {
			if r := w.leader(w.spaces[0]); r != nil && s.m == r.m && s.works && s.fenced {
				return s
			}
		}
	}
	w.stuck("nobody holds the lock although nothing is wrong")
	return w.stocks[0]
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

// TestStoriesOfLocks plays what makes a lock be held for longer than its policy says now.
func TestStoriesOfLocks(t *testing.T) {
	playStories(t, &slowLock, map[string]func(w *world){
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
			for _, r := range w.replicas {
				r.crash()
			}
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
	})
}

// TestStoriesOfMovedLocks plays what makes a lock be held where the policy that it moves to does not see it.
func TestStoriesOfMovedLocks(t *testing.T) {
	playStories(t, &moreSpaces, map[string]func(w *world){
		"a lock moves to a policy whose namespace its holder's cluster lacks, and the fence is late there": func(w *world) {
			m, l, to := w.held().m, w.locks[0], w.spaces[1]
			w.toggleSpace(m, to)
			w.await("no other cluster leads", func() bool { r := w.leader(to); return r != nil && r.m != m })
			w.refence(policyNames[0], nil)
			w.run(w.now + w.timings.Duration) // its fences are gone
			for _, s := range m.servers {
				s.policies = 2 * (w.timings.Duration + w.stops)
			}
			w.refence(policyNames[1], []v1alpha1.LockFence{l.stated(0)})
			w.run(w.now + stopTimeOf(l.stated(0))) // whom an earlier fence has admitted has stopped
			w.allFenced = true
			w.await("nobody holds the lock that has moved", func() bool {
				return slices.ContainsFunc(w.stocks, func(s *stock) bool {
					return s.works && s.fenced && w.leader(to) != nil && s.m == w.leader(to).m
				})
			})
			for _, s := range m.servers {
				s.policies = slowestPolicies
			}
			w.allFenced = false // it moves back
		},
	})
}

// playStories plays each story in worlds of a kind, with the oracle, under many clocks.
func playStories(t *testing.T, of *special, stories map[string]func(w *world)) {
	log.SetLogger(logr.Discard())
	for name, happens := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var crew crew
			defer crew.end()
			for seed := uint64(1); seed <= worlds(40); seed++ {
				w := newWorldOf(of, seed, nil, &crew)
				w.calmDown()
				happens(w)
				w.run(w.now + 2*w.timings.Duration + w.stops)
				w.heal()
				w.run(w.now + w.settle() + w.stops)
				if w.oracle.violation == "" {
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
