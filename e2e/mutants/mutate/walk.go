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
	stack []ast.Node // from the file to the parent of the visited node
	where string     // the function or the variable
	found []*site
}

// unread are the functions and methods whose results only people read.
var unread = []string{"String", "GoString", "Error", "MarshalJSON", "describe", "missingMessage"}

// sites returns those of a file, in the order of its text.
func (s *source) sites(f *file) []*site {
	w := &walk{source: s, file: f}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil && !slices.Contains(unread, d.Name.Name) {
				w.in(NameOf(d), d.Body)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if d.Tok == token.VAR {
					w.in(spec.(*ast.ValueSpec).Names[0].Name, spec)
				}
			}
		}
	}
	slices.SortStableFunc(w.found, func(a, b *site) int { return a.start - b.start })
	return w.found
}

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

func (w *walk) in(where string, root ast.Node) {
	w.where = where
	ast.Inspect(root, func(n ast.Node) bool {
		switch {
		case n == nil:
			w.stack = w.stack[:len(w.stack)-1]
			return false
		case !w.visit(n):
			return false
		}
		w.stack = append(w.stack, n)
		return true
	})
}

// visit adds the sites of a node and reports whether to visit its children.
func (w *walk) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case ast.Stmt:
		if w.logs(n) {
			return false
		}
		w.statement(n)
	case ast.Expr:
		return !w.isText(n) && !w.isType(n) && w.expression(n)
	}
	return true
}

// parent returns what an expression belongs to, and the expression as it stands there: with its parentheses.
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
		return false // its content is visited
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
		return w.isTagless(p)
	case *ast.RangeStmt:
		return e == p.X
	case *ast.ValueSpec:
		return slices.Contains(p.Values, e)
	case *ast.CompositeLit:
		return e != p.Type
	case *ast.IncDecStmt, *ast.Field, *ast.ArrayType, *ast.SwitchStmt:
		return false
	}
	return true
}

// isTagless reports whether a clause belongs to a switch that compares with nothing.
func (w *walk) isTagless(c *ast.CaseClause) bool {
	return slices.ContainsFunc(w.stack, func(n ast.Node) bool {
		s, ok := n.(*ast.SwitchStmt)
		return ok && s.Tag == nil && slices.Contains(s.Body.List, ast.Stmt(c))
	})
}

// add adds a site, whose name ends with "operator: before → after". See site.format.
func (w *walk) add(n ast.Node, format, change string, args ...any) *site {
	s := &site{file: w.file, start: w.file.offset(n.Pos()), end: w.file.offset(n.End()), format: format}
	s.first, s.name = s, w.file.path+" "+w.where+": "+fmt.Sprintf(change, args...)
	w.found = append(w.found, s)
	return s
}

// offset is where a position lies in the file.
func (f *file) offset(p token.Pos) int { return int(p - f.ast.FileStart) }

// text is the source of a node on one line.
func (w *walk) text(n ast.Node) string {
	return strings.Join(strings.Fields(string(w.file.text[w.file.offset(n.Pos()):w.file.offset(n.End())])), " ")
}

// literal is the source of a node as a part of a format.
func (w *walk) literal(n ast.Node) string { return strings.ReplaceAll(w.text(n), "%", "%%") }

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

// has reports whether some node in a node is such.
func has(in ast.Node, such func(ast.Node) bool) (found bool) {
	ast.Inspect(in, func(n ast.Node) bool {
		found = found || n != nil && such(n)
		return !found
	})
	return found
}

// isRepeatable reports whether the text of a node may be a second time in the mutated file, on one line.
func (w *walk) isRepeatable(n ast.Node) bool {
	text := string(w.file.text[w.file.offset(n.Pos()):w.file.offset(n.End())])
	return !strings.Contains(text, "//") && !has(n, func(n ast.Node) bool {
		_, function := n.(*ast.FuncLit)
		l, literal := n.(*ast.BasicLit)
		return function || literal && (strings.ContainsAny(l.Value, "`\t") || strings.Contains(l.Value, "  "))
	})
}

// isPure reports whether evaluating an expression calls and receives nothing.
func isPure(e ast.Expr) bool {
	return !has(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr, *ast.FuncLit, *ast.CompositeLit:
			return true
		case *ast.UnaryExpr:
			return n.Op == token.ARROW
		}
		return false
	})
}

