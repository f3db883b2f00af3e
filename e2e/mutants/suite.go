package main

import (
	"bytes"
	"context"
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

	"github.com/leasecast/leasecast/e2e/mutants/chosen"
	"github.com/leasecast/leasecast/e2e/mutants/mutate"
)

const (
	// quick bounds the tests that are run together: a mutant seldom survives them. The
	// others are run one after the other, the quickest first.
	quick = time.Second
	// generatedSeeds is how many seeds of the simulation a generated mutant must survive.
	generatedSeeds = 300
	// slack and patience are how long a mutant may take: patience times what the code takes,
	// and slack. A mutant that takes longer hangs, which the test would notice.
	slack    = 10 * time.Second
	patience = 10
)

// worlds are the tests of the simulation that every simulated package is run by.
var worlds = []string{"TestSimulation", "TestStories"}

const simulator = "hub/controller"

// suite is the tests of one package, compiled with all mutants.
type suite struct {
	dir    string
	binary string
	shared bool // all tests share a real API server, which takes seconds to start
	tests  []*test
}

// test is one of them, and what it said of the code as it is.
type test struct {
	name    string
	took    time.Duration
	reaches map[int]bool
}

// suites builds the tests that the mutants need and finds out which of them reach which mutants.
// All must pass as long as no mutant is chosen.
func (t *trial) suites(ctx context.Context, made *mutate.Mutants, of []mutate.Mutant) (map[string]*suite, error) {
	list, err := overlay(t.dir, made.Files)
	if err != nil {
		return nil, err
	}
	needed := map[string]bool{}
	for _, p := range generatedIn {
		if slices.ContainsFunc(of, func(m mutate.Mutant) bool { return m.Package == p.dir }) {
			needed[p.dir] = true
			if p.simulated {
				needed[simulator] = true
			}
		}
	}
	own := map[string]bool{}
	for _, m := range of {
		own[m.Package] = true
	}
	all := map[string]*suite{}
	var mu sync.Mutex
	err = inParallel(ctx, t.atOnce, slices.Sorted(maps.Keys(needed)), func(ctx context.Context, dir string) error {
		fmt.Printf("%s is built with its mutants, and its tests are run without\n", dir)
		s := &suite{dir: dir, binary: filepath.Join(t.dir, strings.ReplaceAll(dir, "/", "_"))}
		if err := build(ctx, tests{pkg: "./" + dir}, s.binary, "-overlay", list); err != nil {
			return err
		}
		if err := s.list(); err != nil {
			return err
		}
		if !own[dir] { // it is there for its worlds
			s.tests = slices.DeleteFunc(s.tests, func(one *test) bool { return !slices.Contains(worlds, one.name) })
		}
		if err := s.record(ctx, t.procs()); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all[dir] = s
		return nil
	})
	return all, err
}

// procs is how many threads each of the tests that run at once may use.
func (t *trial) procs() int { return max(1, runtime.NumCPU()/t.atOnce) }

// list finds the tests of a suite, less those that start a real API server of their own.
func (s *suite) list() error {
	onServers, err := startServers(s.dir)
	if err != nil {
		return err
	}
	s.shared = slices.Contains(onServers, "TestMain")
	names, err := testsIn(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains(onServers, name) && !slices.Contains(leftOut[s.dir], name) {
			s.tests = append(s.tests, &test{name: name})
		}
	}
	return nil
}

// record runs the tests without a mutant, each alone, and takes down which mutants it reaches.
func (s *suite) record(ctx context.Context, procs int) error {
	if s.shared {
		together := &test{name: strings.Join(s.names(), "|")}
		if err := s.recordOne(ctx, together, procs); err != nil {
			return err
		}
		s.tests = []*test{together}
		return nil
	}
	for _, one := range s.tests {
		if err := s.recordOne(ctx, one, procs); err != nil {
			return err
		}
	}
	slices.SortStableFunc(s.tests, func(a, b *test) int { return int(a.took - b.took) })
	return nil
}

