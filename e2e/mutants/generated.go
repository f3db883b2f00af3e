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

	"github.com/leasecast/leasecast/e2e/mutants/mutate"
)

// generatedIn are the packages that mutants are generated in. What is simulated is also
// run by the simulation of hub/controller.
var generatedIn = []struct {
	dir       string
	simulated bool
}{
	{"api/lease", true},
	{"api/lease/wire", true},
	{"hub/election", true},
	{"hub/tenure", true},
	{"hub/seal", true},
	{"hub/publish", true},
	{"hub/ledger", true},
	{"hub/decide", true},
	{"hub/explain", false},
	{"hub/controller", true},
	{"hub/worker", false},
	{"member", false},
	{"hub/guard", false},
}

// simulated reports whether the simulation runs a package.
func simulated(dir string) bool {
	for _, p := range generatedIn {
		if p.dir == dir {
			return p.simulated
		}
	}
	return false
}

// enough is the share of generated mutants that must be killed.
const enough = 0.95

// generation says which generated mutants are tried.
type generation struct {
	sample  int    // how many, unless all
	draw    uint64 // which
	all     bool
	sampled bool // a sample was asked for, and not only named
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

// drawn returns the mutants to try: those whose names match, and of all of them a sample. A
// mutant that is drawn stays so while its name does, whatever becomes of others.
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
	for _, p := range generatedIn {
		patterns = append(patterns, importPath(p.dir))
	}
	return mutate.Make(ctx, ".", patterns...)
}

// try tries generated mutants, several at a time, and prints those that survive.
func (g generation) try(ctx context.Context, t *trial, made *mutate.Mutants, run []mutate.Mutant) (generated, error) {
	var f generated
	f.ByPackage = map[string]*score{}
	for _, m := range run {
		f.count(m).Mutants++
	}
	suites, err := t.suites(ctx, made, run)
	if err != nil || len(run) == 0 {
		return f, err
	}
	fmt.Printf("%d of %d generated mutants are tried\n", len(run), len(made.All))
	var mu sync.Mutex
	reported, tried := time.Now(), 0
	err = inParallel(ctx, t.atOnce, run, func(ctx context.Context, m mutate.Mutant) error {
		killed, how, err := t.kill(ctx, suites, m)
		if err != nil {
			return fmt.Errorf("mutant %q: %w", m.Name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case killed:
			if strings.Contains(how, hung) {
				f.Hung++
			}
			f.Killed++
			f.count(m).Killed++
		default:
			fmt.Printf("SURVIVED: %s (%s)\n", m.Name, how)
			f.Survivors = append(f.Survivors, survivor{m.Name, how})
		}
		if tried++; time.Since(reported) > progress || tried == len(run) {
			reported = time.Now()
			fmt.Printf("%d of %d generated mutants tried, %d survived\n", tried, len(run), len(f.Survivors))
		}
		return nil
	})
	slices.SortFunc(f.Survivors, func(a, b survivor) int { return strings.Compare(a.Name, b.Name) })
	return f, err
}

// progress is how often the number of mutants that were tried is printed.
const progress = 10 * time.Second

// generated are the figures of generated mutants.
type generated struct {
	Mutants   int               `json:"generated"`
	Killed    int               `json:"generatedKilled"`
	Hung      int               `json:"generatedHung"` // of those killed: they took too long
	ByPackage map[string]*score `json:"generatedByPackage"`
	Survivors []survivor        `json:"generatedSurvivors"`
}

func (f *generated) count(m mutate.Mutant) *score {
	s := f.ByPackage[m.Package]
	if s == nil {
		s = &score{}
		f.ByPackage[m.Package] = s
	}
	return s
}

// verdict prints the score of each package, and is an error if the score does not suffice.
func (f *generated) verdict() error {
	for _, p := range generatedIn {
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
	if float64(f.Killed) < enough*float64(f.Mutants) {
		return fmt.Errorf("less than %.0f %% of the generated mutants are killed: write tests that notice the survivors",
			100*enough)
	}
	return nil
}

// inParallel does something for each item, several at a time, until all are done or one fails.
func inParallel[T any](ctx context.Context, atOnce int, items []T, do func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan T)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for item := range next {
				if err := do(ctx, item); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, item := range items {
		if ctx.Err() != nil {
			break
		}
		select {
		case next <- item:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}
