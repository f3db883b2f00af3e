package mutate

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// What a condition, a value or a statement becomes: see site.format.
const (
	never   = "(!" + alias + ".Is(%[1]d) && (%[2]s))"
	always  = "(" + alias + ".Is(%[1]d) || (%[2]s))"
	negated = "(" + alias + ".Is(%[1]d) != (%[2]s))"
	dropped = "if !" + alias + ".Is(%[1]d) { %[2]s }"
	zero    = alias + ".Zero(%[1]d, %[2]s)"
	noError = alias + ".Nil(%[1]d, %[2]s)"
)

// statement adds the sites of a statement.
func (w *walk) statement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.IfStmt:
		if w.onlyLogs(s) {
			return
		}
		operator := "branch"
		if b, ok := s.Cond.(*ast.BinaryExpr); ok && b.Op == token.NEQ && isError(w.info.Types[b.X].Type) {
			operator = "error"
		}
		w.add(s.Cond, never, "%s: if %s dropped", operator, w.brief(s.Cond))
	case *ast.CaseClause:
		for _, e := range s.List {
			if w.isTagless(s) {
				w.add(e, never, "branch: case %s dropped", w.brief(e))
			}
		}
	default:
		if w.isDroppable(s) && w.isListed(s) {
			w.add(s, dropped, "statement: %s dropped", w.brief(s))
		}
	}
}

// isDroppable reports whether the code compiles without a statement of this kind, and goes on behind it.
func (w *walk) isDroppable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return ok && !w.isLock(call) && w.function(call) != "panic"
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && slices.ContainsFunc(s.Lhs, func(e ast.Expr) bool {
			i, ok := e.(*ast.Ident)
			return !ok || i.Name != "_"
		})
	case *ast.DeferStmt:
		return !w.isLock(s.Call)
	case *ast.BranchStmt:
		return s.Tok == token.BREAK || s.Tok == token.CONTINUE
	case *ast.IncDecStmt, *ast.GoStmt, *ast.SendStmt:
		return true
	}
	return false
}

// isListed reports whether a statement stands in a list of statements, and not in the head of another one.
func (w *walk) isListed(s ast.Stmt) bool {
	switch p := w.stack[len(w.stack)-1].(type) {
	case *ast.BlockStmt, *ast.CaseClause:
		return true
	case *ast.CommClause:
		return s != p.Comm
	}
	return false
}

// expression adds the sites of an expression and reports whether to visit its children.
func (w *walk) expression(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		w.swapped(call)
	}
	of, ok := w.info.Types[e]
	if !ok || !of.IsValue() || !w.isRead(e) {
		return true
	}
	isConstant := of.Value != nil
	switch t := of.Type; {
	case types.Default(t) == types.Typ[types.Bool]:
		w.truth(e, isConstant)
	case isDuration(t):
		w.duration(e, of)
	case isConstant && isBasic(t, types.IsInteger):
		w.integer(e, of)
	case isError(t):
		w.returned(e)
	}
	return !isConstant
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

func isChain(op token.Token) bool { return op == token.LAND || op == token.LOR }

// truth adds the sites of a bool.
func (w *walk) truth(e ast.Expr, isConstant bool) {
	p, _ := w.parent(e)
	b, binary := e.(*ast.BinaryExpr)
	switch {
	case binary && isChain(b.Op): // its operands are changed
	case binary && !isConstant && opposite[b.Op] != token.ILLEGAL:
		w.add(e, negated, "comparison: %s → %s", w.brief(e), opposite[b.Op])
		if to := boundary[b.Op]; to != token.ILLEGAL {
			w.instead(e, "("+w.literal(b.X)+") "+to.String()+" ("+w.literal(b.Y)+")", to.String())
		}
	default:
		w.leaf(e, p)
	}
	// An operand of && or || decides nothing, unless it is such a chain itself.
	if in, ok := p.(*ast.BinaryExpr); ok && isChain(in.Op) && (!binary || b.Op != in.Op) {
		format := never
		if in.Op == token.LAND {
			format = always
		}
		w.add(e, format, "condition: %s dropped from %s", w.brief(e), in.Op)
	}
}

