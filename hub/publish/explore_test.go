package publish

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasecast/leasecast/api/lease"
)

var (
	exploreAll = flag.Bool("explore.all", false, "explore the wide scopes too, and look for all breakages")
	exploreOut = flag.String("explore.out", "", "write the figures to this `file`")
)

// exploreMost is how many states one scope may have: some 100 bytes of each are kept, and more of those at the front.
const exploreMost = 1_500_000

// narrow is a settled world with two members, D of 4 ticks and ε of one. Clocks are wrong by -ε/2 or ε/2. The clocks
// of the replicas are given as ticks ahead of the slowest one.
func narrow(name string, a, b int) scope {
	return scope{
		name: name, d: 4, skew: 1, sites: 2, ticks: afterAnyTick, terms: 2, sights: 1, wrong: [replicas]int{a, b},
		start: inOrder,
	}
}

// changed is a scope with a change.
func (s scope) changed(change func(*scope)) scope {
	change(&s)
	return s
}

func faults(n, ticks int) func(*scope) {
	return func(s *scope) { s.faults, s.ticks = n, ticks }
}

// kind is one kind of fault.
type kind struct {
	name  string
	moves []what
}

var (
	stall      = kind{"a stall", []what{stalls}}
	crash      = kind{"a crash", []what{crashes}}
	release    = kind{"a release", []what{releases}}
	lostWrite  = kind{"a lost write", []what{lost, drops}}
	lostRecord = kind{"a lost record", []what{rulingLost}}
	kinds      = []kind{stall, crash, release, lostWrite, lostRecord}
)

// afterAnyTick is a depth that no closed scope reaches.
const afterAnyTick = 40

// only allows so many faults of these kinds and no others. A scope in which one fault of any kind may happen has the
// states that those with one kind each have together.
func only(n int, ks ...kind) func(*scope) {
	return func(s *scope) {
		s.faults, s.ticks, s.without = n, afterAnyTick, nil
		for _, k := range kinds {
			if !slices.ContainsFunc(ks, func(o kind) bool { return o.name == k.name }) {
				s.without = append(s.without, k.moves...)
			}
		}
	}
}

// everyDay are the reduced scopes of `make test`.
func everyDay() []scope {
	var all []scope
	for a := range 2 {
		all = append(all,
			narrow(fmt.Sprintf("no fault, A %+d", a), a, 0).changed(faults(0, afterAnyTick)),
			narrow(fmt.Sprintf("a fault, A %+d, B %+d", a, 1-a), a, 1-a).changed(faults(1, 3)))
	}
	return append(all, narrow("a registered reader, A +1", 1, 0).changed(acknowledged()).changed(noNewcomer))
}

// allScopes are those of `make explore`.
func allScopes() []scope {
	var all []scope
	add := func(s scope, change func(*scope)) { all = append(all, s.changed(change)) }
	for a := range 3 { // -ε/2, 0 and ε/2, until nothing new comes
		add(narrow(fmt.Sprintf("no fault, D 5, ε 2, A %+d", a), a, 0), func(s *scope) { s.d, s.skew = 5, 2 })
	}
	for a := range 2 {
		add(narrow(fmt.Sprintf("no fault, A %+d", a), a, 0), faults(0, afterAnyTick))
		add(narrow(fmt.Sprintf("cold, A %+d", a), a, 0), func(s *scope) { s.start = cold })
		add(narrow(fmt.Sprintf("record lost, A %+d", a), a, 0), func(s *scope) { s.start = unrecorded })
		for b := range 2 {
			add(narrow(fmt.Sprintf("a fault, A %+d, B %+d", a, b), a, b), faults(1, afterAnyTick))
			add(narrow(fmt.Sprintf("two faults, A %+d, B %+d", a, b), a, b), faults(2, 2))
		}
		add(narrow(fmt.Sprintf("a registered reader and a newcomer, A %+d", a), a, 0), acknowledged())
	}
	add(narrow("two crashes, A +1, B +0", 1, 0), only(2, crash))
	add(narrow("two faults, the leader must go, A +1, B +0", 1, 0), func(s *scope) {
		s.faults, s.ticks, s.without = 2, afterAnyTick, []what{decidesFit}
	})
	for _, k := range []kind{stall, crash, lostWrite} {
		add(narrow("a registered reader, "+k.name+", A +1", 1, 0).changed(acknowledged(k)), noNewcomer)
	}
	add(narrow("three members, A +1", 1, 0), func(s *scope) { s.sites = 3 })
	add(narrow("three members, a crash, the leader must go, A +1", 1, 0).changed(only(1, crash)), func(s *scope) {
		s.sites, s.without = 3, append(s.without, decidesFit)
	})
	add(narrow("three terms, A +1", 1, 0), func(s *scope) { s.terms = 3 })
	add(narrow("slow answers, A +1", 1, 0), func(s *scope) { s.slowAnswers = true })
	add(narrow("steps, watches, older Leases, A +1", 1, 0), func(s *scope) {
		s.steps, s.watch, s.sights = true, true, 3
	})
	add(narrow("a fault, steps, watches, any order, A +1", 1, 0), func(s *scope) {
		s.steps, s.watch, s.anyOrder, s.faults, s.ticks = true, true, true, 1, 3
	})
	return all
}