// message is the field of conditions, events and observations that people read.
const message = "Message"

// logs reports whether a statement only writes what people read.
func (w *walk) logs(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return ok && w.isLog(call)
	case *ast.AssignStmt:
		to, ok := s.Lhs[0].(*ast.SelectorExpr)
		return ok && len(s.Lhs) == 1 && to.Sel.Name == message
	}
	return false
}

// onlyLogs reports whether nothing but a log depends on a branch.
func (w *walk) onlyLogs(s *ast.IfStmt) bool {
	return s.Else == nil && !slices.ContainsFunc(s.Body.List, func(s ast.Stmt) bool { return !w.logs(s) })
}

// isLog reports whether a call is of a logger's method.
func (w *walk) isLog(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && isNamed(w.info.Types[s.X].Type, "github.com/go-logr/logr", "Logger")
}

// isText reports whether an expression makes what people read, or decides only whether they do. An error that is made
// where it is returned has a site: only its arguments have none.
func (w *walk) isText(e ast.Expr) bool {
	if p, at := w.parent(e); at == e {
		if s, ok := p.(*ast.IfStmt); ok && e == s.Cond && w.onlyLogs(s) {
			return true
		}
	}
	switch e := e.(type) {
	case *ast.KeyValueExpr:
		field, ok := e.Key.(*ast.Ident)
		return ok && field.Name == message
	case *ast.CallExpr:
		switch w.function(e) {
		case "panic":
			return true
		case "fmt.Errorf", "fmt.Sprintf", "fmt.Sprint", "errors.New":
			if isError(w.info.Types[e].Type) {
				w.returned(e)
			}
			return true
		}
		return w.isLog(e)
	}
	return false
}

// function names the builtin or the package function that is called, or the method with its package.
func (w *walk) function(call *ast.CallExpr) string {
	var name *ast.Ident
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		name = f
	case *ast.SelectorExpr:
		name = f.Sel
	default:
		return ""
	}
	o := w.info.Uses[name]
	switch {
	case o == nil:
		return ""
	case o.Pkg() == nil:
		return o.Name()
	}
	return o.Pkg().Path() + "." + o.Name()
}

// isLock reports whether a call takes or releases a lock.
func (w *walk) isLock(call *ast.CallExpr) bool {
	return slices.Contains([]string{"sync.Lock", "sync.Unlock", "sync.RLock", "sync.RUnlock"}, w.function(call))
}

const metav1 = "k8s.io/apimachinery/pkg/apis/meta/v1"

// comparison returns the call and its method if an expression is Before, After or Equal of a time.
func (w *walk) comparison(e ast.Expr) (call *ast.CallExpr, method *ast.SelectorExpr) {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return nil, nil
	}
	switch w.function(call) {
	case "time.Before", "time.After", "time.Equal", metav1 + ".Before", metav1 + ".Equal":
		if method, ok = call.Fun.(*ast.SelectorExpr); ok && w.info.Selections[method] != nil {
			return call, method
		}
	}
	return nil, nil
}

func (w *walk) comparesTimes(e ast.Expr) bool {
	call, _ := w.comparison(e)
	return call != nil
}

// nameOfType returns a type as the file can write it, or false.
func (w *walk) nameOfType(t types.Type) (name string, ok bool) {
	ok = true
	name = types.TypeString(types.Default(t), func(p *types.Package) string {
		if p == w.types {
			return ""
		}
		i := slices.IndexFunc(w.file.ast.Imports, func(i *ast.ImportSpec) bool {
			return strings.Trim(i.Path.Value, `"`) == p.Path()
		})
		switch {
		case i < 0:
			ok = false
		case w.file.ast.Imports[i].Name != nil:
			return w.file.ast.Imports[i].Name.Name
		}
		return p.Name()
	})
	return name, ok
}

func (w *walk) isType(e ast.Expr) bool { return w.info.Types[e].IsType() }

func isBasic(t types.Type, info types.BasicInfo) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&info != 0
}

func isDuration(t types.Type) bool { return isNamed(t, "time", "Duration") }
func isError(t types.Type) bool    { return types.Identical(t, types.Universe.Lookup("error").Type()) }

func isNamed(t types.Type, path, name string) bool {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if t == nil {
		return false
	}
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == path && n.Obj().Name() == name
}
