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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

var (
	simSeeds = flag.Int("sim.seeds", 300, "how many `seeds` the simulation runs")
	simFrom  = flag.Uint64("sim.from", 1, "the first of them")
	simSeed  = flag.Uint64("sim.seed", 0, "replay this `seed` alone and print its whole trace")
	simKind  = flag.String("sim.kind", "", "play worlds of this `kind` alone, by the name of a special")
	simStop  = flag.Int("sim.stop", 20, "stop after so many `failures`")
	simOut   = flag.String("sim.out", "", "write the figures to this `file`")
)

// tellEvery is how often a long simulation tells how far it has come.
const tellEvery = 10 * time.Second

// simFigures is what -sim.out writes.
type simFigures struct {
	Seeds          int     `json:"seeds"`
	Overlaps       int     `json:"overlaps"`
	Stuck          int     `json:"stuck"`
	Needless       int     `json:"needlessChanges"`
	SeedsPerSecond float64 `json:"seedsPerSecond"`
}

// simulate runs one seed and returns what the oracle says. trace may be nil.
func simulate(seed uint64, trace io.Writer, crew *crew) (verdict oracle) {
	w := newWorld(seed, trace, crew)
	defer func() {
		if p := recover(); p != nil {
			w.stuck("panic: %v", p)
			w.say("ORACLE", "%s", debug.Stack())
			verdict = w.oracle
			crew.idle = nil // who knows where they are
		}
	}()
	w.play()
	return w.oracle
}

// replay runs one seed again and returns its trace.
func replay(seed uint64) (oracle, string) {
	var trace strings.Builder
	var crew crew
	defer crew.end()
	verdict := simulate(seed, &trace, &crew)
	return verdict, trace.String()
}

// TestSimulationReplays: everything that happens follows from the seed.
func TestSimulationReplays(t *testing.T) {
	log.SetLogger(logr.Discard())
	for seed := range uint64(20) {
		_, one := replay(seed + 1)
		_, two := replay(seed + 1)
		if one != two {
			t.Fatalf("seed %d ran in two ways", seed+1)
		}
	}
}

// tail is the end of a text.
func tail(s string, lines int) string {
	all := strings.SplitAfter(s, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}

// TestSimulation runs the hub's real decisions, publishers, tenure and the reader's rule
// under faults drawn from seeds: readers of two clusters never act together, epochs
// never fall, and once the faults are over every namespace gets its leader.
func TestSimulation(t *testing.T) {
	log.SetLogger(logr.Discard())
	defer debug.SetGCPercent(debug.SetGCPercent(2000)) // a world is 3 MB, and no use once it is over
	if *simSeed != 0 {
		verdict, trace := replay(*simSeed)
		fmt.Print(trace)
		if verdict.violation != "" {
			t.Fatalf("seed %d: %s", *simSeed, verdict.violation)
		}
		return
	}
	var next atomic.Uint64
	next.Store(*simFrom)
	var mu sync.Mutex
	var figures simFigures
	var terms, revoked, acknowledged, failed, together, mostWrites, mostLooks int
	begin := time.Now()
	told := begin
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			var crew crew
			defer crew.end()
			for {
				seed := next.Add(1) - 1
				if seed >= *simFrom+uint64(*simSeeds) {
					return
				}
				verdict := simulate(seed, nil, &crew)
				mu.Lock()
				figures.Seeds++
				terms += verdict.terms
				figures.Needless += verdict.needless
				together += verdict.together
				mostWrites, mostLooks = max(mostWrites, verdict.mostWrites), max(mostLooks, verdict.mostLooks)
				revoked += verdict.revoked
				acknowledged += verdict.acknowledged
				if verdict.overlap {
					figures.Overlaps++
				}
				if verdict.stuck {
					figures.Stuck++
				}
				show := false
				if verdict.violation != "" {
					failed++
					show = failed <= 3
					t.Errorf("seed %d: %s (replay with -sim.seed=%d)", seed, verdict.violation, seed)
				}
				if time.Since(told) >= tellEvery {
					told = time.Now()
					t.Logf("%d of %d seeds, %d overlaps, %d stuck, %.0f seeds/s", figures.Seeds, *simSeeds,
						figures.Overlaps, figures.Stuck, float64(figures.Seeds)/time.Since(begin).Seconds())
				}
				mu.Unlock()
				if show {
					_, trace := replay(seed)
					t.Logf("the end of seed %d:\n%s", seed, tail(trace, 40))
				}
				if failed >= *simStop {
					return
				}
			}
		})
	}
	wg.Wait()
	figures.SeedsPerSecond = float64(figures.Seeds) / time.Since(begin).Seconds()
	if figures.Seeds >= 300 && acknowledged == 0 {
		t.Error("no term was released by its readers: nothing of that is tried")
	}
	t.Logf("%d terms were revoked, %d of them released by their readers before the bound", revoked, acknowledged)
	t.Logf("two replicas could decide at once %d times; at most %d writes of one record and %d looks at it within a "+
		"second; %d needless changes",
		together, mostWrites, mostLooks, figures.Needless)
	t.Logf("%d seeds, %d terms, %d overlaps, %d stuck, %.0f seeds/s", figures.Seeds, terms, figures.Overlaps,
		figures.Stuck, figures.SeedsPerSecond)
	if *simOut != "" {
		writeFigures(t, *simOut, figures)
	}
}

func writeFigures(t *testing.T, path string, figures any) {
	data, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
