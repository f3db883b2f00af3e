package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
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
		names := slices.DeleteFunc(must.Get(testsIn(dir)), func(name string) bool {
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
func testsIn(dir string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, found := range byFunction.FindAllSubmatch(text, -1) {
			if name := string(found[1]); name != "TestMain" {
				names = append(names, name)
			}
		}
	}
	return names, nil
}
