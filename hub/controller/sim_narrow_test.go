package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/reason"
)

// worlds is how many of all worlds a test plays. The race detector makes them ten times as dear: with it a few show
// that nothing races, and make sim plays all.
func worlds(all uint64) uint64 {
	if raceDetector {
		return all / 10
	}
	return all
}

// TestNarrowWorlds runs seeds of the simulation with a few faults that belong together, and
// much of those: a rule that only their coincidence breaks would need very many seeds that know
// all faults.
func TestNarrowWorlds(t *testing.T) {
	log.SetLogger(logr.Discard())
	for name, few := range map[string][]string{
		"a replica that stamps is stopped, and others cannot reach the leader": {
			"the elected replica is stopped at its next reading, the others are cut off from a member",
			"a member is cut off from all replicas",
		},
		"the Lease of the hub's election is lost, while leaders change": {
			"the Lease of the hub's election is deleted, and again when another replica has made it",
			"the Lease of the hub's election is deleted, who makes it anew ends, and the leaders' labels go",
			"a replica is cut off from the hub's API server",
			"a priority label comes or goes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var crew crew
			defer crew.end()
			for seed := uint64(1); seed <= worlds(500); seed++ {
				w := newWorld(seed, nil, &crew)
				if !w.usual() {
					w.end()
					continue
				}
				w.kinds = nil
				for _, f := range allFaults {
					if slices.Contains(few, f.name) {
						w.kinds = append(w.kinds, f)
					}
				}
				if len(w.kinds) != len(few) {
					t.Fatal("a fault has another name now")
				}
				w.calm, w.acknowledged = 2*time.Second, false
				w.late, w.veryLate, w.lateHub, w.stopAtReading = 0, 0, 0, 0
				w.play()
				if w.oracle.violation != "" {
					t.Fatalf("seed %d: %s", seed, w.oracle.violation)
				}
			}
		})
	}
}

// TestSpecialWorlds runs seeds of each special kind of world, of which the simulation draws only some.
func TestSpecialWorlds(t *testing.T) {
	log.SetLogger(logr.Discard())
	for _, of := range specials {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			var crew crew
			defer crew.end()
			for seed := uint64(1); seed <= worlds(100); seed++ {
				w := newWorldOf(&of.special, seed, nil, &crew)
				w.play()
				if w.oracle.violation != "" {
					t.Fatalf("seed %d: %s", seed, w.oracle.violation)
				}
			}
		})
	}
}

// TestUnfencedAndUnguardedWorlds looks for clusters that are known to be without their fences, and without the guard.
func TestUnfencedAndUnguardedWorlds(t *testing.T) {
	log.SetLogger(logr.Discard())
	var crew crew
	defer crew.end()
	for _, want := range []reason.Reason{reason.Unfenced, reason.Unguarded} {
		seen := false
		for seed := uint64(1); seed <= worlds(100) && !seen; seed++ {
			w := newWorldOf(&unfenceableWorld, seed, nil, &crew)
			w.play()
			seen = w.oracle.candidates[want]
		}
		if !seen {
			t.Errorf("no record says of a cluster that it is %s", want)
		}
	}
}