func (s *suite) names() []string {
	var names []string
	for _, one := range s.tests {
		names = append(names, one.name)
	}
	return names
}

func (s *suite) recordOne(ctx context.Context, one *test, procs int) error {
	file := s.binary + ".reached"
	defer func() { _ = os.Remove(file) }()
	began := time.Now()
	text, failed, err := s.run(ctx, []*test{one}, procs, limit, chosen.Reached+"="+file)
	if err != nil {
		return err
	}
	if failed {
		return fmt.Errorf("%s %s fails without any mutant:\n%s", s.dir, one.name, text)
	}
	one.took, one.reaches = time.Since(began), map[int]bool{}
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(data)) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return err
		}
		one.reaches[n] = true
	}
	return nil
}

// run runs tests in one process, with a variable set, and reports whether they failed. A
// process that is not done within the limit has failed.
func (s *suite) run(ctx context.Context, of []*test, procs int, limit time.Duration, variable string) (string, bool, error) {
	var names []string
	for _, one := range of {
		names = append(names, one.name)
	}
	limited, cancel := context.WithTimeout(ctx, limit+slack)
	defer cancel()
	args := []string{"-test.run", "^(" + strings.Join(names, "|") + ")$", "-test.failfast", "-test.timeout", limit.String()}
	if s.dir == simulator {
		args = append(args, "-sim.stop", "1", "-sim.seeds", strconv.Itoa(generatedSeeds))
	}
	cmd := exec.CommandContext(limited, s.binary, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(procs), "GOTRACEBACK=none", variable)
	cmd.WaitDelay = slack // what the tests started may hold their output open
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", false, ctx.Err()
	case limited.Err() != nil:
		return "panic: test " + hung, true, nil
	case errors.As(err, &exit), errors.Is(err, exec.ErrWaitDelay):
		return text.String(), true, nil
	}
	return text.String(), false, err
}

// kill runs what reaches a mutant until something notices it, and returns what did.
func (t *trial) kill(ctx context.Context, suites map[string]*suite, m mutate.Mutant) (bool, string, error) {
	rounds := suites[m.Package].rounds(m.Number)
	if suites[simulator] != nil && m.Package != simulator && simulated(m.Package) {
		for _, r := range suites[simulator].rounds(m.Number) {
			r.tests = slices.DeleteFunc(r.tests, func(one *test) bool { return !slices.Contains(worlds, one.name) })
			if len(r.tests) > 0 {
				rounds = append(rounds, r)
			}
		}
	}
	for _, r := range rounds {
		var took time.Duration
		for _, one := range r.tests {
			took += one.took
		}
		text, failed, err := r.run(ctx, r.tests, t.procs(), patience*took+slack, chosen.Variable+"="+strconv.Itoa(m.Number))
		if failed || err != nil {
			return failed, reason(tests{}, text), err
		}
	}
	if len(rounds) == 0 {
		return false, "no quick test reaches it", nil
	}
	return false, "what reaches it passes", nil
}

// hung is what the testing package says of a test that takes too long.
const hung = "timed out"

// round is what is run in one process.
type round struct {
	*suite
	tests []*test
}

// rounds are the tests that reach a mutant, in the order in which they are run.
func (s *suite) rounds(number int) []round {
	first, later := round{suite: s}, []round(nil)
	for _, one := range s.tests {
		switch {
		case !one.reaches[number]:
		case one.took < quick:
			first.tests = append(first.tests, one)
		default:
			later = append(later, round{s, []*test{one}})
		}
	}
	if len(first.tests) == 0 {
		return later
	}
	return append([]round{first}, later...)
}

var byFunction = regexp.MustCompile(`(?m)^func (Test\w*)\(`)

// testsIn are the names of the tests that are written in a folder.
func testsIn(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var names []string
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
