// Command mutants breaks the code, one place at a time, and runs what has to notice. Some
// mutants are written by hand, and break the rules of the protocol: the simulation, or the tests
// that a mutant names, must notice every one. The others are generated (package mutate) in all places
// of the packages that decide, write and read.
//
// It prints a table and writes out/mutants.json. It fails if a written mutant survives, does not
// compile, if the text that it replaces is not there exactly once, or if what noticed it
// also complains of the code as it is. It fails if fewer than 95 % of the generated mutants that it
// tried are killed, or if one survives that explained.go does not explain.
//
// # How to add one
//
// A written mutant is a replacement of text that the compiler sees through an overlay; the files
// themselves stay as they are. Append to the table of its part of the protocol (a new table goes into the
// list in mutant.go):
//
//	{"7: epoch without 1+", simulation, []edit{{grantGo, "max(highest+1, ", "max(highest, "}}},
//	{"guard: anybody may write", tests{"./hub/guard", "^TestLeasesAreTheHubsAlone$"}, []edit{{"hub/guard/objects.go", "old", "new"}}},
//
// The name says the rule and what is broken of it. Prefer the simulation, which must find
// it by the protocol's promise; name tests for what the simulation does not run. They are
// compiled and run as `go test -run` would, in the folder of their package. A text to
// replace is there exactly once in its file, and the file still compiles afterwards:
// unused variables and imports are the usual trap. Several edits make one mutant where a
// rule is guarded twice. A mutant that no test can tell from the code is no mutant: leave
// it out and say why in the commit. Try it with
//
//	go run ./e2e/mutants -only '^guard:'
//
// # Generated mutants
//
// All of them are compiled into the tests of their package at once, and a variable of the environment chooses one.
// Each test is run once without a mutant, to see which places it reaches; a mutant is then
// tried by the tests that reach it: those of its own package, and the simulation where that runs the
// package. Tests that start a real API server are left out, but in hub/guard, which has no others. A mutant by
// which a test takes far too long is killed.
//
// A sample is tried, -all of them, or those that -only names:
//
//	go run ./e2e/mutants -only '^hub/tenure/'
//
// A survivor wants a test beside the code. If none can tell it from the code, because it only costs
// time or memory or because other code makes the two equal, explained.go gives the reason.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/leasecast/leasecast/e2e/mutants/mutate"
)

func main() {
	var t trial
	var g generation
	flag.IntVar(&t.seeds, "seeds", 20000, "how many `seeds` of the simulation a mutant of the table must survive to count as a survivor")
	flag.IntVar(&t.atOnce, "p", 2, "how many mutants to try at a `time`")
	flag.IntVar(&g.sample, "generated", 400, "how `many` of the generated mutants to try, of those that -only names if both are given; 0: none")
	flag.Uint64Var(&g.draw, "draw", 1, "which of them: another `number` draws others")
	flag.BoolVar(&g.all, "all", false, "try all generated mutants, also those that are explained")
	only := flag.String("only", "", "run only the mutants, written and generated, whose names match this `expression`")
	out := flag.String("out", "out/mutants.json", "the `file` for the figures")
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { g.sampled = g.sampled || f.Name == "generated" })
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &t, g, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// figures is what is written.
type figures struct {
	Mutants int `json:"mutants"`
	Killed  int `json:"killed"`
	generated
	Table []result `json:"table"`
}

func run(ctx context.Context, t *trial, g generation, only, out string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	// Figures of an earlier run would pass for those of one that fails.
	if err := os.Remove(out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if t.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(t.dir) }()
	var written []mutant
	for _, m := range all() {
		if err := m.check(); err != nil { // before any of them costs time
			return fmt.Errorf("mutant %q: %w", m.name, err)
		}
		if pattern.MatchString(m.name) {
			written = append(written, m)
		}
	}
	made, drawn := &mutate.Mutants{}, []mutate.Mutant(nil)
	if g.all || g.sample > 0 {
		if made, err = g.make(ctx); err != nil {
			return err
		}
		drawn = g.drawn(made.All, pattern)
	}
	if len(written)+len(drawn) == 0 {
		return fmt.Errorf("no mutant matches -only %q: the names are in the tables of e2e/mutants, and in what this prints of generated ones", only)
	}
	f, err := t.table(ctx, written)
	if err != nil {
		return err
	}
	if f.generated, err = g.try(ctx, t, made, drawn); err != nil {
		return err
	}
	fmt.Printf("%d of %d written mutants killed\n", f.Killed, f.Mutants)
	insufficient := f.verdict()
	if err := write(out, f); err != nil {
		return err
	}
	if f.Killed < f.Mutants {
		insufficient = errors.Join(insufficient,
			errors.New("a survivor is a hole in the oracle or in the faults; if no test can tell it from the code, it is no mutant"))
	}
	return insufficient
}

// table tries mutants, several at a time, and prints their results in order.
func (t *trial) table(ctx context.Context, mutants []mutant) (figures, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make([]chan result, len(mutants))
	for i := range results {
		results[i] = make(chan result, 1)
	}
	next := make(chan int)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(next)
	for range t.atOnce {
		wg.Go(func() {
			for i := range next {
				r, err := t.try(ctx, i, mutants[i])
				if err != nil {
					cancel(fmt.Errorf("mutant %q: %w", mutants[i].name, err))
				}
				results[i] <- r
			}
		})
	}
	f := figures{Mutants: len(mutants)}
	for given, taken := 0, 0; taken < len(mutants); {
		give := next
		if given == len(mutants) {
			give = nil
		}
		select {
		case give <- given:
			given++
		case r := <-results[taken]:
			if ctx.Err() != nil {
				return f, context.Cause(ctx)
			}
			taken++
			if r.Killed {
				f.Killed++
			}
			f.Table = append(f.Table, r)
			fmt.Println(r)
		case <-ctx.Done():
			return f, context.Cause(ctx)
		}
	}
	return f, nil
}

func write(path string, f figures) error {
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
