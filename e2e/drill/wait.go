package drill

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pollEvery is how often a condition is looked at. What is measured does not depend on it:
// acts, stamps and faults carry the time at which they happened.
const pollEvery = 20 * time.Millisecond

// Await returns when condition returns nil. When that takes longer than limit, or ctx ends, the
// error says what was waited for and what was missing last.
func Await(ctx context.Context, limit time.Duration, what string, condition func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollEvery, limit, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted while waiting until %s: %w", what, context.Cause(ctx))
	default:
		return fmt.Errorf("%s: not within %s: %w", what, limit, last)
	}
}

// Stay returns when condition has returned nil for the whole of d, or its first error. A look that
// has begun before the end of d is waited for.
func Stay(ctx context.Context, d time.Duration, what string, condition func(context.Context) error) error {
	var broken error
	err := wait.PollUntilContextTimeout(ctx, pollEvery, d, true, func(context.Context) (bool, error) {
		broken = condition(ctx)
		return broken != nil, nil
	})
	switch {
	case broken != nil:
		return fmt.Errorf("%s: %w", what, broken)
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted while watching that %s: %w", what, context.Cause(ctx))
	case !wait.Interrupted(err):
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
