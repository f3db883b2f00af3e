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
	"github.com/leasecast/leasecast/e2e/mutants/mutate"
)

const (
	// quick bounds the tests that are run first: a mutant seldom survives them.
	quick = time.Second
	// generatedSeeds is how many seeds of the simulation a generated mutant must survive.
	generatedSeeds = 300
	// patience times the time of the code as it is, and slack, is how long a mutant may take. One that takes longer
	// hangs, which the tests would notice.
	patience = 10
	// hung is in the reason of a mutant that takes too long; the testing package says so, too.
	hung = "timed out"

	simulator = "hub/controller"
)

// worlds are the tests of the simulation that run every simulated package.
var worlds = []string{"TestSimulation", "TestStories"}

// suite is the tests of one package, compiled with all mutants.
type suite struct {
	dir    string
	binary string
	tests  []*test
}

// test is one of them, or several that share a server, without a mutant.
type test struct {
	name    string
	took    time.Duration
	reaches map[int]bool
}

// suites builds the tests that mutants in these packages need and finds out which of them reach which mutants. All must
// pass while no mutant is chosen.
func (t *trial) suites(ctx context.Context, made *mutate.Mutants, own map[string]*score) map[string]*suite {
	list := overlay(t.dir, made.Files)
	needed := map[string]bool{}
	for dir := range own {
		needed[dir] = true
		if targetIn(dir).simulated {
			needed[simulator] = true
		}
	}
	all := map[string]*suite{}
	var mu sync.Mutex
	inParallel(ctx, t.atOnce, slices.Sorted(maps.Keys(needed)), func(ctx context.Context, dir string) {
		fmt.Printf("%s is built with its mutants, and its tests are run without\n", dir)
		s := &suite{dir: dir, binary: filepath.Join(t.dir, strings.ReplaceAll(dir, "/", "_"))}
		build(ctx, dir, s.binary, "-overlay", list)
		p := targetIn(dir)
		names := slices.DeleteFunc(testsIn(dir), func(name string) bool {
			return slices.Contains(p.skip, name) || own[dir] == nil && !slices.Contains(worlds, name)
		})
		if p.shared {
			names = []string{strings.Join(names, "|")}
		}
		for _, name := range names {
			s.tests = append(s.tests, t.record(ctx, s, name))
		}
		mu.Lock()
		defer mu.Unlock()
		all[dir] = s
	})
	return all
}

// record runs a test without a mutant, and records which mutants it reaches.
func (t *trial) record(ctx context.Context, s *suite, name string) *test {
	file := s.binary + ".reached"
	defer func() { _ = os.Remove(file) }()
	one, began := &test{name: name, reaches: map[int]bool{}}, time.Now()
	if text, failed := t.runSuite(ctx, s, []*test{one}, limit, chosen.Reached+"="+file); failed {
		must.Fail("%s %s fails without any mutant:\n%s", s.dir, name, text)
	}
	one.took = time.Since(began)
	data, err := os.ReadFile(file)
	if !errors.Is(err, os.ErrNotExist) {
		must.Do(err)
	}
	for _, field := range strings.Fields(string(data)) {
		one.reaches[must.Get(strconv.Atoi(field))] = true
	}
	return one
}

// runSuite runs tests in one process, with a variable set, and reports whether they failed. One that exceeds the limit
// has failed.
func (t *trial) runSuite(ctx context.Context, s *suite, of []*test, limit time.Duration,
	variable string) (text string, failed bool) {
	var names []string
	for _, one := range of {
		names = append(names, one.name)
	}
	args := []string{"-test.run", "^(" + strings.Join(names, "|") + ")$", "-test.timeout", limit.String()}
	if s.dir == simulator {
		args = append(args, "-sim.stop", "1", "-sim.seeds", strconv.Itoa(generatedSeeds))
	}
	text, failed, slow := t.execute(ctx, s.dir, s.binary, limit+slack, variable, args...)
	if slow {
		return "panic: test " + hung, true
	}
	return text, failed
}

// kill runs the tests that reach a mutant until one notices it, and returns which: first the quick tests of its
// package, then the others, then the simulation.
func (t *trial) kill(ctx context.Context, suites map[string]*suite, m mutate.Mutant) (bool, string) {
	own := suites[m.Package]
	rounds := []round{{own, own.reaching(m.Number, true)}, {own, own.reaching(m.Number, false)}}
	if targetIn(m.Package).simulated && m.Package != simulator {
		s := suites[simulator]
		simulated := append(s.reaching(m.Number, true), s.reaching(m.Number, false)...)
		rounds = append(rounds, round{s, slices.DeleteFunc(simulated, func(one *test) bool {
			return !slices.Contains(worlds, one.name)
		})})
	}
	how := "no quick test reaches it"
	for _, r := range rounds {
		if len(r.tests) == 0 {
			continue
		}
		var took time.Duration
		for _, one := range r.tests {
			took += one.took
		}
		text, failed := t.runSuite(ctx, r.suite, r.tests, patience*took+slack, chosen.Variable+"="+strconv.Itoa(m.Number))
		if failed {
			return true, reason(tests{}, text)
		}
		how = "what reaches it passes"
	}
	return false, how
}

// round is what is run in one process.
type round struct {
	suite *suite
	tests []*test
}

// reaching returns the quick tests that reach a mutant, or those that are not quick.
func (s *suite) reaching(number int, isQuick bool) (found []*test) {
	for _, one := range s.tests {
		if one.reaches[number] && (one.took < quick) == isQuick {
			found = append(found, one)
		}
	}
	return found
}

var byFunction = regexp.MustCompile(`(?m)^func (Test\w*)\(`)

// testsIn are the names of the tests that are written in a folder.
func testsIn(dir string) (names []string) {
	for _, file := range must.Get(filepath.Glob(filepath.Join(dir, "*_test.go"))) {
		for _, found := range byFunction.FindAllSubmatch(must.Get(os.ReadFile(file)), -1) {
			if name := string(found[1]); name != "TestMain" {
				names = append(names, name)
			}
		}
	}
	return names
}

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

// try builds the tests with a mutant and runs them. Without the mutant they pass, as `make test` shows.
func (t *trial) try(ctx context.Context, m mutant) (text string, failed bool) {
	dir := must.Get(os.MkdirTemp(t.dir, ""))
	defer func() { _ = os.RemoveAll(dir) }()
	c := must.Get(m.change())
	list := overlay(dir, map[string][]byte{must.Get(filepath.Abs(c.file)): []byte(c.text)})
	binary := filepath.Join(dir, "tests")
	build(ctx, m.by.pkg, binary, "-overlay", list)
	return t.run(ctx, m.by, binary)
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
func (t *trial) run(ctx context.Context, of tests, binary string) (text string, failed bool) {
	args := []string{"-test.run", of.run, "-test.skip", of.skip, "-test.v", "-test.timeout=0"}
	if of == simulation {
		args = append(args, "-sim.stop", "1", "-sim.seeds", strconv.Itoa(t.seeds))
	}
	text, failed, slow := t.execute(ctx, of.pkg, binary, limit, chosen.Variable+"=", args...)
	switch {
	case slow:
		must.Fail("not done in %v", limit)
	case !strings.Contains(text, "=== RUN"):
		must.Fail("%s runs no test %s: %s", of.pkg, of.run, text)
	}
	return text, failed
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
