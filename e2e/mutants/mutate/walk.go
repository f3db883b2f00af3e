package mutate

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// walk finds the sites of one file.
type walk struct {
	*source
	file  *file
	stack []ast.Node // from the file to the parent of the node that is looked at
	where string     // the function or the variable
	found []*site
}

// sites returns those of a file, in the order of its text.
func (s *source) sites(f *file) []*site {
	w := &walk{source: s, file: f}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body == nil || slices.Contains(forPeople, d.Name.Name) {
				continue
			}
			w.where = NameOf(d)
			w.in(d.Body)
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				w.where = spec.(*ast.ValueSpec).Names[0].Name
				w.in(spec)
			}
		}
	}
	slices.SortStableFunc(w.found, func(a, b *site) int { return a.start - b.start })
	return w.found
}

// forPeople are the functions and methods of which only people read the results.
var forPeople = []string{"String", "GoString", "Error", "MarshalJSON", "describe", "unguardedMessage"}

// NameOf is the name of a function with its receiver's type.
func NameOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	return types.ExprString(t) + "." + d.Name.Name
}

func (w *walk) in(root ast.Node) {
	w.stack = nil
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			w.stack = w.stack[:len(w.stack)-1]
			return false
		}
		if !w.visit(n) {
			return false
		}
		w.stack = append(w.stack, n)
		return true
	})
}

// visit adds the sites of a node and reports whether there may be others inside it.
func (w *walk) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case ast.Stmt:
		if w.speaks(n) {
			return false
		}
		w.statement(n)
	case ast.Expr:
		if w.ofText(n) || w.isType(n) {
			return false
		}
		return w.expression(n)
	}
	return true
}

func (w *walk) isType(e ast.Expr) bool { return w.info.Types[e].IsType() }

// expression adds the sites of an expression.
func (w *walk) expression(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		w.swapped(call)
	}
	of, ok := w.info.Types[e]
	if !ok || !of.IsValue() || !w.isRead(e) {
		return true
	}
	constant := of.Value != nil
	switch t := of.Type; {
	case isBool(t):
		w.truth(e, constant)
	case isDuration(t):
		w.duration(e, of)
	case constant && isInteger(t):
		w.integer(e, of)
	case isError(t):
		w.returned(e)
	}
	return !constant
}

// parent returns what an expression belongs to, and the expression as it stands there: with its
// parentheses.
func (w *walk) parent(e ast.Expr) (ast.Node, ast.Expr) {
	for _, n := range slices.Backward(w.stack) {
		p, ok := n.(*ast.ParenExpr)
		if !ok {
			return n, e
		}
		e = p
	}
	return nil, e
}

// isRead reports whether an expression stands where its value is used, and nothing else of it.
func (w *walk) isRead(e ast.Expr) bool {
	if _, ok := e.(*ast.ParenExpr); ok {
		return false // what is in it is looked at
	}
	p, e := w.parent(e)
	switch p := p.(type) {
	case *ast.AssignStmt:
		return slices.Contains(p.Rhs, e)
	case *ast.UnaryExpr:
		return p.Op != token.AND
	case *ast.SelectorExpr:
		return e != p.Sel
	case *ast.KeyValueExpr:
		return e == p.Value
	case *ast.CaseClause:
		return !w.hasTag(p)
	case *ast.RangeStmt:
		return e == p.X
	case *ast.ValueSpec:
		return slices.Contains(p.Values, e)
	case *ast.IncDecStmt, *ast.CompositeLit, *ast.Field, *ast.ArrayType, *ast.SwitchStmt:
		_, literal := p.(*ast.CompositeLit)
		return literal && e != p.(*ast.CompositeLit).Type
	}
	return true
}

// hasTag reports whether a clause is of a switch that compares with something.
func (w *walk) hasTag(c *ast.CaseClause) bool {
	for _, n := range slices.Backward(w.stack) {
		if s, ok := n.(*ast.SwitchStmt); ok && slices.Contains(s.Body.List, ast.Stmt(c)) {
			return s.Tag != nil
		}
	}
	return true
}

// add adds a site for a part of the file. changes say what becomes of it, one each mutant:
// "operator: before → after".
func (w *walk) add(n ast.Node, wrap func(inner string, first int) string, changes ...string) {
	s := &site{start: w.file.offset(n.Pos()), end: w.file.offset(n.End()), wrap: wrap}
	for _, c := range changes {
		s.names = append(s.names, fmt.Sprintf("%s %s: %s", w.file.path, w.where, c))
	}
	w.found = append(w.found, s)
}

// text is the source of a node on one line.
func (w *walk) text(n ast.Node) string {
	return strings.Join(strings.Fields(string(w.file.text[w.file.offset(n.Pos()):w.file.offset(n.End())])), " ")
}

// longest is how much of a text a name shows.
const longest = 90

// brief is the source of a node as names show it.
func (w *walk) brief(n ast.Node) string {
	text := []rune(w.text(n))
	if len(text) > longest {
		return string(text[:longest-1]) + "…"
	}
	return string(text)
}

// repeats reports whether the text of a node can be there a second time in the mutated file, on one line.
func (w *walk) repeats(n ast.Node) bool {
	ok := !strings.Contains(string(w.file.text[w.file.offset(n.Pos()):w.file.offset(n.End())]), "//")
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			ok = false
		case *ast.BasicLit:
			ok = ok && !strings.ContainsAny(n.Value, "`\t") && !strings.Contains(n.Value, "  ")
		}
		return ok
	})
	return ok
}

// nameOfType writes a type as the file can, or returns false.
func (w *walk) nameOfType(t types.Type) (string, bool) {
	ok := true
	name := types.TypeString(types.Default(t), func(p *types.Package) string {
		if p == w.types {
			return ""
		}
		for _, i := range w.file.ast.Imports {
			if strings.Trim(i.Path.Value, `"`) != p.Path() {
				continue
			}
			if i.Name != nil {
				return i.Name.Name
			}
			return p.Name()
		}
		ok = false
		return p.Name()
	})
	return name, ok
}

func isBool(t types.Type) bool    { return basic(t)&types.IsBoolean != 0 }
func isInteger(t types.Type) bool { return basic(t)&types.IsInteger != 0 }

func basic(t types.Type) types.BasicInfo {
	if b, ok := t.Underlying().(*types.Basic); ok {
		return b.Info()
	}
	return 0
}

func isDuration(t types.Type) bool { return isNamed(t, "time", "Duration") }
func isError(t types.Type) bool    { return types.Identical(t, types.Universe.Lookup("error").Type()) }

func isNamed(t types.Type, path, name string) bool {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == path && n.Obj().Name() == name
}
