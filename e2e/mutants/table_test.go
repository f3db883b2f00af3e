package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/e2e/mutants/mutate"
)

// TestEveryWrittenMutantFits compiles the written mutants and looks for the tests that they name, because `make mutants`,
// which runs them, takes hours and is no part of `make test`.
func TestEveryWrittenMutantFits(t *testing.T) {
	table, folders := all(), map[string]bool{}
	for _, m := range table {
		for _, e := range m.edits {
			folders[importPath(path.Dir(e.file))] = true
		}
	}
	packages, err := mutate.Load(t.Context(), ".", slices.Collect(maps.Keys(folders))...)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range table {
		changed, err := m.changed()
		if err == nil {
			err = packages.Compile(changed)
		}
		if err == nil {
			err = hasTest(m.by)
		}
		if err != nil {
			t.Errorf("mutant %q: %v", m.name, err)
		}
		if names[m.name] {
			t.Errorf("two mutants are called %q", m.name)
		}
		names[m.name] = true
	}
}

var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// hasTest returns an error if no test of the package has such a name.
func hasTest(by tests) error {
	top, _, _ := strings.Cut(by.run, "/") // what follows names subtests
	pattern, err := regexp.Compile(top)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(by.pkg, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, found := range testName.FindAllSubmatch(text, -1) {
			if pattern.Match(found[1]) {
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no test %s", by.pkg, by.run)
}
