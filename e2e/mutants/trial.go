package main

import (
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

// limit bounds what one mutant may take. One that takes longer counts as a survivor.
const limit = 10 * time.Minute

// trial is how mutants are tried.
type trial struct {
	dir    string // for what is built
	seeds  int    // of the simulation
	atOnce int

	mu    sync.Mutex
	plain map[tests]*plain
}

// plain is what the tests say of the code as it is, found out once.
type plain struct {
	once   sync.Once
	binary string
	err    error
}

// result is what became of a mutant.
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

// try builds the tests with the mutant and runs them.
func (t *trial) try(ctx context.Context, m mutant) (result, error) {
	r := result{Name: m.name, By: strings.TrimSpace(m.by.pkg + " " + m.by.run)}
	began := time.Now()
	dir, err := os.MkdirTemp(t.dir, "")
	if err != nil {
		return r, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	c, err := m.change()
	if err != nil {
		return r, err
	}
	path, err := filepath.Abs(c.file)
	if err != nil {
		return r, err
	}
	list, err := overlay(dir, map[string][]byte{path: []byte(c.text)})
	if err != nil {
		return r, err
	}
	binary := filepath.Join(dir, "tests")
	text, failed, err := "", false, build(ctx, m.by, binary, "-overlay", list)
	if err == nil {
		text, failed, err = t.run(ctx, m.by, binary)
	}
	if failed {
		err = t.innocent(ctx, m.by, text)
	}
	r.Seconds = time.Since(began).Seconds()
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case err != nil: // the others may still be tried
		r.How = err.Error()
	case failed:
		r.Killed, r.How = true, reason(m.by, text)
	case m.by == simulation:
		r.How = fmt.Sprintf("%d seeds", t.seeds)
	default:
		r.How = r.By
	}
	return r, nil
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

// build compiles tests, without what only debuggers read.
func build(ctx context.Context, of tests, binary string, flags ...string) error {
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags...)
	text, err := exec.CommandContext(ctx, "go", append(args, importPath(of.pkg))...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s does not build: %w\n%s", of.pkg, err, text)
	}
	return nil
}

// importPath returns that of a folder. Package patterns such as ./member do not find the modules api and member.
func importPath(dir string) string {
	return "github.com/leasecast/leasecast/" + strings.TrimPrefix(dir, "./")
}

var errSlow = fmt.Errorf("not done in %v", limit)

// run runs tests, and returns what they print and whether they failed.
func (t *trial) run(ctx context.Context, of tests, binary string, args ...string) (string, bool, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args = append([]string{"-test.run", of.run, "-test.skip", of.skip, "-test.v", "-test.failfast", "-test.timeout=0"},
		args...)
	if of == simulation {
		args = append([]string{"-sim.stop", "1", "-sim.seeds", strconv.Itoa(t.seeds)}, args...)
	}
	cmd := exec.CommandContext(limited, binary, args...)
	cmd.Dir = of.pkg
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(max(1, runtime.NumCPU()/t.atOnce)))
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", false, ctx.Err()
	case limited.Err() != nil:
		return "", false, errSlow
	case errors.As(err, &exit):
		return string(text), true, nil
	case err == nil && !strings.Contains(string(text), "=== RUN"):
		return "", false, fmt.Errorf("%s has no test %s", of.pkg, of.run)
	}
	return string(text), false, err
}

// innocent makes sure that the tests do not complain of the code as it is: all of them,
// or the seed by which the simulation noticed the mutant.
func (t *trial) innocent(ctx context.Context, of tests, text string) error {
	t.mu.Lock()
	p := t.plain[of]
	if p == nil {
		p = &plain{binary: filepath.Join(t.dir, fmt.Sprintf("plain%d", len(t.plain)))}
		if t.plain == nil {
			t.plain = map[tests]*plain{}
		}
		t.plain[of] = p
	}
	t.mu.Unlock()
	p.once.Do(func() {
		if p.err = build(ctx, of, p.binary); p.err == nil && of != simulation {
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

// reason is the first thing that the tests complained of.
func reason(of tests, text string) string {
	if seed := bySeed.FindString(text); seed != "" && of == simulation {
		seed, _, _ = strings.Cut(seed, " (replay")
		return seed
	}
	if panicked := byPanic.FindString(text); panicked != "" {
		return panicked
	}
	// A subtest says more than the test that it belongs to, and is printed after it.
	found := byTest.FindAllStringSubmatch(text, -1)
	if len(found) == 0 {
		return "its exit"
	}
	last := found[0][1]
	for _, f := range found {
		if strings.HasPrefix(f[1], last+"/") {
			last = f[1]
		}
	}
	return last
}
