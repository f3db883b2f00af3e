package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// all returns the mutants of all tables.
func all() []mutant {
	return slices.Concat(expiry, handover, beside, move, registered, connections, author, clocks, failing, survivors, holes, hubs, hostile, gate,
		starting, accounts, starving, fences, reviewed)
}

// mutant is one deliberate breakage.
type mutant struct {
	name  string
	by    tests // must notice it
	edits []edit
}

// tests are what has to notice a mutant: a package, and an expression for its tests.
type tests struct{ pkg, run string }

// simulation is the one of the hub's and the reader's real code. It runs until the first
// seed that fails.
var simulation = tests{"./hub/controller", "^TestSimulation$"}

// stories are single traces in the worlds of the simulation, for what needs a coincidence.
var stories = tests{"./hub/controller", "^TestStories$"}

// edit replaces a text of a file that is there exactly once.
type edit struct{ file, old, new string }

// check tells whether the mutant fits the code.
func (m mutant) check() error {
	_, err := m.changed()
	return err
}

// changed returns the files that the mutant changes.
func (m mutant) changed() (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.edits {
		text, ok := files[e.file]
		if !ok {
			data, err := os.ReadFile(e.file)
			if err != nil {
				return nil, err
			}
			text = string(data)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("%s has %d times the text %q: bring the mutant up to date", e.file, n, e.old)
		}
		files[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return files, nil
}

// overlay writes the changed files into a folder, and the list of them that the go
// command reads.
func (m mutant) overlay(dir string) (string, error) {
	files, err := m.changed()
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range files {
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
