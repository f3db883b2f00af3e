package election_test

import (
	"flag"
	"testing"
	"time"
)

var (
	simSeeds = flag.Uint64("sim.seeds", 2000, "how many `seeds` the simulation runs")
	simSeed  = flag.Uint64("sim.seed", 0, "run this `seed` alone")
)

// Under faults drawn from a seed, readers of two clusters never may act at the same true instant, and no act has a
// lower epoch than one before it. When the faults are over, the namespace gets a leader and keeps it.
func TestSimulation(t *testing.T) {
	const (
		faults = 30 * time.Second
		// The floor: what is promised at the end of the faults has to pass, once a hub is elected again.
		settles = simH + 8*time.Second + simSkew + 5*time.Second
		steady  = 5 * time.Second
	)
	terms := int64(0)
	from, to := uint64(1), *simSeeds
	if *simSeed != 0 {
		from, to = *simSeed, *simSeed
	}
	for seed := from; seed <= to; seed++ {
		w := newSim(seed)
		if *simSeed != 0 {
			w.trace = t.Logf
		}
		for w.now < faults && w.problem == "" {
			w.step()
		}
		w.heal()
		for w.now < faults+settles && w.problem == "" {
			w.step()
		}
		leader := w.record.Leader
		for w.now < faults+settles+steady && w.problem == "" {
			if w.step(); len(w.acted) != 1 || w.acted[leader] != w.record.Epoch {
				w.failUnlessForgetful("acting: %v, record %+v", w.acted, w.record)
			}
		}
		if w.problem != "" {
			t.Errorf("seed %d: %s (run it alone with -sim.seed=%d)", seed, w.problem, seed)
		}
		terms += w.record.Epoch - 10
	}
	t.Logf("%d seeds, %d terms", to-from+1, terms)
}
