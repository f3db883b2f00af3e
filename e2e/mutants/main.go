// Command mutants breaks the rules of the protocol in the code, one at a time, and runs
// what has to notice: the simulation, or the tests that a mutant names. It must all be
// noticed. A mutant is a replacement of text that the compiler sees through an overlay;
// the files themselves stay as they are.
//
// It prints a table and writes out/mutants.json. It fails if a mutant survives, does not
// compile, if the text that it replaces is not there exactly once, or if what noticed it
// also complains of the code as it is.
//
// # How to add one
//
// Append to the table of its part of the protocol (a new table goes into the
// list in mutant.go):
//
//	{"7: epoch without 1+", simulation, []edit{{termGo, "max(highest+1, ", "max(highest, "}}},
//	{"guard: anybody may write", tests{"./hub/guard", "^TestCopiesAreTheHubsAlone$"}, []edit{{"hub/guard/objects.go", "old", "new"}}},
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
)

func main() {
	var t trial
	flag.IntVar(&t.seeds, "seeds", 20000, "how many `seeds` of the simulation a mutant must survive to count as a survivor")
	flag.IntVar(&t.atOnce, "p", 2, "how many mutants to try at a `time`")
	only := flag.String("only", "", "run only the mutants whose names match this `expression`")
	out := flag.String("out", "out/mutants.json", "the `file` for the figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &t, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// figures is what is written.
type figures struct {
	Mutants int      `json:"mutants"`
	Killed  int      `json:"killed"`
	Table   []result `json:"table"`
}

func run(ctx context.Context, t *trial, only, out string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if t.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(t.dir) }()
	var chosen []mutant
	for _, m := range all() {
		if err := m.check(); err != nil { // before any of them costs time
			return fmt.Errorf("mutant %q: %w", m.name, err)
		}
		if pattern.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no mutant matches -only %q: the names are in the tables of e2e/mutants", only)
	}
	f, err := t.table(ctx, chosen)
	if err != nil {
		return err
	}
	fmt.Printf("%d of %d mutants killed\n", f.Killed, f.Mutants)
	if err := write(out, f); err != nil {
		return err
	}
	if f.Killed < f.Mutants {
		return errors.New("a survivor is a hole in the oracle or in the faults; if no test can tell it from the code, it is no mutant")
	}
	return nil
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
