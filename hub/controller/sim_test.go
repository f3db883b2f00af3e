package controller

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

var (
	simSeeds = flag.Int("sim.seeds", 300, "how many `seeds` the simulation runs")
	simFrom  = flag.Uint64("sim.from", 1, "the first of them")
	simSeed  = flag.Uint64("sim.seed", 0, "replay this `seed` alone and print its whole trace")
	simStop  = flag.Int("sim.stop", 20, "stop after so many `failures`")
	simOut   = flag.String("sim.out", "", "write the figures to this `file`")
)

// logEvery is how often a long simulation logs its progress.
const logEvery = 10 * time.Second

// simFigures is what -sim.out writes.
type simFigures struct {
	Seeds          int     `json:"seeds"`
	Overlaps       int     `json:"overlaps"`
	Stuck          int     `json:"stuck"`
	Needless       int     `json:"needlessChanges"`
	SeedsPerSecond float64 `json:"seedsPerSecond"`
}

// simulate runs one seed and returns the oracle's verdict. trace may be nil.
func simulate(seed uint64, trace io.Writer) (verdict oracle) {
	w := newWorld(seed, trace)
	defer func() {
		if p := recover(); p != nil {
			w.stuck("panic: %v", p)
			w.say("ORACLE", "%s", debug.Stack())
			verdict = w.oracle
		}
	}()
	w.play()
	return w.oracle
}

// replay runs one seed again and returns its trace.
func replay(seed uint64) (oracle, string) {
	var trace strings.Builder
	verdict := simulate(seed, &trace)
	return verdict, trace.String()
}

// playWorlds prepares a test that plays worlds. Each of them is 3 MB, and garbage once it is over, so memory is rarely
// collected until the test ends.
func playWorlds(t *testing.T) {
	log.SetLogger(logr.Discard())
	percent := 8000
	if raceDetector {
		percent = 2000
	}
	// What little stays of each world counts many times over.
	earlier, limit := debug.SetGCPercent(percent), debug.SetMemoryLimit(4<<30)
	t.Cleanup(func() {
		debug.SetGCPercent(earlier)
		debug.SetMemoryLimit(limit)
	})
}

// TestSimulationReplays: everything that happens follows from the seed.
func TestSimulationReplays(t *testing.T) {
	playWorlds(t)
	for seed := range uint64(20) {
		_, one := replay(seed + 1)
		_, two := replay(seed + 1)
		if one != two {
			t.Fatalf("seed %d ran in two ways", seed+1)
		}
	}
}

// TestSimulation runs the hub's real decisions, publishers, tenure and the reader's rule
// under faults drawn from seeds: readers of two clusters never act together, epochs
// never fall, and once the faults are over every namespace gets its leader.
func TestSimulation(t *testing.T) {
	playWorlds(t)
	if *simSeed != 0 {
		verdict, trace := replay(*simSeed)
		fmt.Print(trace)
		if verdict.violation != "" {
			t.Fatalf("seed %d: %s", *simSeed, verdict.violation)
		}
		return
	}
	s := simulation{T: t, begin: time.Now()}
	s.logged = s.begin
	s.next.Store(*simFrom)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(s.run)
	}
	wg.Wait()
	all := &s.total
	s.figures.Needless, s.figures.SeedsPerSecond = all.needless, s.rate()
	if s.figures.Seeds >= 300 && (all.acknowledged == 0 || all.unfenced == 0 || all.unguarded == 0) {
		t.Errorf("%d terms were released by their readers, %d unfenced and %d unguarded clusters were seen: nothing of what "+
			"is 0 is tried", all.acknowledged, all.unfenced, all.unguarded)
	}
	t.Logf("%d terms were revoked, %d of them released by their readers before the bound", all.revoked, all.acknowledged)
	t.Logf("two replicas could decide at once %d times; at most %d writes of one record and %d looks at it within a "+
		"second; %d needless changes", all.together, all.mostWrites, all.mostLooks, all.needless)
	t.Logf("%d seeds, %d terms, %d overlaps, %d stuck, %.0f seeds/s", s.figures.Seeds, all.terms, s.figures.Overlaps,
		s.figures.Stuck, s.figures.SeedsPerSecond)
	if *simOut != "" {
		writeFigures(t, *simOut, s.figures)
	}
}

