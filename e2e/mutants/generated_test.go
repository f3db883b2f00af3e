package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/mutants/mutate"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := os.Chdir("../.."); err != nil { // where the command runs
		panic(err)
	}
	os.Exit(m.Run())
}

// TestAllPackagesCompileWithTheirMutants: and every explanation is of a mutant. Make looks at the types of all that it
// returns, as the compiler does.
func TestAllPackagesCompileWithTheirMutants(t *testing.T) {
	made := harness.Get(generation{}.make(t.Context()))(t)
	names := map[string]bool{}
	for _, m := range made.All {
		if names[m.Name] {
			t.Errorf("two mutants have the name %q", m.Name)
		}
		names[m.Name] = true
	}
	for _, p := range targets {
		if !slices.ContainsFunc(made.All, func(m mutate.Mutant) bool { return m.Package == p.dir }) {
			t.Errorf("%s has no mutants", p.dir)
		}
	}
	for _, name := range made.Misfits {
		t.Logf("does not compile: %s", name)
	}
}

func TestASampleStaysTheSame(t *testing.T) {
	var all []mutate.Mutant
	for i := range 100 {
		all = append(all, mutate.Mutant{Number: i + 1, Name: "a mutant " + strings.Repeat("x", i)})
	}
	everything := regexp.MustCompile("")
	one := generation{sample: 10, draw: 1}.drawn(all, everything)
	if again := (generation{sample: 10, draw: 1}).drawn(all, everything); len(one) != 10 || !slices.Equal(one, again) {
		t.Errorf("drew %v, then %v", one, again)
	}
	if other := (generation{sample: 10, draw: 2}).drawn(all, everything); slices.Equal(one, other) {
		t.Errorf("another draw drew the same: %v", other)
	}
	gone := slices.DeleteFunc(slices.Clone(all), func(m mutate.Mutant) bool { return m == one[3] })
	left := generation{sample: 10, draw: 1}.drawn(gone, everything)
	for _, m := range one {
		if m != one[3] && !slices.Contains(left, m) {
			t.Errorf("%q is no longer drawn because another mutant is gone", m.Name)
		}
	}
	if named := (generation{sample: 1}).drawn(all, regexp.MustCompile("^a mutant x{98,}$")); len(named) != 2 {
		t.Errorf("-only takes %v, want both", named)
	}
}

func TestSkippedTestsExist(t *testing.T) {
	for _, p := range targets {
		names := harness.Get(testsIn(p.dir))(t)
		for _, name := range p.skip {
			if !slices.Contains(names, name) {
				t.Errorf("%s has no %s to skip", p.dir, name)
			}
		}
	}
}

// TestOnlyWhatMatches: a name that nothing has is an error, and the figures of an earlier run are gone.
func TestOnlyWhatMatches(t *testing.T) {
	out := filepath.Join(t.TempDir(), "mutants.json")
	harness.Must(t, os.WriteFile(out, []byte("{}"), 0o600))
	err := must.Try(func() { run(t.Context(), &trial{atOnce: 1}, generation{}, "^nothing has this name$", out) })
	if err == nil || !strings.Contains(err.Error(), "no mutant matches") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Error("the figures of an earlier run are still there")
	}
}

func TestTheScoreMustSuffice(t *testing.T) {
	for killed, ok := range map[int]bool{100: true, 95: true, 94: false} {
		f := generated{Killed: killed, ByPackage: map[string]*score{"member": {Mutants: 100, Killed: killed}}}
		if err := f.verdict(); (err == nil) != ok {
			t.Errorf("%d of 100 killed: got %v", killed, err)
		}
	}
}
