package mutate

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

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
