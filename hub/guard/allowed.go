package guard

import (
	"context"
	"errors"
)

// ErrMayNotWrite means that the hub has lost the right to write. Nothing was sent.
var ErrMayNotWrite = errors.New("this hub may not write to the cluster any more")

type allowedKey struct{}

// WhileAllowed returns a context that has this package call allowed just before each write to a member. A turn
// takes long, and another replica may be elected in the middle of it.
func WhileAllowed(ctx context.Context, allowed func() bool) context.Context {
	return context.WithValue(ctx, allowedKey{}, allowed)
}

// Allowed returns nil if a write may be sent now, or ErrMayNotWrite.
func Allowed(ctx context.Context) error {
	if allowed, asked := ctx.Value(allowedKey{}).(func() bool); asked && !allowed() {
		return ErrMayNotWrite
	}
	return nil
}