// explored are the figures of one scope.
type explored struct {
	Scope string `json:"scope"`
	findings
	Seconds float64 `json:"seconds"`
}

// report is what -explore.out writes.
type report struct {
	States      int        `json:"states"`
	Transitions int        `json:"transitions"`
	Depth       int        `json:"depth"`
	Violations  int        `json:"violations"`
	Breakages   int        `json:"breakages"`
	Found       int        `json:"found"`
	Scopes      []explored `json:"scopes"`
	Broken      []explored `json:"broken,omitempty"`
}

// TestExploration looks at every state of small worlds: in none of them may readers of two clusters act at the same
// instant, or in one epoch, or in one that fell.
func TestExploration(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	scopes := everyDay()
	if *exploreAll {
		scopes = allScopes()
	}
	var r report
	r.Scopes = inParallel(scopes, func(s scope) explored { return mustHold(t, s) })
	for _, x := range r.Scopes {
		r.States, r.Transitions, r.Depth = r.States+x.States, r.Transitions+x.Transitions, max(r.Depth, x.Depth)
		if x.violation != "" {
			r.Violations++
		}
	}
	t.Logf("%d scopes: %d states, %d transitions, depth %d, %d violations", len(scopes), r.States, r.Transitions, r.Depth,
		r.Violations)
	if *exploreAll {
		r.Broken = inParallel(slices.Sorted(maps.Keys(breakages)), func(name string) explored {
			began := time.Now()
			return explored{name, mustFind(t, name, breakages[name]), time.Since(began).Seconds()}
		})
		for _, x := range r.Broken {
			if r.Breakages++; x.violation != "" {
				r.Found++
			}
		}
		t.Logf("%d of %d breakages found", r.Found, r.Breakages)
	}
	if *exploreOut != "" {
		writeReport(*exploreOut, r)
	}
}

// mustHold explores a scope and prints what there was.
func mustHold(t *testing.T, s scope) explored {
	t.Helper()
	began := time.Now()
	f, err := newExplorer(s).explore(exploreMost)
	if err != nil {
		t.Error(err)
	}
	x := explored{s.name, f, time.Since(began).Seconds()}
	t.Logf("%-42s %8d states %9d transitions, depth %2d, %2d ticks, takeovers %d, %s, %.1f s", s.name, f.States,
		f.Transitions, f.Depth, f.Ticks, f.Takeovers, f.end(), x.Seconds)
	if f.violation != "" {
		t.Errorf("%s: %s\n  %s", s.name, f.violation, f.story())
	}
	return x
}

// inParallel does something with each, as many at once as there are processors, and keeps the order.
func inParallel[T, R any](each []T, do func(T) R) []R {
	results := make([]R, len(each))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range each {
		group.Go(func() error { results[i] = do(each[i]); return nil })
	}
	must(group.Wait())
	return results
}

func writeReport(path string, r report) {
	data, err := json.MarshalIndent(r, "", "  ")
	must(err)
	must(os.MkdirAll(filepath.Dir(path), 0o755))
	must(os.WriteFile(path, append(data, '\n'), 0o644))
}

// TestAReaderFreezesTheSameWheneverItLooks: by a clock that is wrong by a constant, the exploration may ask a reader
// now what it would have been asked at any time since the Lease was there.
func TestAReaderFreezesTheSameWheneverItLooks(t *testing.T) {
	for wrong := range 2 {
		for seen := range 4 {
			r := lease.Reader{Skew: unit}
			c := lease.Content{Cluster: "east", Term: lease.Term{Holder: "east", Epoch: 1, RenewTime: reading(0, wrong).Wall,
				Duration: 4 * unit}}
			p := r.Observe(c, reading(seen, 0))
			for now := seen; now < 10; now++ {
				if got, want := p.Holds(reading(now, 0)), now < 4+wrong; got != want {
					t.Errorf("renewTime %+d, seen at %d: acts at %d: %t, want %t", wrong, seen, now, got, want)
				}
			}
		}
	}
}
