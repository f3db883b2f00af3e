// Command mutants breaks the code, one place at a time, and runs what has to notice. Up to a hundred mutants are
// written by hand. Each breaks a rule of the protocol (hub/election), of the reader or of the fences, and the
// simulation or the tests of one package must notice it. The others are generated (package mutate) in all places of the
// packages that decide, write, read and fence. They are the score.
//
// It prints a table and writes out/mutants.json. It fails if a written mutant survives, does not compile, or if what
// it replaces is not there exactly once. It fails if fewer than 95 % of the generated mutants that it tried are killed.
// The tests must pass on the code as it is.
//
// # How to add a written mutant
//
// A written mutant replaces an expression or a statement of a function, a method or a constant. It is found by what it
// is, however it is laid out, and wherever in the package the function moves:
//
//	{"7: two terms have one epoch", simulation, "hub/election.nextEpoch",
//		`highest + 1`, `highest`},
//	{"1: renewals go on after the release", ofTenure, "hub/tenure.Tenure.release",
//		`t.released = true`, ``},
//
// The name begins with the rule, and says what is broken of it. What is replaced is there exactly once: take the least
// that is. What replaces it compiles: a variable that nothing reads any more is the usual trap. by.go has the tests
// that can be named. Prefer the simulation, which must find the mutant by what the protocol promises. The compiler sees
// the changed file through an overlay. A mutant that no test can tell from the code is no mutant. Try it with
//
//	go run ./e2e/mutants -only '^7:'
//
// Each rule has a few, those that break a promise. A test checks that all of them fit the code, and that there are not
// more than a hundred. Whatever else can go wrong in a function is left to the generated ones.
//
// # Generated mutants
//
// All of them are compiled into the tests of their package at once, and a variable of the environment chooses one.
// Each test is run once without a mutant, to see which places it reaches. A mutant is then tried by the tests that
// reach it: those of its own package, and the simulation where that runs the package. Tests that start a real API
// server of their own are left out; those of hub/guard share one. A mutant by which a test takes far too long is
// killed.
//
// A sample is tried, -all of them, or those that -only names:
//
//	go run ./e2e/mutants -only '^hub/tenure/'
//
// A survivor wants a test beside the code, unless none can tell the two apart: it only costs time or memory, or other
// code makes them equal.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sync/errgroup"

	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/mutants/mutate"
)

func main() {
	var t trial
	var g generation
	flag.IntVar(&t.seeds, "seeds", 10000, "how many `seeds` a written mutant must survive to count as a survivor")
	flag.IntVar(&t.atOnce, "p", 2, "how many mutants to try at a `time`")
	flag.IntVar(&g.sample, "generated", 400, "how `many` of the generated mutants to try, of those that -only names")
	flag.Uint64Var(&g.draw, "draw", 1, "which of them: another `number` draws others")
	flag.BoolVar(&g.all, "all", false, "try all generated mutants")
	only := flag.String("only", "", "run only the mutants, written and generated, whose names match this `expression`")
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { g.sampled = g.sampled || f.Name == "generated" })
	must.Run("mutants", func(ctx context.Context) { run(ctx, &t, g, *only, "out/mutants.json") })
}

// figures are the content of out/mutants.json.
type figures struct {
	Mutants int `json:"mutants"`
	Killed  int `json:"killed"`
	generated
	Table []result `json:"table"`
}

func run(ctx context.Context, t *trial, g generation, only, out string) {
	pattern := must.Get(regexp.Compile(only))
	must.Do(os.RemoveAll(out)) // figures of an earlier run would pass for those of one that fails
	t.dir = must.Get(os.MkdirTemp("", "mutants"))
	defer func() { _ = os.RemoveAll(t.dir) }()
	var chosen []mutant
	for _, m := range written() {
		_, err := m.change() // before any of them costs time
		must.Do(err, "mutant %q", m.name)
		if pattern.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	made, drawn := &mutate.Mutants{}, []mutate.Mutant(nil)
	if g.all || g.sample > 0 {
		made = must.Get(g.make(ctx))
		drawn = g.drawn(made.All, pattern)
	}
	must.FailIf(len(chosen)+len(drawn) == 0, "no mutant matches -only %q: a run prints the names", only)
	f := t.table(ctx, chosen)
	f.generated = t.generated(ctx, made, drawn)
	fmt.Printf("%d of %d written mutants killed\n", f.Killed, f.Mutants)
	insufficient := f.verdict()
	must.Do(os.MkdirAll(filepath.Dir(out), 0o755))
	must.Do(os.WriteFile(out, append(must.Get(json.MarshalIndent(f, "", "  ")), '\n'), 0o644))
	if f.Killed < f.Mutants {
		insufficient = errors.Join(insufficient,
			errors.New("a written mutant that survives wants a test; if no test can tell it from the code, it is no mutant"))
	}
	must.Do(insufficient)
}

// inParallel calls try for each mutant, several at a time, until all are done or one fails.
func inParallel[M any](ctx context.Context, atOnce int, mutants []M, try func(context.Context, M)) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, m := range mutants {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return must.Try(func() { try(ctx, m) })
		})
	}
	must.Do(group.Wait())
}
