package main

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/mutants/mutate"
)

// target is a package in which mutants are generated.
type target struct {
	dir string
	// simulated: the simulation runs the package, too.
	simulated bool
	// shared: all tests share a real API server, which takes seconds to start.
	shared bool
	// skip are the tests that start a server of their own, or wait long for what a real API server does by itself.
	skip []string
}

var targets = []target{
	{dir: "api/lease", simulated: true},
	{dir: "api/lease/wire", simulated: true},
	{dir: "hub/election", simulated: true},
	{dir: "hub/tenure", simulated: true},
	{dir: "hub/seal", simulated: true},
	{dir: "hub/publish", simulated: true, skip: []string{"TestOnARealServer"}},
	{dir: "hub/ledger", simulated: true},
	{dir: "hub/decide", simulated: true},
	{dir: "hub/explain"},
	{dir: simulator, simulated: true},
	{dir: "hub/worker"},
	{dir: "member"},
	{dir: "hub/guard", shared: true, skip: []string{
		"TestKeeper_RevertsEdits", "TestGuard_NamespaceIsDeletedWithItsLeases", "TestGuard_RejectsCoordinatedElection",
	}},
}

func targetIn(dir string) target {
	return targets[slices.IndexFunc(targets, func(p target) bool { return p.dir == dir })]
}

const (
	// enough is the share of generated mutants that must be killed.
	enough = 0.95
	// progress is how often the number of mutants that were tried is printed.
	progress = 10 * time.Second
)

// generation chooses the generated mutants to try.
type generation struct {
	sample  int    // how many, unless all
	draw    uint64 // which
	all     bool
	sampled bool // a sample was asked for, and not only named
}

// drawn returns the mutants to try: those whose names match, and of all of them a sample. Whether a mutant is drawn
// depends on its name, and not on others.
func (g generation) drawn(all []mutate.Mutant, only *regexp.Regexp) []mutate.Mutant {
	drawn := slices.DeleteFunc(slices.Clone(all), func(m mutate.Mutant) bool { return !only.MatchString(m.Name) })
	if g.all || g.sample >= len(drawn) || only.String() != "" && !g.sampled {
		return drawn
	}
	lot := func(m mutate.Mutant) uint64 {
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, g.draw, m.Name, g.draw)
		return h.Sum64()
	}
	slices.SortFunc(drawn, func(a, b mutate.Mutant) int { return cmp.Compare(lot(a), lot(b)) })
	drawn = drawn[:g.sample]
	slices.SortFunc(drawn, func(a, b mutate.Mutant) int { return cmp.Compare(a.Number, b.Number) })
	return drawn
}

// make makes all mutants.
func (g generation) make(ctx context.Context) (*mutate.Mutants, error) {
	var patterns []string
	for _, p := range targets {
		patterns = append(patterns, importPath(p.dir))
	}
	return mutate.Make(ctx, ".", patterns...)
}

// generated are the figures of generated mutants.
type generated struct {
	Mutants   int               `json:"generated"`
	Killed    int               `json:"generatedKilled"`
	Hung      int               `json:"generatedHung"` // of those killed: they took too long
	ByPackage map[string]*score `json:"generatedByPackage"`
	Survivors []survivor        `json:"generatedSurvivors"`
}

// score is what became of the generated mutants of one package.
type score struct {
	Mutants int `json:"mutants"`
	Killed  int `json:"killed"`
}

// survivor is a generated mutant that was not killed.
type survivor struct {
	Name string `json:"name"`
	How  string `json:"how"`
}

// generated tries generated mutants, several at a time, and prints those that survive.
func (t *trial) generated(ctx context.Context, made *mutate.Mutants, run []mutate.Mutant) generated {
	f := generated{ByPackage: map[string]*score{}}
	for _, m := range run {
		if f.ByPackage[m.Package] == nil {
			f.ByPackage[m.Package] = &score{}
		}
		f.ByPackage[m.Package].Mutants++
	}
	if len(run) == 0 {
		return f
	}
	suites := t.suites(ctx, made, f.ByPackage)
	fmt.Printf("%d of %d generated mutants are tried\n", len(run), len(made.All))
	var mu sync.Mutex
	reported, tried := time.Now(), 0
	inParallel(ctx, t.atOnce, run, func(ctx context.Context, m mutate.Mutant) {
		killed, how := t.kill(ctx, suites, m)
		mu.Lock()
		defer mu.Unlock()
		if killed {
			f.Killed++
			f.ByPackage[m.Package].Killed++
			if strings.Contains(how, hung) {
				f.Hung++
			}
		} else {
			fmt.Printf("SURVIVED: %s (%s)\n", m.Name, how)
			f.Survivors = append(f.Survivors, survivor{m.Name, how})
		}
		if tried++; time.Since(reported) > progress || tried == len(run) {
			reported = time.Now()
			fmt.Printf("%d of %d generated mutants tried, %d survived\n", tried, len(run), len(f.Survivors))
		}
	})
	slices.SortFunc(f.Survivors, func(a, b survivor) int { return strings.Compare(a.Name, b.Name) })
	return f
}

// verdict prints the score of each package, and is an error if the score does not suffice.
func (f *generated) verdict() error {
	for _, p := range targets {
		if s := f.ByPackage[p.dir]; s != nil {
			f.Mutants += s.Mutants
			fmt.Printf("%-16s %5d generated, %5d killed (%.1f %%)\n", p.dir, s.Mutants, s.Killed,
				100*float64(s.Killed)/float64(s.Mutants))
		}
	}
	if f.Mutants == 0 {
		return nil
	}
	fmt.Printf("%d of %d generated mutants killed (%d of them took too long)\n", f.Killed, f.Mutants, f.Hung)
	return must.ErrorIf(float64(f.Killed) < enough*float64(f.Mutants),
		"less than %.0f %% of the generated mutants are killed: write tests that notice the survivors", 100*enough)
}
