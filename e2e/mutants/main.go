// Command mutants breaks the rules of the protocol in the code, one at a time, and runs
// the simulation against each: it must find them all. A mutant is a replacement of text
// that the compiler sees through an overlay; the files themselves stay as they are.
//
// It prints a table and writes out/mutants.json. It fails if a mutant survives, or if
// the text that it replaces is not there exactly once.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// simulated is the package whose test is the simulation.
const simulated = "./hub/controller"

// limit bounds what one mutant may take: one that never ends is killed by it.
const limit = 10 * time.Minute

func main() {
	seeds := flag.Int("seeds", 20000, "how many `seeds` a mutant must survive to count as a survivor")
	only := flag.String("only", "", "run only the mutants whose names match this `expression`")
	out := flag.String("out", "out/mutants.json", "the `file` for the figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *seeds, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// figures is what is written.
type figures struct {
	Mutants int `json:"mutants"`
	Killed  int `json:"killed"`
}

func run(ctx context.Context, seeds int, only, out string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, m := range mutants { // before any of them costs time
		if _, err := m.overlay(dir); err != nil {
			return fmt.Errorf("mutant %q: %w", m.name, err)
		}
	}
	var f figures
	var survivors []string
	for _, m := range mutants {
		if !pattern.MatchString(m.name) {
			continue
		}
		how, killed, err := m.try(ctx, dir, seeds)
		if err != nil {
			return fmt.Errorf("mutant %q: %w", m.name, err)
		}
		f.Mutants++
		if killed {
			f.Killed++
		} else {
			survivors = append(survivors, m.name)
		}
		fmt.Printf("%-62s %s\n", m.name, how)
	}
	fmt.Printf("%d of %d mutants killed\n", f.Killed, f.Mutants)
	if err := write(out, f); err != nil {
		return err
	}
	if len(survivors) > 0 {
		return fmt.Errorf("survivors are holes in the oracle: %s", strings.Join(survivors, "; "))
	}
	return nil
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

// mutant is one deliberate breakage.
type mutant struct {
	name  string
	edits []edit
}

// edit replaces a text of a file that is there exactly once.
type edit struct{ file, old, new string }

// try builds the simulation with the mutant and runs it.
func (m mutant) try(ctx context.Context, dir string, seeds int) (how string, killed bool, err error) {
	overlay, err := m.overlay(dir)
	if err != nil {
		return "", false, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	binary := filepath.Join(dir, "simulation")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", binary, simulated)
	if text, err := build.CombinedOutput(); err != nil {
		return "DOES NOT BUILD: " + strings.ReplaceAll(string(text), "\n", " "), false, ctx.Err()
	}
	test := exec.CommandContext(ctx, binary, "-test.run", "^TestSimulation$", "-test.v", "-test.timeout", "0",
		"-sim.stop", "1", "-sim.seeds", strconv.Itoa(seeds))
	test.Dir = dir
	began := time.Now()
	text, err := test.CombinedOutput()
	took := time.Since(began).Round(100 * time.Millisecond)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return fmt.Sprintf("SURVIVED %d seeds in %v", seeds, took), false, nil
	case ctx.Err() == nil && errors.As(err, &exit):
		return fmt.Sprintf("killed in %v: %s", took, reason(string(text))), true, nil
	default:
		return "", false, err
	}
}

var verdict = regexp.MustCompile(`seed \d+: .*|panic: .*|fatal error: .*`)

// reason is the first thing that the simulation complained of.
func reason(text string) string {
	found := verdict.FindString(text)
	found, _, _ = strings.Cut(found, " (replay")
	return found
}

// overlay writes the changed files, and the list of them that the go command reads.
func (m mutant) overlay(dir string) (string, error) {
	changed := map[string]string{}
	for _, e := range m.edits {
		text, ok := changed[e.file]
		if !ok {
			data, err := os.ReadFile(e.file)
			if err != nil {
				return "", err
			}
			text = string(data)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s has %d times the text %q: bring the mutant up to date", e.file, n, e.old)
		}
		changed[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	replace := map[string]string{}
	for file, text := range changed {
		path := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
		absolute, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		replace[absolute] = path
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, data, 0o600)
}
