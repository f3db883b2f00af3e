package mutate

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// message is the field of conditions, events and observations that people read.
const message = "Message"

// speaks reports whether a statement only tells people something.
func (w *walk) speaks(s ast.Stmt) bool {
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

// onlySpeaks reports whether nothing but a log depends on a branch.
func (w *walk) onlySpeaks(s *ast.IfStmt) bool {
	return s.Else == nil && !slices.ContainsFunc(s.Body.List, func(s ast.Stmt) bool { return !w.speaks(s) })
}

// isLog reports whether a call is of a logger's method.
func (w *walk) isLog(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	t := w.info.Types[s.X].Type
	return t != nil && isNamed(t, "github.com/go-logr/logr", "Logger")
}

// ofText reports whether an expression makes what people read, or decides only whether they do.
func (w *walk) ofText(e ast.Expr) bool {
	if s, ok := w.up(0).(*ast.IfStmt); ok && e == s.Cond && w.onlySpeaks(s) {
		return true
	}
	if pair, ok := e.(*ast.KeyValueExpr); ok {
		field, ok := pair.Key.(*ast.Ident)
		return ok && field.Name == message
	}
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	if w.isLog(call) || w.panics(call) {
		return true
	}
	// One that wraps an error is still returned or not: only its arguments are left out.
	switch name := w.function(call); name {
	case "fmt.Errorf", "fmt.Sprintf", "fmt.Sprint", "errors.New":
		w.returnedText(call)
		return true
	}
	return false
}

// returnedText adds the site of an error that is made where it is returned.
func (w *walk) returnedText(call *ast.CallExpr) {
	if isError(w.info.Types[call].Type) {
		w.returned(call)
	}
}

// function names the package function that is called, or the method with its package.
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
	if o == nil {
		return ""
	}
	if o.Pkg() == nil {
		return o.Name()
	}
	return o.Pkg().Path() + "." + o.Name()
}

func (w *walk) isBuiltin(call *ast.CallExpr, name string) bool {
	i, ok := call.Fun.(*ast.Ident)
	if !ok || i.Name != name {
		return false
	}
	_, ok = w.info.Uses[i].(*types.Builtin)
	return ok
}

func (w *walk) panics(call *ast.CallExpr) bool { return w.isBuiltin(call, "panic") }

// locks reports whether a call takes or gives back a lock.
func (w *walk) locks(call *ast.CallExpr) bool {
	return slices.Contains([]string{"sync.Lock", "sync.Unlock", "sync.RLock", "sync.RUnlock"}, w.function(call))
}

// symmetric reports whether a function does not tell its arguments apart.
func (w *walk) symmetric(call *ast.CallExpr) bool {
	switch name := w.function(call); name {
	case "max", "min", "append", "make":
		return true
	default:
		return strings.HasSuffix(name, "Equal")
	}
}

// still reports whether an expression may be asked twice: nothing is called or received in it.
func still(e ast.Expr) bool {
	ok := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr, *ast.FuncLit, *ast.CompositeLit:
			ok = false
		case *ast.UnaryExpr:
			ok = ok && n.Op != token.ARROW
		}
		return ok
	})
	return ok
}