// simulation runs many seeds.
type simulation struct {
	*testing.T
	begin time.Time
	next  atomic.Uint64 // seed

	mu      sync.Mutex // guards what follows
	figures simFigures
	total   oracle // the sums of all verdicts
	failed  int
	logged  time.Time
}

func (s *simulation) rate() float64 { return float64(s.figures.Seeds) / time.Since(s.begin).Seconds() }

// run runs seeds, one after the other, until all are done or too many have failed.
func (s *simulation) run() {
	for failed := 0; failed < *simStop; {
		seed := s.next.Add(1) - 1
		if seed >= *simFrom+uint64(*simSeeds) {
			return
		}
		verdict := simulate(seed, nil)
		if failed = s.add(seed, &verdict); verdict.violation != "" && failed <= 3 {
			_, trace := replay(seed)
			lines := strings.SplitAfter(trace, "\n")
			s.Logf("the end of seed %d:\n%s", seed, strings.Join(lines[max(0, len(lines)-40):], ""))
		}
	}
}

// add adds a verdict, and returns how many seeds have failed so far.
func (s *simulation) add(seed uint64, v *oracle) (failed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.figures.Seeds++
	if v.overlap {
		s.figures.Overlaps++
	}
	if v.stuck {
		s.figures.Stuck++
	}
	s.total.terms += v.terms
	s.total.needless += v.needless
	s.total.together += v.together
	s.total.revoked += v.revoked
	s.total.acknowledged += v.acknowledged
	s.total.unfenced += v.unfenced
	s.total.unguarded += v.unguarded
	s.total.mostWrites = max(s.total.mostWrites, v.mostWrites)
	s.total.mostLooks = max(s.total.mostLooks, v.mostLooks)
	if v.violation != "" {
		s.failed++
		s.Errorf("seed %d: %s (replay with -sim.seed=%d)", seed, v.violation, seed)
	}
	if time.Since(s.logged) >= logEvery {
		s.logged = time.Now()
		s.Logf("%d of %d seeds, %d overlaps, %d stuck, %.0f seeds/s", s.figures.Seeds, *simSeeds, s.figures.Overlaps,
			s.figures.Stuck, s.rate())
	}
	return s.failed
}

func writeFigures(t *testing.T, path string, figures any) {
	data, err := json.MarshalIndent(figures, "", "  ")
	musttest.Do(t, err)
	musttest.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	musttest.Do(t, os.WriteFile(path, append(data, '\n'), 0o644))
}

// playAll plays n worlds in a test of its own, and fails at the first violation. play plays the world of a seed, or
// returns nil where that is no world of the kind. The race detector makes worlds ten times as dear: with it a few
// show that nothing races, and make sim plays all.
func playAll(t *testing.T, name string, n uint64, play func(seed uint64) *world) {
	if raceDetector {
		n /= 10
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		played := uint64(0)
		for seed := uint64(1); played < n; seed++ {
			w := play(seed)
			if w == nil {
				continue
			}
			if played++; w.oracle.violation != "" {
				t.Fatalf("seed %d: %s", seed, w.oracle.violation)
			}
		}
	})
}

// usualWorld draws a world, and returns nil if it has anything special.
func usualWorld(seed uint64) *world {
	w := newWorld(seed, nil)
	if w.usual() {
		return w
	}
	w.end()
	return nil
}

// TestNarrowWorlds runs seeds of the simulation with a few faults that belong together, and
// much of those: a rule that only their coincidence breaks would need very many seeds that know
// all faults.
func TestNarrowWorlds(t *testing.T) {
	playWorlds(t)
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
		playAll(t, name, 280, func(seed uint64) *world {
			w := usualWorld(seed)
			if w == nil {
				return nil
			}
			w.kinds = slices.DeleteFunc(slices.Clone(allFaults), func(f fault) bool { return !slices.Contains(few, f.name) })
			if len(w.kinds) != len(few) {
				w.stuck("a fault has another name now")
			}
			w.calm, w.acknowledged = 2*time.Second, false
			w.late, w.veryLate, w.lateHub, w.stopAtReading = 0, 0, 0, 0
			w.play()
			return w
		})
	}
}
