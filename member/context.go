package member

import (
	"context"
	"fmt"
)

type termKey struct{}

// openContext is one context that ends with a term.
type openContext struct{ cancel context.CancelCauseFunc }

// Context returns a context for work in the namespace's current term. It is
// cancelled when ctx is, or at once when the term ends; then context.Cause says so
// with an error that wraps ErrLost. It carries the epoch, see EpochFrom.
//
// The context lives as long as the term does, through renewals. So it has no
// deadline of its own: context.WithTimeout makes none of its own either below a
// parent that has an earlier one, and would then never end while the term is
// renewed.
//
// Call the CancelFunc when the work has finished, not before: it is also the word
// that nothing more will be done in this term.
//
// If this cluster does not lead the namespace, the error is a *[NotLeaderError], which wraps ErrNotLeader and says who
// does and why not this one. If the namespace is not watched, it wraps ErrNotWatched instead, and if its name is
// empty ErrMisused.
func (t *Terms) Context(ctx context.Context, namespace string) (context.Context, context.CancelFunc, error) {
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
