package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/mutants/mutate"
)

// mostWritten bounds the written mutants: one that breaks no rule is better left to the generated ones.
const mostWritten = 100

// TestEveryWrittenMutantFits looks for what each written mutant replaces, checks the types of what it makes of the
// code, and looks for the tests that it names.
func TestEveryWrittenMutantFits(t *testing.T) {
	folders := map[string]bool{}
	for _, m := range written() {
		dir, _, _ := strings.Cut(m.in, ".")
		folders[importPath(dir)] = true
	}
	packages := musttest.Get(mutate.Load(t.Context(), ".", slices.Collect(maps.Keys(folders))...))(t)
	names := map[string]bool{}
	for _, m := range written() {
		c, err := m.change()
		if err == nil {
			err = packages.Compile(c.file, c.text)
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

func TestEveryRuleHasWrittenMutants(t *testing.T) {
	count := map[string]int{}
	for _, m := range written() {
		rule, _, _ := strings.Cut(m.name, ":")
		count[rule]++
	}
	rules := []string{"reader", "fence"}
	for n := range 26 {
		rules = append(rules, fmt.Sprint(n+1))
	}
	for _, rule := range rules {
		if count[rule] == 0 {
			t.Errorf("rule %s has no mutant", rule)
		}
	}
	for rule := range count {
		if !slices.Contains(rules, rule) {
			t.Errorf("there is no rule %q", rule)
		}
	}
	if n := len(written()); n > mostWritten {
		t.Errorf("there are %d mutants, more than %d", n, mostWritten)
	}
}

func TestAMutantIsFoundHoweverTheCodeIsLaidOut(t *testing.T) {
	text := `package p

const deadline = 1 + 2

func (t *T) wait(now int) bool {
	if now < t.until && // the wall clock
		t.held {
		t.release(
			now,
		)
	}
	return t.held || t.held
}
`
	t.Chdir(t.TempDir())
	musttest.Do(t, errors.Join(os.Mkdir("p", 0o700), os.WriteFile("p/p.go", []byte(text), 0o600)))
	for name, tc := range map[string]struct {
		in, old, new, want string // want is empty where the mutant does not fit
	}{
		"an expression over two lines":  {"T.wait", "now<t.until && t.held", "false", "if false {"},
		"an operand":                    {"T.wait", "now < t.until", "true", "if true && // the wall clock"},
		"a statement":                   {"T.wait", "t.release(now)", "", "t.held {\n\t\t\n\t}"},
		"a constant":                    {"deadline", "1+2", "3", "const deadline = 3"},
		"something that is there often": {"T.wait", "t.held", "", ""},
		"something that is not there":   {"T.wait", "t.gone", "", ""},
		"another function":              {"wait", "now < t.until", "true", ""},
		"two statements":                {"T.wait", "t.release(now); t.held = true", "", ""},
		"no Go":                         {"T.wait", "now <", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := mutant{in: "p." + tc.in, old: tc.old, new: tc.new}.change()
			if tc.want == "" && err == nil || tc.want != "" && !strings.Contains(c.text, tc.want) {
				t.Errorf("got %q, %v", c.text, err)
			}
		})
	}
}

// hasTest returns an error if no test of the package has such a name.
func hasTest(by tests) error {
	return must.Try(func() {
		must.FailIf(!slices.ContainsFunc(testsIn(by.pkg), must.Get(regexp.Compile(by.run)).MatchString),
			"%s has no test %s", by.pkg, by.run)
	})
}

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
	made := musttest.Get(generation{}.make(t.Context()))(t)
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
		names := testsIn(p.dir)
		for _, name := range p.skip {
			if !slices.Contains(names, name) {
				t.Errorf("%s has no %s to skip", p.dir, name)
			}
		}
	}
}

// Such a program ends like one whose tests fail if, for example, a variable that it needs is not set.
func TestProgramThatRunsNoTestKillsNoMutant(t *testing.T) {
	for _, program := range []string{"true", "false"} {
		binary := musttest.Get(exec.LookPath(program))(t)
		err := must.Try(func() { (&trial{atOnce: 1}).run(t.Context(), tests{pkg: ".", run: "TestX"}, binary) })
		if err == nil || !strings.Contains(err.Error(), "runs no test TestX") {
			t.Errorf("%s: got %v", program, err)
		}
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
