package member

import (
	"context"
	"fmt"
)

type termKey struct{}

// openContext is one context that ends with a term.
type openContext struct{ cancel context.CancelCauseFunc }

// Context is that of Member, but for the logger.
func (t *terms) Context(ctx context.Context, namespace string) (context.Context, context.CancelFunc, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var tm *term
	if n := t.lookup(namespace); n != nil {
		tm = n.term.Load()
	}
	if tm == nil || !tm.holds() {
		return nil, nil, t.notLeader(namespace)
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, termKey{}, Term{tm}))
	o := &openContext{cancel}
	tm.open[o] = struct{}{}
	t.worked = true
	return ctx, func() {
		cancel(context.Canceled)
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(tm.open, o)
		t.settle(tm)
	}, nil
}

// Check reports whether an act may begin now. Ask right before an act on the outside
// world that nobody else can refuse. nil says that both clocks, read now, are before the
// deadline of the term that the context was made for, and that the context has not
// ended. Otherwise the error wraps ErrNotBegun, and ErrLost if the term is over.
//
// ctx.Err alone answers late: the end of a term reaches it through a timer and a
// goroutine, and after a pause of the process the work may be woken before either.
//
// A context that carries no term is asked for its own end only.
func Check(ctx context.Context) error {
	if t, ok := ctx.Value(termKey{}).(Term); ok && !t.Holds() {
		return fmt.Errorf("%w: %w: epoch %d", ErrNotBegun, ErrLost, t.Epoch())
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrNotBegun, context.Cause(ctx))
	}
	return nil
}

// TermFrom returns the term that a context was made for by [Member.Context], or by what is built on it, and false if it
// was not.
func TermFrom(ctx context.Context) (Term, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t, ok
}

// EpochFrom returns the epoch of the term that a context was made for by
// [Member.Context], or by what is built on it, and false if it was not.
func EpochFrom(ctx context.Context) (int64, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t.Epoch(), ok
}

// ClusterFrom returns the identity of this cluster from a context that was made by [Member.Context], or by what is built
// on it, and false if it was not; see [Term.Cluster].
func ClusterFrom(ctx context.Context) (string, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t.Cluster(), ok
}
