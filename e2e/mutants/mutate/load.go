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
	"strings"
)

// chosenPath is the package that mutated code asks.
const chosenPath = "github.com/leasecast/leasecast/e2e/mutants/chosen"

// source is a package with its types.
type source struct {
	path  string // of the import
	dir   string // from the root of the module
	files []*file
	info  *types.Info
	types *types.Package
	load  *loader
}

// file is one file of a package.
type file struct {
	path string // from the root of the module
	full string
	text []byte
	ast  *ast.File
}

// loader knows the types of all that the packages import.
type loader struct {
	fset    *token.FileSet
	exports map[string]string // import path → file with what it exports
	types.Importer
}

// listed is what `go list` says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// load reads packages, given as arguments of `go list`, and what they import.
func load(ctx context.Context, dir string, patterns []string) ([]*source, error) {
	l := &loader{fset: token.NewFileSet(), exports: map[string]string{}}
	l.Importer = importer.ForCompiler(l.fset, "gc", func(path string) (io.ReadCloser, error) {
		if l.exports[path] == "" {
			return nil, fmt.Errorf("package %s exports nothing", path)
		}
		return os.Open(l.exports[path])
	})
	deps, err := list(ctx, dir, append([]string{"-deps", "-export", chosenPath}, patterns...))
	if err != nil {
		return nil, err
	}
	for _, p := range deps {
		l.exports[p.ImportPath] = p.Export
	}
	asked, err := list(ctx, dir, patterns)
	if err != nil {
		return nil, err
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var sources []*source
	for _, p := range asked {
		s, err := l.read(root, p)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// list asks the go command.
func list(ctx context.Context, dir string, args []string) ([]listed, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,Export,GoFiles"}, args...)...)
	cmd.Dir = dir
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w\n%s", strings.Join(args, " "), err, complaints.Bytes())
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// read reads a package. Its files are named from the root on, also where it is of another module.
func (l *loader) read(root string, p listed) (*source, error) {
	s := &source{path: p.ImportPath, load: l}
	var err error
	if s.dir, err = filepath.Rel(root, p.Dir); err != nil {
		return nil, err
	}
	slices.Sort(p.GoFiles)
	for _, name := range p.GoFiles {
		f := &file{path: filepath.ToSlash(filepath.Join(s.dir, name)), full: filepath.Join(p.Dir, name)}
		if f.text, err = os.ReadFile(f.full); err != nil {
			return nil, err
		}
		s.files = append(s.files, f)
	}
	return s, s.check()
}

// check parses the files of a package and finds its types.
func (s *source) check() error {
	var trees []*ast.File
	for _, f := range s.files {
		var err error
		if f.ast, err = parser.ParseFile(s.load.fset, f.full, f.text, parser.SkipObjectResolution); err != nil {
			return err
		}
		trees = append(trees, f.ast)
	}
	s.info = &types.Info{
		Types:      map[ast.Expr]types.TypeAndValue{},
		Uses:       map[*ast.Ident]types.Object{},
		Defs:       map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	config := types.Config{Importer: s.load}
	var err error
	s.types, err = config.Check(s.path, s.load.fset, trees, s.info)
	return err
}

// errorsOf returns what the compiler would say of the package with other texts in its files.
func (s *source) errorsOf(texts [][]byte) ([]types.Error, error) {
	fset := token.NewFileSet()
	var trees []*ast.File
	for i, f := range s.files {
		tree, err := parser.ParseFile(fset, f.full, texts[i], parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("the mutated file does not parse: %w", err)
		}
		trees = append(trees, tree)
	}
	var all []types.Error
	config := types.Config{Importer: s.load, Error: func(err error) {
		var e types.Error
		if errors.As(err, &e) {
			all = append(all, e)
		}
	}}
	_, _ = config.Check(s.path, fset, trees, nil)
	return all, nil
}
