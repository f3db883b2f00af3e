package mutate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/leasecast/leasecast/e2e/must"
)

// chosenPath is the package that mutated code calls.
const chosenPath = "github.com/leasecast/leasecast/e2e/mutants/chosen"

// source is a package with its types.
type source struct {
	path    string // of the import
	dir     string // from the root of the module
	files   []*file
	info    *types.Info
	types   *types.Package
	imports types.Importer
}

// file is one file of a package.
type file struct {
	path string // from the root of the module
	full string
	text []byte
	ast  *ast.File
}

// listed is a package in the output of go list.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// load reads packages, which are given as to go list, and the types of all that they import.
func load(ctx context.Context, dir string, patterns []string) (sources []*source) {
	root := must.Get(filepath.Abs(dir))
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-export",
		"-json=ImportPath,Dir,Export,GoFiles,DepOnly", chosenPath}, patterns...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	must.Do(err, "go list %v", patterns)
	exports := map[string]string{}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); { // what a package imports comes before it
		var p listed
		must.Do(d.Decode(&p))
		exports[p.ImportPath] = p.Export
		if p.DepOnly || p.ImportPath == chosenPath {
			continue
		}
		sources = append(sources, newSource(root, p, imports))
	}
	return sources
}

// newSource reads a package. Its files are named from the root on, even if they belong to another module.
func newSource(root string, p listed, imports types.Importer) *source {
	dir := must.Get(filepath.Rel(root, p.Dir))
	s := &source{path: p.ImportPath, dir: dir, imports: imports, info: &types.Info{
		Types:      map[ast.Expr]types.TypeAndValue{},
		Uses:       map[*ast.Ident]types.Object{},
		Defs:       map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	for _, name := range p.GoFiles {
		f := &file{path: filepath.ToSlash(filepath.Join(dir, name)), full: filepath.Join(p.Dir, name)}
		f.text = must.Get(os.ReadFile(f.full))
		s.files = append(s.files, f)
	}
	trees, pkg, errs := s.compile(func(f *file) []byte { return f.text }, s.info)
	if len(errs) > 0 {
		must.Do(errs[0])
	}
	s.types = pkg
	for i, f := range s.files {
		f.ast = trees[i]
	}
	return s
}

// compile checks the types of the package with these texts in its files, as the compiler does.
func (s *source) compile(text func(*file) []byte, info *types.Info) (trees []*ast.File, pkg *types.Package,
	errs []types.Error) {
	fset := token.NewFileSet()
	for _, f := range s.files {
		tree, err := parser.ParseFile(fset, f.full, text(f), parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, []types.Error{{Fset: fset, Msg: err.Error()}}
		}
		trees = append(trees, tree)
	}
	config := types.Config{Importer: s.imports, Error: func(err error) {
		if e := (types.Error{}); errors.As(err, &e) {
			errs = append(errs, e)
		}
	}}
	pkg, _ = config.Check(s.path, fset, trees, info) // errs has the error
	return trees, pkg, errs
}

// Packages are packages of which other versions can be compiled.
type Packages []*source

// Load reads packages, which are given as to go list, in dir.
func Load(ctx context.Context, dir string, patterns ...string) (Packages, error) {
	return must.Return(func() Packages { return load(ctx, dir, patterns) })
}

// Compile returns the compiler's first error if the file at a path from the root of the module had this text.
func (p Packages) Compile(path, text string) error {
	for _, s := range p {
		if !slices.ContainsFunc(s.files, func(f *file) bool { return f.path == path }) {
			continue
		}
		_, _, errs := s.compile(func(f *file) []byte {
			if f.path == path {
				return []byte(text)
			}
			return f.text
		}, nil)
		if len(errs) > 0 {
			return errs[0]
		}
		return nil
	}
	return fmt.Errorf("%s belongs to none of the packages", path)
}
