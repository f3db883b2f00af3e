package must

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pollEvery is how often Await and Stay check a condition. No figure depends on it: acts, Leases and faults carry the
// time at which they happened.
const pollEvery = 20 * time.Millisecond

// Await returns when condition returns nil. If that takes longer than limit, or ctx ends, the error contains the last
// error of the condition, which may return it or fail by this package.
func Await(ctx context.Context, limit time.Duration, what string, condition func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollEvery, limit, true, func(ctx context.Context) (bool, error) {
		last = Try(func() { Do(condition(ctx)) })
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

// Stay returns nil when condition has returned nil for the whole of d, else its first error. It waits for a call of
// condition that has begun before the end of d.
func Stay(ctx context.Context, d time.Duration, what string, condition func(context.Context) error) error {
	var broken error
	_ = wait.PollUntilContextTimeout(ctx, pollEvery, d, true, func(context.Context) (bool, error) {
		broken = Try(func() { Do(condition(ctx)) })
		return broken != nil, nil
	})
	if broken == nil {
		broken = context.Cause(ctx)
	}
	if broken != nil {
		return fmt.Errorf("%s: %w", what, broken)
	}
	return nil
}
