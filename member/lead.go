package member

import (
	"context"
)

// Lead implements Member.Lead.
func (t *terms) Lead(ctx context.Context, namespace string, f func(ctx context.Context) error) error {
	no := func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.notLeader(namespace)
	}
	if namespace == "" || !watched(t.only, namespace) {
		return no()
	}
	promoted := make(chan struct{}, 1)
	remove := t.notifier.listen(namespace, Listener{Promoted: func(string, Term) {
		select {
		case promoted <- struct{}{}:
		default: // a promotion is pending already
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

// leadOnce runs f in the current term, if there is one. It returns ended if the caller must wait for another term.
func (t *terms) leadOnce(
	ctx context.Context, namespace string, f func(ctx context.Context) error,
) (ended bool, err error) {
	ctx, done, err := t.Context(ctx, namespace)
	if err != nil {
		return true, nil
	}
	defer done()
	err = f(ctx)
	return Check(ctx) != nil, err // f may have found the term over by the clock, before ctx ends
}