// leaf negates a bool that is no comparison by an operator.
func (w *walk) leaf(e ast.Expr, parent ast.Node) {
	switch p := parent.(type) {
	case *ast.BinaryExpr:
		if !isChain(p.Op) {
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
	call, method := w.comparison(e)
	if call == nil {
		w.add(e, negated, "negation: %s", w.brief(e))
		return
	}
	w.add(e, negated, "comparison: !%s", w.brief(e))
	inverse := map[string]string{"Before": "After", "After": "Before"}[method.Sel.Name]
	if inverse != "" && isNamed(w.info.Types[method.X].Type, "time", "Time") {
		w.instead(e, "!("+w.literal(method.X)+")."+inverse+"("+w.literal(call.Args[0])+")", "or equal")
	}
}

// instead adds a comparison with another boundary in the place of one. Only one of the two is evaluated.
func (w *walk) instead(e ast.Expr, other, change string) {
	if w.isRepeatable(e) {
		w.add(e, "("+alias+".Is(%[1]d) && ("+other+") || !"+alias+".Is(%[1]d) && (%[2]s))",
			"boundary: %s → %s", w.brief(e), change)
	}
}

// duration makes one zero.
func (w *walk) duration(e ast.Expr, of types.TypeAndValue) {
	_, isName := e.(*ast.Ident)
	_, isField := e.(*ast.SelectorExpr)
	if of.Value == nil && !isName && !isField || of.Value != nil && constant.Sign(of.Value) == 0 {
		return
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
	w.add(e, zero, "duration: %s → 0", w.brief(e))
}

// mostBits bounds the constants that are changed: one more would overflow the smallest type that is counted with.
const mostBits = 30

// integer changes a constant by one, unless it is one of a list of names.
func (w *walk) integer(e ast.Expr, of types.TypeAndValue) {
	p, at := w.parent(e)
	n, named := of.Type.(*types.Named)
	t, ok := w.nameOfType(of.Type)
	if !w.counts(p, at) || named && n.Obj().Pkg() != nil || !ok || constant.BitLen(of.Value) > mostBits {
		return
	}
	for _, by := range []string{"+", "-"} {
		if by == "-" && constant.Sign(of.Value) == 0 {
			continue
		}
		// Converted before it is added to, so that a constant of several operands stays one.
		w.add(e, alias+".Other["+t+"](%[1]d, %[2]s, "+t+"("+w.literal(e)+")"+by+"1)",
			"constant: %s → %s1 in %s", w.brief(e), by, w.brief(p))
	}
}

// counts reports whether it matters by one which constant stands there. In a comparison that has a boundary, the
// boundary is moved instead.
func (w *walk) counts(parent ast.Node, at ast.Expr) bool {
	switch p := parent.(type) {
	case *ast.BinaryExpr:
		return slices.Contains([]token.Token{token.ADD, token.SUB, token.EQL, token.NEQ}, p.Op)
	case *ast.CallExpr:
		return at != p.Fun && !w.isType(p.Fun) && w.function(p) != "make"
	case *ast.ReturnStmt, *ast.AssignStmt, *ast.ValueSpec, *ast.IndexExpr, *ast.SliceExpr:
		return true
	}
	return false
}

// returned makes an error nil where it is returned.
func (w *walk) returned(e ast.Expr) {
	if p, _ := w.parent(e); p != nil {
		if _, ok := p.(*ast.ReturnStmt); ok {
			w.add(e, noError, "error: return %s → nil", w.brief(e))
		}
	}
}

// swapped exchanges two adjacent arguments, unless their order does not matter.
func (w *walk) swapped(call *ast.CallExpr) {
	name := w.function(call)
	if call.Ellipsis.IsValid() || w.isType(call.Fun) || strings.HasSuffix(name, "Equal") ||
		slices.Contains([]string{"max", "min", "append", "make"}, name) {
		return
	}
	for i := 1; i < len(call.Args); i++ {
		a, b := call.Args[i-1], call.Args[i]
		ta, tb := w.info.Types[a], w.info.Types[b]
		if !ta.IsValue() || !tb.IsValue() || ta.IsNil() || !types.Identical(ta.Type, tb.Type) ||
			w.text(a) == w.text(b) || !isPure(a) || !isPure(b) {
			continue
		}
		if t, ok := w.nameOfType(ta.Type); ok {
			other := alias + ".Other[" + t + "](%[1]d, %[2]s, "
			first := w.add(a, other+w.literal(b)+")", "swapped: %s, %s in %s", w.brief(a), w.brief(b), w.brief(call))
			w.add(b, other+w.literal(a)+")", "").first = first
		}
	}
}
