package main

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/mutants/mutate"
)

// written returns all written mutants.
func written() []mutant {
	return slices.Concat(writing, expiring, choosing, fencing, reading)
}

// mutant is one deliberate breakage.
type mutant struct {
	name string // "rule: what is broken of it"
	by   tests  // must notice it
	in   string // the folder of a package, and a function, a method or a constant in it: "hub/tenure.Tenure.MayWrite"
	// old is an expression or a statement that is there exactly once, however it is laid out. new replaces it. An
	// empty one deletes the statement.
	old, new string
}

// tests are what has to notice a mutant: a package, and expressions for the tests of it that run and that do not.
type tests struct{ pkg, run, skip string }

// change is a file with a mutant in it.
type change struct{ file, text string }

// change makes the mutant of the code. It fails unless the code has what the mutant replaces exactly once.
func (m mutant) change() (change, error) {
	return must.Return(func() change {
		dir, name, _ := strings.Cut(m.in, ".")
		old := normalized(m.old)
		var all []change
		for _, file := range must.Get(filepath.Glob(filepath.Join(dir, "*.go"))) {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, fset := must.Get(os.ReadFile(file)), token.NewFileSet()
			tree := must.Get(parser.ParseFile(fset, file, text, parser.SkipObjectResolution))
			for _, n := range find(declared(tree, name), old) {
				from, to := fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset
				all = append(all, change{file, string(text[:from]) + m.new + string(text[to:])})
			}
		}
		must.FailIf(len(all) != 1, "%s has %d times %q: bring the mutant up to date", m.in, len(all), m.old)
		return all[0]
	})
}

// declared returns the function, the method or the values of the constant or variable of that name, or nil.
func declared(tree *ast.File, name string) ast.Node {
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if mutate.NameOf(d) == name {
				return d
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok && v.Names[0].Name == name {
					return v
				}
			}
		}
	}
	return nil
}

// find returns the expressions and statements in a declaration that read like this.
func find(in ast.Node, like string) (found []ast.Node) {
	if in == nil {
		return nil
	}
	ast.Inspect(in, func(n ast.Node) bool {
		switch n.(type) {
		case ast.Expr, ast.Stmt:
			// An expression that is a statement is found once.
			if text, err := layout(n); err == nil && text == like {
				found = append(found, n)
				return false
			}
		}
		return true
	})
	return found
}

// normalized lays an expression or a statement out as layout does.
func normalized(source string) string {
	file := "package p\nfunc f() {\n" + source + "\n}"
	tree, err := parser.ParseFile(token.NewFileSet(), "", file, parser.SkipObjectResolution)
	must.Do(err, "%q is neither an expression nor a statement", source)
	body := tree.Decls[0].(*ast.FuncDecl).Body.List
	must.FailIf(len(body) != 1, "%q is %d statements, not one", source, len(body))
	return must.Get(layout(body[0]))
}

// layout prints a node without its comments, and as if it had been written on one line.
func layout(n ast.Node) (string, error) {
	var text bytes.Buffer
	err := format.Node(&text, token.NewFileSet(), n) // which knows no position
	return text.String(), err
}
