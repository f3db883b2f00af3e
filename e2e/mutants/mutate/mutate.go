// Package mutate makes mutants of Go packages: small changes that a test has to notice.
//
// All mutants of a package are compiled in at once. Each mutated place asks package chosen
// whether the mutant of that place is the chosen one, so that one build serves all of them
// and a mutant costs a run of the tests. The changed files reach the compiler through an overlay.
//
// # Operators
//
//   - comparison: == and !=, < and >=, <= and > are exchanged; so is a Before or After negated;
//   - boundary: < and <=, > and >=; and those that Before and After say;
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
//   - what people read: logs, texts of errors, fields that are called Message, and the methods String, GoString,
//     Error and MarshalJSON;
//   - an assignment that declares, because nothing could use what it declares; a return and a panic, because
//     a function has to end (the branch that leads there is dropped instead);
//   - Lock and Unlock, because one without the other hangs, and the race detector is what notices both;
//   - arguments with calls in them as swapped ones, because both orders would call them; and those of functions
//     that do not tell them apart;
//   - a divisor that becomes zero, and the sizes that make is told;
//   - && for || and the other way round, because what notices that one operand decides nothing notices that too;
//   - what does not compile.
package mutate

import (
	"context"
	"fmt"
	"go/token"
	"slices"
	"strings"

	"github.com/leasecast/leasecast/e2e/mutants/chosen"
)

// Mutant is one change of one place.
type Mutant struct {
	// Number chooses the mutant in a build. It changes with the code.
	Number int
	// Name says where it is and what changes, and stays as long as these do:
	// "file function: operator: before → after", with an ordinal if there are several.
	Name string
	// Package is the folder of its package, from the root of the module.
	Package string
}

// Mutants are those of some packages, ready to be compiled.
type Mutants struct {
	All []Mutant
	// Files are the mutated ones, by their absolute paths.
	Files map[string][]byte
	// Misfits are the names of those that do not compile, and are left out.
	Misfits []string
}

// Make makes all mutants of the packages, which are given as to `go list`, in dir.
func Make(ctx context.Context, dir string, patterns ...string) (*Mutants, error) {
	sources, err := load(ctx, dir, patterns)
	if err != nil {
		return nil, err
	}
	made := &Mutants{Files: map[string][]byte{}}
	for _, s := range sources {
		if err := s.mutate(made); err != nil {
			return nil, fmt.Errorf("package %s: %w", s.path, err)
		}
	}
	if len(made.All) >= chosen.Most {
		return nil, fmt.Errorf("%d mutants are more than package chosen counts: raise Most", len(made.All))
	}
	return made, nil
}

// site is a part of a file with the mutants of it.
type site struct {
	start, end int // offsets in the file
	names      []string
	// wrap returns what the part becomes. inner is the part itself, in which other sites may
	// be mutated already; its mutants have the numbers from first on.
	wrap func(inner string, first int) string
	// of is the site whose mutants this one belongs to, where a mutant changes two places.
	of *site
}

func (s *site) main() *site {
	if s.of != nil {
		return s.of
	}
	return s
}

// mutate adds the mutants of a package.
func (s *source) mutate(made *Mutants) error {
	sites := make([][]*site, len(s.files))
	for i, f := range s.files {
		sites[i] = s.sites(f)
	}
	if err := s.dropMisfits(sites, made); err != nil {
		return err
	}
	for i, f := range s.files {
		if len(sites[i]) == 0 {
			continue
		}
		first := len(made.All) + 1
		made.Files[f.full] = f.render(sites[i], first)
		for _, name := range namesOf(sites[i]) {
			made.All = append(made.All, Mutant{Number: len(made.All) + 1, Name: name, Package: s.dir})
		}
	}
	return nil
}

// namesOf returns the full names of the mutants of a file, in order.
func namesOf(sites []*site) []string {
	var names []string
	seen := map[string]int{}
	for _, s := range sites {
		for _, name := range s.names {
			if seen[name]++; seen[name] > 1 {
				name = fmt.Sprintf("%s #%d", name, seen[name])
			}
			names = append(names, name)
		}
	}
	return names
}

// dropMisfits takes out what does not compile.
func (s *source) dropMisfits(sites [][]*site, made *Mutants) error {
	errs, err := s.errorsOf(s.renderAll(sites))
	if err != nil || len(errs) == 0 {
		return err
	}
	bad := map[*site]bool{}
	for _, e := range errs {
		at := e.Fset.Position(e.Pos)
		for i, f := range s.files {
			if f.full != at.Filename {
				continue
			}
			for _, one := range sites[i] {
				if bad[one.main()] || !f.covers(one, at.Line) {
					continue
				}
				alone := make([][]*site, len(s.files))
				for _, other := range sites[i] {
					if other.main() == one.main() {
						alone[i] = append(alone[i], other)
					}
				}
				left, err := s.errorsOf(s.renderAll(alone))
				if err != nil {
					return err
				}
				bad[one.main()] = len(left) > 0
			}
		}
	}
	for i := range sites {
		sites[i] = slices.DeleteFunc(sites[i], func(one *site) bool {
			if bad[one.main()] {
				made.Misfits = append(made.Misfits, one.names...)
			}
			return bad[one.main()]
		})
	}
	if errs, err = s.errorsOf(s.renderAll(sites)); err == nil && len(errs) > 0 {
		err = fmt.Errorf("the mutated code does not compile: %w", errs[0])
	}
	return err
}

// covers reports whether a line of the file belongs to a site.
func (f *file) covers(s *site, line int) bool {
	first := 1 + strings.Count(string(f.text[:s.start]), "\n")
	return first <= line && line <= first+strings.Count(string(f.text[s.start:s.end]), "\n")
}

func (s *source) renderAll(sites [][]*site) [][]byte {
	texts := make([][]byte, len(s.files))
	first := 1
	for i, f := range s.files {
		texts[i] = f.render(sites[i], first)
		first += len(namesOf(sites[i]))
	}
	return texts
}

// alias is the name of package chosen in mutated files.
const alias = "chosen__"

// render returns the text of the file with its sites mutated. Lines stay where they are.
func (f *file) render(sites []*site, first int) []byte {
	if len(sites) == 0 {
		return f.text
	}
	numbers := map[*site]int{}
	for _, s := range sites {
		numbers[s] = first
		first += len(s.names)
	}
	// The outer ones before the inner ones; of those on the same part the last is the outermost.
	order := slices.Clone(sites)
	slices.Reverse(order)
	slices.SortStableFunc(order, func(a, b *site) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return b.end - a.end
	})
	after := f.offset(f.ast.Name.End())
	head := string(f.text[:after]) + "; import " + alias + " \"" + chosenPath + "\""
	text, _ := f.part(after, len(f.text), order, numbers)
	return []byte(head + text)
}

// part renders what is between two offsets, and returns the sites that lie behind it.
func (f *file) part(start, end int, sites []*site, numbers map[*site]int) (string, []*site) {
	var b strings.Builder
	for len(sites) > 0 && sites[0].start < end {
		s := sites[0]
		b.Write(f.text[start:s.start])
		var inner string
		inner, sites = f.part(s.start, s.end, sites[1:], numbers)
		b.WriteString(s.wrap(inner, numbers[s.main()]))
		start = s.end
	}
	b.Write(f.text[start:end])
	return b.String(), sites
}

// offset is where a position lies in the file.
func (f *file) offset(p token.Pos) int { return int(p - f.ast.FileStart) }
