package member

import (
	"context"
)

// Lead implements Member.Lead.
func (t *terms) Lead(ctx context.Context, namespace string, f func(ctx context.Context) error) error {
	for {
		begins, err := t.next(namespace)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		if ended, err := t.leadOnce(ctx, namespace, f); !ended {
			return err
		}
		select {
		case <-begins:
		case <-t.ended:
		case <-ctx.Done():
		}
	}
}

// next returns a channel that is closed when the next term in the namespace begins. It returns an error if none ever
// will.
func (t *terms) next(namespace string) (begins <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if namespace == "" || !watched(t.only, namespace) || t.over() {
		return nil, t.notLeader(namespace)
	}
	waiting := t.waiting[namespace]
	if waiting == nil {
		waiting = make(chan struct{})
		t.waiting[namespace] = waiting
	}
	return waiting, nil
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
