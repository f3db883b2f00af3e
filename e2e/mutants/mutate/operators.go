package mutate

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
)

// statement adds the sites of a statement.
func (w *walk) statement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.IfStmt:
		w.branch(s)
	case *ast.CaseClause:
		if w.isTagless(s) {
			for _, e := range s.List {
				w.add(e, never, "branch: case "+w.brief(e)+" dropped")
			}
		}
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok && !w.locks(call) && !w.panics(call) {
			w.dropped(s)
		}
	case *ast.AssignStmt:
		if s.Tok != token.DEFINE && !onlyBlank(s.Lhs) {
			w.dropped(s)
		}
	case *ast.DeferStmt:
		if !w.locks(s.Call) {
			w.dropped(s)
		}
	case *ast.BranchStmt:
		if s.Tok == token.BREAK || s.Tok == token.CONTINUE {
			w.dropped(s)
		}
	case *ast.IncDecStmt, *ast.GoStmt, *ast.SendStmt:
		w.dropped(s)
	}
}

func (w *walk) isTagless(c *ast.CaseClause) bool {
	s, ok := w.up(1).(*ast.SwitchStmt)
	return ok && s.Tag == nil && c.List != nil
}

// up is an ancestor of the node that is looked at: 0 is its parent.
func (w *walk) up(n int) ast.Node {
	if n >= len(w.stack) {
		return nil
	}
	return w.stack[len(w.stack)-1-n]
}

// never makes a condition false.
func never(inner string, first int) string {
	return fmt.Sprintf("(!%s.Is(%d) && (%s))", alias, first, inner)
}

func (w *walk) branch(s *ast.IfStmt) {
	if w.onlySpeaks(s) {
		return
	}
	operator := "branch"
	if b, ok := s.Cond.(*ast.BinaryExpr); ok && b.Op == token.NEQ && isError(w.info.Types[b.X].Type) {
		operator = "error"
	}
	w.add(s.Cond, never, operator+": if "+w.brief(s.Cond)+" dropped")
}

// dropped adds a statement that may be left out.
func (w *walk) dropped(s ast.Stmt) {
	switch p := w.up(0).(type) {
	case *ast.BlockStmt, *ast.CaseClause:
	case *ast.CommClause:
		if s == p.Comm {
			return
		}
	default:
		return
	}
	w.add(s, func(inner string, first int) string {
		return fmt.Sprintf("if !%s.Is(%d) { %s }", alias, first, inner)
	}, "statement: "+w.brief(s)+" dropped")
}

func onlyBlank(es []ast.Expr) bool {
	return !slices.ContainsFunc(es, func(e ast.Expr) bool {
		i, ok := e.(*ast.Ident)
		return !ok || i.Name != "_"
	})
}

// opposite and boundary are what comparisons become.
var (
	opposite = map[token.Token]token.Token{
		token.EQL: token.NEQ, token.NEQ: token.EQL,
		token.LSS: token.GEQ, token.GEQ: token.LSS, token.LEQ: token.GTR, token.GTR: token.LEQ,
	}
	boundary = map[token.Token]token.Token{
		token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	}
)

// truth adds what can be changed of a bool.
func (w *walk) truth(e ast.Expr, constant bool) {
	p, _ := w.parent(e)
	b, binary := e.(*ast.BinaryExpr)
	switch {
	case binary && (b.Op == token.LAND || b.Op == token.LOR): // its operands are changed
	case binary && !constant && opposite[b.Op] != token.ILLEGAL:
		w.negate(e, "comparison", fmt.Sprintf("%s → %s", w.brief(e), opposite[b.Op]))
		if to := boundary[b.Op]; to != token.ILLEGAL {
			w.instead(e, fmt.Sprintf("(%s) %s (%s)", w.text(b.X), to, w.text(b.Y)),
				fmt.Sprintf("boundary: %s → %s", w.brief(e), to))
		}
	default:
		w.leaf(e, p)
	}
	// An operand of && or || decides nothing, if it is no such chain itself.
	if in, ok := p.(*ast.BinaryExpr); ok && (in.Op == token.LAND || in.Op == token.LOR) && (!binary || b.Op != in.Op) {
		w.add(e, func(inner string, first int) string {
			if in.Op == token.LAND {
				return fmt.Sprintf("(%s.Is(%d) || (%s))", alias, first, inner)
			}
			return never(inner, first)
		}, fmt.Sprintf("condition: %s dropped from %s", w.brief(e), in.Op))
	}
}

// leaf negates a bool that is no comparison.
func (w *walk) leaf(e ast.Expr, parent ast.Node) {
	switch p := parent.(type) {
	case *ast.BinaryExpr:
		if p.Op != token.LAND && p.Op != token.LOR {
			return // the comparison is inverted
		}
	case *ast.IfStmt, *ast.CaseClause, *ast.ReturnStmt, *ast.AssignStmt, *ast.KeyValueExpr, *ast.ValueSpec:
	case *ast.UnaryExpr:
		if !w.comparesTimes(e) {
			return
		}
	case *ast.CallExpr:
		if w.isType(p.Fun) {
			return
		}
	default:
		return
	}
	if not, ok := e.(*ast.UnaryExpr); ok {
		if _, binary := ast.Unparen(not.X).(*ast.BinaryExpr); binary || w.comparesTimes(not.X) {
			return // changed where it stands
		}
	}
	if w.comparesTimes(e) {
		w.negate(e, "comparison", "!"+w.brief(e))
		call := e.(*ast.CallExpr)
		s := call.Fun.(*ast.SelectorExpr)
		if inverse := map[string]string{"Before": "After", "After": "Before"}[s.Sel.Name]; inverse != "" {
			w.instead(e, fmt.Sprintf("!(%s).%s(%s)", w.text(s.X), inverse, w.text(call.Args[0])),
				fmt.Sprintf("boundary: %s → or equal", w.brief(e)))
		}
		return
	}
	w.negate(e, "negation", w.brief(e))
}

