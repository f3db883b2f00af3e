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
	plain map[tests]*plain
}

// plain is the result of tests without a mutant, found out once.
type plain struct {
	once   sync.Once
	binary string
	err    error
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
func (t *trial) table(ctx context.Context, mutants []mutant) (figures, error) {
	f := figures{Mutants: len(mutants)}
	var mu sync.Mutex
	err := inParallel(ctx, t.atOnce, mutants, func(ctx context.Context, m mutant) error {
		began := time.Now()
		r := result{Name: m.name, By: strings.TrimSpace(m.by.pkg + " " + m.by.run)}
		text, failed, err := t.try(ctx, m)
		r.Seconds = time.Since(began).Seconds()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil: // the others may still be tried
			r.How = err.Error()
		case failed:
			r.Killed, r.How = true, reason(m.by, text)
		case m.by == simulation:
			r.How = fmt.Sprintf("%d seeds", t.seeds)
		default:
			r.How = r.By
		}
		mu.Lock()
		defer mu.Unlock()
		if r.Killed {
			f.Killed++
		}
		f.Table = append(f.Table, r)
		fmt.Println(r)
		return nil
	})
	return f, err
}

// try builds the tests with a mutant and runs them. Tests that fail must pass without the mutant.
func (t *trial) try(ctx context.Context, m mutant) (text string, failed bool, err error) {
	dir, err := os.MkdirTemp(t.dir, "")
	if err != nil {
		return "", false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	c, err := m.change()
	if err != nil {
		return "", false, err
	}
	path, err := filepath.Abs(c.file)
	if err != nil {
		return "", false, err
	}
	list, err := overlay(dir, map[string][]byte{path: []byte(c.text)})
	if err != nil {
		return "", false, err
	}
	binary := filepath.Join(dir, "tests")
	if err := build(ctx, m.by.pkg, binary, "-overlay", list); err != nil {
		return "", false, err
	}
	if text, failed, err = t.run(ctx, m.by, binary); failed {
		err = t.innocent(ctx, m.by, text)
	}
	return text, failed, err
}

// overlay writes changed files, by their absolute paths, into a folder, and the list of them that the go command reads.
func overlay(dir string, files map[string][]byte) (list string, err error) {
	replace := map[string]string{}
	for i, path := range slices.Sorted(maps.Keys(files)) {
		replace[path] = filepath.Join(dir, fmt.Sprintf("mutated%d.go", i))
		if err := os.WriteFile(replace[path], files[path], 0o600); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "mutated.json")
	return list, os.WriteFile(list, data, 0o600)
}

// build compiles the tests of a package, without what only debuggers read.
func build(ctx context.Context, pkg, binary string, flags ...string) error {
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags...)
	text, err := exec.CommandContext(ctx, "go", append(args, importPath(pkg))...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s does not build: %w\n%s", pkg, err, text)
	}
	return nil
}

// importPath returns that of a folder. Package patterns such as ./member do not find the modules api and member.
func importPath(dir string) string {
	return "github.com/leasecast/leasecast/" + strings.TrimPrefix(dir, "./")
}

var errSlow = errors.New("not done in time")

// execute runs the tests in a binary, and returns what they print and whether they failed. It returns errSlow if they
// exceed the limit.
func (t *trial) execute(ctx context.Context, dir, binary string, limit time.Duration, variable string,
	args ...string) (string, bool, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(limited, binary, append(args, "-test.failfast")...)
	cmd.Dir, cmd.WaitDelay = dir, slack // what the tests started may hold their output open
	procs := max(1, runtime.NumCPU()/t.atOnce)
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(procs), variable)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", false, ctx.Err()
	case limited.Err() != nil:
		return "", false, fmt.Errorf("%w: %v", errSlow, limit)
	case errors.As(err, &exit), errors.Is(err, exec.ErrWaitDelay):
		return text.String(), true, nil
	}
	return text.String(), false, err
}

// run runs the tests that have to notice a written mutant.
func (t *trial) run(ctx context.Context, of tests, binary string, args ...string) (string, bool, error) {
	args = append([]string{"-test.run", of.run, "-test.skip", of.skip, "-test.v", "-test.timeout=0"}, args...)
	if of == simulation {
		args = append([]string{"-sim.stop", "1", "-sim.seeds", strconv.Itoa(t.seeds)}, args...)
	}
	text, failed, err := t.execute(ctx, of.pkg, binary, limit, "MUTANT=", args...)
	if err == nil && !failed && !strings.Contains(text, "=== RUN") {
		err = fmt.Errorf("%s has no test %s", of.pkg, of.run)
	}
	return text, failed, err
}

// innocent returns an error if the tests fail without a mutant as well: all of them, or the seed by which the
// simulation noticed the mutant.
func (t *trial) innocent(ctx context.Context, of tests, text string) error {
	t.mu.Lock()
	if t.plain == nil {
		t.plain = map[tests]*plain{}
	}
	p := t.plain[of]
	if p == nil {
		p = &plain{binary: filepath.Join(t.dir, fmt.Sprintf("plain%d", len(t.plain)))}
		t.plain[of] = p
	}
	t.mu.Unlock()
	p.once.Do(func() {
		if p.err = build(ctx, of.pkg, p.binary); p.err == nil && of != simulation {
			p.err = t.passes(ctx, of, p.binary)
		}
	})
	if p.err != nil || of != simulation {
		return p.err
	}
	seed := bySeed.FindStringSubmatch(text)
	if seed == nil {
		return fmt.Errorf("the simulation names no seed: %s", text)
	}
	return t.passes(ctx, of, p.binary, "-sim.from", seed[1], "-sim.seeds", "1")
}

func (t *trial) passes(ctx context.Context, of tests, binary string, args ...string) error {
	text, failed, err := t.run(ctx, of, binary, args...)
	if failed {
		return fmt.Errorf("fails without any mutant: %s", reason(of, text))
	}
	return err
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
