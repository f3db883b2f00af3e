package member

import (
	"context"
)

// Lead runs f whenever this cluster leads the namespace: it waits for a term, runs
// f with the context of that term (see Context), and when the term ends waits for f
// to return and then for the next term. It is what leaderelection.RunOrDie is
// between processes, except that nothing has to exit: f is simply run anew.
//
// For a namespace that is not watched it returns an error that wraps ErrNotWatched, at
// once, and for an empty name one that wraps ErrMisused. Otherwise it returns
//   - the error of f, when f returns while the term goes on;
//   - context.Cause(ctx), when ctx ends;
//   - an error that wraps ErrStopped, when the Member has stopped.
//
// In any case f is no longer running. What f returns after its context has ended is
// dropped: it had to stop.
func (t *Terms) Lead(ctx context.Context, namespace string, f func(ctx context.Context) error) error {
	no := func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.notLeader(namespace)
	}
	if namespace == "" || !t.watches(namespace) {
		return no()
	}
	promoted := make(chan struct{}, 1)
	remove := t.listen(namespace, Listener{Promoted: func(string, Term) {
		select {
		case promoted <- struct{}{}:
		default: // one word is waiting already
		}
	}})
	defer remove()
	for {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case t.over():
			return no()
		}
		if ended, err := t.leadOnce(ctx, namespace, f); !ended {
			return err
		}
		select {
		case <-promoted:
		case <-t.ended:
		case <-ctx.Done():
		}
	}
}

// leadOnce runs f in the current term, if there is one. ended says that another
// term is to be waited for.
func (t *Terms) leadOnce(ctx context.Context, namespace string, f func(ctx context.Context) error) (ended bool, err error) {
	ctx, done, err := t.Context(ctx, namespace)
	if err != nil {
		return true, nil
	}
	defer done()
	err = f(ctx)
	return ctx.Err() != nil, err
}
