package guard

import (
	"context"
	"errors"
)

// ErrMayNotWrite says that the hub has lost the right to write. Nothing was sent.
var ErrMayNotWrite = errors.New("this hub may not write to the cluster any more")

type allowedKey struct{}

// WhileAllowed returns a context in which this package asks just before each write to a member whether the hub may still
// send it. A turn takes long, and another replica may be elected in the middle of it.
func WhileAllowed(ctx context.Context, allowed func() bool) context.Context {
	return context.WithValue(ctx, allowedKey{}, allowed)
}

// Allowed is the answer for a write that is sent now.
func Allowed(ctx context.Context) error {
	if allowed, asked := ctx.Value(allowedKey{}).(func() bool); asked && !allowed() {
		return ErrMayNotWrite
	}
	return nil
}
