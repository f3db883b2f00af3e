package member

import (
	"context"
	"fmt"
)

type termKey struct{}

// Context is Member.Context without the logger.
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
	tm.open[&cancel] = struct{}{}
	return ctx, func() {
		cancel(context.Canceled)
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(tm.open, &cancel)
		t.releases.settle(tm)
	}, nil
}

// Check reports whether an act may begin now. Call it right before an act on the outside world that no other system can
// refuse. It returns nil if both clocks, read now, are before the deadline of the context's term, and the context has
// not ended. Otherwise the error wraps ErrNotBegun, and also ErrLost if the term is over.
//
// ctx.Err alone reports the end late. The end of a term reaches it through a timer and a goroutine. After a pause of
// the process the work may wake before either.
//
// For a context without a term, Check looks at the end of the context only.
func Check(ctx context.Context) error {
	if t, ok := ctx.Value(termKey{}).(Term); ok && !t.Holds() {
		return fmt.Errorf("%w: %w", ErrNotBegun, t.lost())
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrNotBegun, context.Cause(ctx))
	}
	return nil
}

// TermFrom returns the term of a context that was made by [Member.Context] or derived from one, and false for any other
// context.
func TermFrom(ctx context.Context) (Term, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t, ok
}

// EpochFrom returns the epoch of the term of a context that was made by [Member.Context] or derived from one, and false
// for any other context.
func EpochFrom(ctx context.Context) (int64, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t.Epoch(), ok
}

// ClusterFrom returns the identity of this cluster from a context that was made by [Member.Context] or derived from
// one, and false otherwise. See [Term.Cluster].
func ClusterFrom(ctx context.Context) (string, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t.Cluster(), ok
}
