package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/mutants/chosen"
)

const (
	// limit bounds the tests of one written mutant, and of the code as it is. A mutant that takes longer survives.
	limit = 10 * time.Minute
	// slack is how long a process may take to end after its limit.
	slack = 10 * time.Second
)

// trial is how mutants are tried.
type trial struct {
	dir    string // for what is built
	seeds  int    // of the simulation
	atOnce int

	mu    sync.Mutex
	plain map[tests]func() (binary string) // builds and runs tests without a mutant, once
}

// result is what became of a written mutant.
type result struct {
	Name    string  `json:"name"`
	By      string  `json:"by"`
	Killed  bool    `json:"killed"`
	How     string  `json:"how"`
	Seconds float64 `json:"seconds"`
}

func (r result) String() string {
	how := "killed by " + r.How
	if !r.Killed {
		how = "SURVIVED: " + r.How
	}
	return fmt.Sprintf("%-70s %6.1f s  %s", r.Name, r.Seconds, how)
}

// table tries written mutants, several at a time, and prints their results as they come.
func (t *trial) table(ctx context.Context, mutants []mutant) figures {
	f := figures{Mutants: len(mutants)}
	var mu sync.Mutex
	inParallel(ctx, t.atOnce, mutants, func(ctx context.Context, m mutant) {
		began := time.Now()
		r := result{Name: m.name, By: strings.TrimSpace(m.by.pkg + " " + m.by.run)}
		r.How = r.By
		if m.by == simulation {
			r.How = fmt.Sprintf("%d seeds", t.seeds)
		}
		err := must.Try(func() {
			if text, failed := t.try(ctx, m); failed {
				r.Killed, r.How = true, reason(m.by, text)
			}
		})
		must.Do(ctx.Err())
		if err != nil { // the others may still be tried
			r.Killed, r.How = false, err.Error()
		}
		r.Seconds = time.Since(began).Seconds()
		mu.Lock()
		defer mu.Unlock()
		if r.Killed {
			f.Killed++
		}
		f.Table = append(f.Table, r)
		fmt.Println(r)
	})
	return f
}

// try builds the tests with a mutant and runs them. Tests that fail must pass without the mutant.
func (t *trial) try(ctx context.Context, m mutant) (text string, failed bool) {
	dir := must.Get(os.MkdirTemp(t.dir, ""))
	defer func() { _ = os.RemoveAll(dir) }()
	c := must.Get(m.change())
	list := overlay(dir, map[string][]byte{must.Get(filepath.Abs(c.file)): []byte(c.text)})
	binary := filepath.Join(dir, "tests")
	build(ctx, m.by.pkg, binary, "-overlay", list)
	if text, failed = t.run(ctx, m.by, binary); failed {
		t.checkPlain(ctx, m.by, text)
	}
	return text, failed
}

// overlay writes changed files, by their absolute paths, into a folder, and the list of them that the go command reads.
func overlay(dir string, files map[string][]byte) (list string) {
	replace := map[string]string{}
	for i, path := range slices.Sorted(maps.Keys(files)) {
		replace[path] = filepath.Join(dir, fmt.Sprintf("mutated%d.go", i))
		must.Do(os.WriteFile(replace[path], files[path], 0o600))
	}
	list = filepath.Join(dir, "mutated.json")
	must.Do(os.WriteFile(list, must.Get(json.Marshal(map[string]any{"Replace": replace})), 0o600))
	return list
}

// build compiles the tests of a package, without what only debuggers read.
func build(ctx context.Context, pkg, binary string, flags ...string) {
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags...)
	text, err := exec.CommandContext(ctx, "go", append(args, importPath(pkg))...).CombinedOutput()
	must.Do(err, "%s does not build: %s", pkg, text)
}

// importPath returns that of a folder. Package patterns such as ./member do not find the modules api and member.
func importPath(dir string) string {
	return "github.com/leasecast/leasecast/" + strings.TrimPrefix(dir, "./")
}

// execute runs the tests in a binary, and returns what they print and whether they failed. slow: they exceed the limit.
func (t *trial) execute(ctx context.Context, dir, binary string, limit time.Duration, variable string,
	args ...string) (text string, failed, slow bool) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(limited, binary, append(args, "-test.failfast")...)
	cmd.Dir, cmd.WaitDelay = dir, slack // what the tests started may hold their output open
	procs := max(1, runtime.NumCPU()/t.atOnce)
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(procs), variable)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	must.Do(ctx.Err())
	exit := (*exec.ExitError)(nil)
	failed = errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay)
	if slow = limited.Err() != nil; !slow && !failed {
		must.Do(err)
	}
	return out.String(), failed, slow
}

// run runs the tests that have to notice a written mutant.
func (t *trial) run(ctx context.Context, of tests, binary string, args ...string) (text string, failed bool) {
	args = append([]string{"-test.run", of.run, "-test.skip", of.skip, "-test.v", "-test.timeout=0"}, args...)
	if of == simulation {
		args = append([]string{"-sim.stop", "1", "-sim.seeds", strconv.Itoa(t.seeds)}, args...)
	}
	text, failed, slow := t.execute(ctx, of.pkg, binary, limit, chosen.Variable+"=", args...)
	switch {
	case slow:
		must.Fail("not done in %v", limit)
	case !failed && !strings.Contains(text, "=== RUN"):
		must.Fail("%s has no test %s", of.pkg, of.run)
	}
	return text, failed
}

// checkPlain fails if the tests fail without a mutant as well: all of them, or the seed by which the simulation noticed
// the mutant.
func (t *trial) checkPlain(ctx context.Context, of tests, text string) {
	t.mu.Lock()
	plain := t.plain[of]
	if plain == nil {
		binary := filepath.Join(t.dir, fmt.Sprintf("plain%d", len(t.plain)))
		plain = sync.OnceValue(func() string {
			build(ctx, of.pkg, binary)
			if of != simulation {
				t.pass(ctx, of, binary)
			}
			return binary
		})
		t.plain[of] = plain
	}
	t.mu.Unlock()
	if binary := plain(); of == simulation {
		seed := bySeed.FindStringSubmatch(text)
		if seed == nil {
			must.Fail("the simulation names no seed: %s", text)
		}
		t.pass(ctx, of, binary, "-sim.from", seed[1], "-sim.seeds", "1")
	}
}

func (t *trial) pass(ctx context.Context, of tests, binary string, args ...string) {
	if text, failed := t.run(ctx, of, binary, args...); failed {
		must.Fail("fails without any mutant: %s", reason(of, text))
	}
}

var (
	bySeed  = regexp.MustCompile(`seed (\d+): .*`)
	byTest  = regexp.MustCompile(`--- FAIL: (\S+)`)
	byPanic = regexp.MustCompile(`panic: .*|fatal error: .*`)
)

// reason is the first failure that the tests printed.
func reason(of tests, text string) string {
	if seed := bySeed.FindString(text); seed != "" && of == simulation {
		seed, _, _ = strings.Cut(seed, " (replay")
		return seed
	}
	if panicked := byPanic.FindString(text); panicked != "" {
		return panicked
	}
	last := "its exit"
	for i, found := range byTest.FindAllStringSubmatch(text, -1) {
		// A subtest says more than its test, and is printed after it.
		if i == 0 || strings.HasPrefix(found[1], last+"/") {
			last = found[1]
		}
	}
	return last
}