// comparesTimes reports whether an expression is Before, After or Equal of a time.
func (w *walk) comparesTimes(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return false
	}
	switch name := w.function(call); name {
	case "time.Before", "time.After", "time.Equal", metav1 + ".Before", metav1 + ".Equal":
		return w.info.Selections[call.Fun.(*ast.SelectorExpr)] != nil
	}
	return false
}

const metav1 = "k8s.io/apimachinery/pkg/apis/meta/v1"

func (w *walk) negate(e ast.Expr, operator, change string) {
	w.add(e, func(inner string, first int) string {
		return fmt.Sprintf("(%s.Is(%d) != (%s))", alias, first, inner)
	}, operator+": "+change)
}

// instead adds another condition in the place of one. Only one of the two is asked.
func (w *walk) instead(e ast.Expr, other, change string) {
	if !w.repeats(e) {
		return
	}
	w.add(e, func(inner string, first int) string {
		return fmt.Sprintf("(%[1]s.Is(%[2]d) && (%[3]s) || !%[1]s.Is(%[2]d) && (%[4]s))", alias, first, other, inner)
	}, change)
}

// duration makes one zero.
func (w *walk) duration(e ast.Expr, of types.TypeAndValue) {
	if of.Value != nil {
		if constant.Sign(of.Value) == 0 {
			return
		}
	} else {
		switch e.(type) {
		case *ast.Ident, *ast.SelectorExpr:
		default:
			return
		}
	}
	p, at := w.parent(e)
	switch p := p.(type) {
	case *ast.BinaryExpr:
		if at == p.Y && (p.Op == token.QUO || p.Op == token.REM) {
			return
		}
	case *ast.AssignStmt:
		if p.Tok == token.QUO_ASSIGN || p.Tok == token.REM_ASSIGN {
			return
		}
	}
	w.add(e, func(inner string, first int) string {
		return fmt.Sprintf("%s.Zero(%d, %s)", alias, first, inner)
	}, "duration: "+w.brief(e)+" → 0")
}

// integer changes a constant by one.
func (w *walk) integer(e ast.Expr, of types.TypeAndValue) {
	p, at := w.parent(e)
	if !w.counts(p, at) {
		return
	}
	if n, ok := of.Type.(*types.Named); ok && n.Obj().Pkg() != nil {
		return // one of a list of names
	}
	t, ok := w.nameOfType(of.Type)
	if !ok {
		return
	}
	for _, by := range []string{"+", "-"} {
		if by == "-" && constant.Sign(of.Value) == 0 {
			continue
		}
		w.add(e, func(inner string, first int) string {
			// Converted before it is added to, so that a constant of several operands stays one.
			return fmt.Sprintf("%s.Other[%s](%d, %s, %s(%s)%s1)", alias, t, first, inner, t, w.text(e), by)
		}, fmt.Sprintf("constant: %s → %s1 in %s", w.brief(e), by, w.brief(p)))
	}
}

// counts reports whether it matters by one what constant stands there. In a comparison that has
// a boundary, that is what is moved.
func (w *walk) counts(parent ast.Node, at ast.Expr) bool {
	switch p := parent.(type) {
	case *ast.BinaryExpr:
		return slices.Contains([]token.Token{token.ADD, token.SUB, token.EQL, token.NEQ}, p.Op)
	case *ast.CallExpr:
		return at != p.Fun && !w.isType(p.Fun) && !w.isBuiltin(p, "make")
	case *ast.ReturnStmt, *ast.AssignStmt, *ast.ValueSpec, *ast.IndexExpr, *ast.SliceExpr:
		return true
	}
	return false
}

// returned makes an error nil where it is returned.
func (w *walk) returned(e ast.Expr) {
	if p, _ := w.parent(e); p == nil {
		return
	} else if _, ok := p.(*ast.ReturnStmt); !ok {
		return
	}
	w.add(e, func(inner string, first int) string {
		return fmt.Sprintf("%s.Nil(%d, %s)", alias, first, inner)
	}, "error: return "+w.brief(e)+" → nil")
}

// swapped exchanges two adjacent arguments.
func (w *walk) swapped(call *ast.CallExpr) {
	if call.Ellipsis.IsValid() || w.isType(call.Fun) || w.symmetric(call) {
		return
	}
	for i := range len(call.Args) - 1 {
		a, b := call.Args[i], call.Args[i+1]
		ta, tb := w.info.Types[a], w.info.Types[b]
		if !ta.IsValue() || !tb.IsValue() || ta.IsNil() || !types.Identical(ta.Type,
			tb.Type) || w.text(a) == w.text(b) || !still(a) || !still(b) {
			continue
		}
		t, ok := w.nameOfType(ta.Type)
		if !ok {
			continue
		}
		swap := func(other ast.Expr) func(string, int) string {
			return func(inner string, number int) string {
				return fmt.Sprintf("%s.Other[%s](%d, %s, %s)", alias, t, number, inner, w.text(other))
			}
		}
		w.add(a, swap(b), fmt.Sprintf("swapped: %s, %s in %s", w.brief(a), w.brief(b), w.brief(call)))
		first := w.found[len(w.found)-1]
		w.add(b, swap(a))
		w.found[len(w.found)-1].of = first
	}
}
