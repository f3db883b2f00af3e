// Package mutate makes mutants of Go packages: small changes that a test has to notice.
//
// All mutants of a package are compiled in at once. Each mutated place asks package chosen whether its mutant is the
// chosen one. So one build serves all of them, and a mutant costs a run of the tests. The changed files reach the
// compiler through an overlay.
//
// # Operators
//
//   - comparison: == and !=, < and >=, <= and > are exchanged; so is a Before or After negated;
//   - boundary: < and <=, > and >= are exchanged; so are those that Before and After mean;
//   - condition: an operand of && or || decides nothing;
//   - negation: any other condition, and a bool that is returned, passed or stored;
//   - branch: the body of an if, or one condition of a switch without a tag, is never reached;
//   - statement: a call, an assignment, a defer, a go, a send, a break or a continue is dropped;
//   - error: an `if err != nil` is never entered; an error is returned as nil;
//   - duration: a time.Duration that is a constant, a variable or a field is zero;
//   - constant: an integer is one more or one less;
//   - swapped: two adjacent arguments of one type change places.
//
// # What is left out
//
//   - what people read: logs, texts of errors, fields named Message, and the methods String, GoString, Error and
//     MarshalJSON;
//   - an assignment that declares, because nothing could use what it declares; a return and a panic, because
//     a function has to end (the branch that leads there is dropped instead);
//   - Lock and Unlock, because one without the other hangs, and the race detector is what notices both;
//   - swapped arguments that contain calls, because both orders would call them, and those of functions for which
//     the order does not matter;
//   - a divisor that becomes zero, and the sizes in a make;
//   - && for || and the other way round, because what notices that one operand decides nothing notices that too;
//   - bools of a named type, constants that may overflow, and boundaries of times that are no time.Time, because the
//     mutant may not compile.
package mutate

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/mutants/chosen"
)

// Mutant is one change of one place.
type Mutant struct {
	// Number chooses the mutant in a build. It changes with the code.
	Number int
	// Name is "file function: operator: before → after", with an ordinal if there are several. It changes only if the
	// place does.
	Name string
	// Package is the folder of its package, from the root of the module.
	Package string
}

// Mutants are those of some packages, ready to be compiled.
type Mutants struct {
	All []Mutant
	// Files are the mutated ones, by their absolute paths.
	Files map[string][]byte
}

// Make makes all mutants of the packages, which are given as to go list, in dir.
func Make(ctx context.Context, dir string, patterns ...string) (*Mutants, error) {
	return must.Return(func() *Mutants {
		made := &Mutants{Files: map[string][]byte{}}
		for _, s := range load(ctx, dir, patterns) {
			s.mutate(made)
		}
		must.FailIf(len(made.All) >= chosen.Most, "%d mutants are more than package chosen counts: raise Most", len(made.All))
		return made
	})
}

// site is a part of a file that a mutant changes.
type site struct {
	file       *file
	start, end int // offsets in the file
	// format is what the part becomes, of %[1]d, the number, and %[2]s, the part with the sites in it.
	format string
	// first is the site itself, unless its mutant changes two places. Only the first has a name and a number.
	first  *site
	name   string
	number int
}

// mutate adds the mutants of a package.
func (s *source) mutate(made *Mutants) {
	var sites []*site
	for _, f := range s.files {
		sites = append(sites, s.sites(f)...)
	}
	if _, _, errs := s.compile(func(f *file) []byte { return f.render(sites) }, nil); len(errs) > 0 {
		must.Fail("package %s: the mutated code does not compile: %w", s.path, errs[0])
	}
	seen := map[string]int{}
	for _, one := range sites {
		if one.first != one {
			continue
		}
		name := one.name
		if seen[name]++; seen[name] > 1 {
			name = fmt.Sprintf("%s #%d", name, seen[name])
		}
		one.number = len(made.All) + 1
		made.All = append(made.All, Mutant{Number: one.number, Name: name, Package: s.dir})
	}
	for _, f := range s.files {
		if text := f.render(sites); !bytes.Equal(text, f.text) {
			made.Files[f.full] = text
		}
	}
}

// alias is the name of package chosen in mutated files.
const alias = "chosen__"

// render returns the text of the file with those of the sites mutated that belong to it. Lines stay where they are.
func (f *file) render(sites []*site) []byte {
	own := slices.DeleteFunc(slices.Clone(sites), func(s *site) bool { return s.file != f })
	if len(own) == 0 {
		return f.text
	}
	// The outer ones before the inner ones; of those on the same part the last is the outermost.
	slices.Reverse(own)
	slices.SortStableFunc(own, func(a, b *site) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return b.end - a.end
	})
	after := f.offset(f.ast.Name.End())
	text, _ := f.part(after, len(f.text), own)
	return fmt.Appendf(nil, "%s; import %s %q%s", f.text[:after], alias, chosenPath, text)
}

// part renders what is between two offsets, and returns the sites behind it.
func (f *file) part(start, end int, sites []*site) (string, []*site) {
	var b strings.Builder
	for len(sites) > 0 && sites[0].start < end {
		s := sites[0]
		b.Write(f.text[start:s.start])
		var inner string
		inner, sites = f.part(s.start, s.end, sites[1:])
		fmt.Fprintf(&b, s.format, s.first.number, inner)
		start = s.end
	}
	b.Write(f.text[start:end])
	return b.String(), sites
}
