package harness

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/e2e/must"
)

// pollEvery is how often Await checks a condition. No figure depends on it: acts, Leases and faults carry the time at
// which they happened.
const pollEvery = 20 * time.Millisecond

// Await returns when condition returns nil. If that takes longer than limit, or ctx ends, the error contains the last
// error of the condition, which may return it or fail by package must.
func Await(ctx context.Context, limit time.Duration, what string, condition func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollEvery, limit, true, func(ctx context.Context) (bool, error) {
		last = try(ctx, condition)
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
		broken = try(ctx, condition)
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

func try(ctx context.Context, condition func(context.Context) error) (err error) {
	if failed := must.Try(func() { err = condition(ctx) }); failed != nil {
		return failed
	}
	return err
}

var system clock.System

// Now reads both clocks of this machine.
func Now() lease.Reading { return system.Now() }

// BootOf converts a time of the wall clock to the boot clock, if the wall clock was not stepped in between.
func BootOf(wall time.Time, now lease.Reading) time.Duration { return now.Boot - now.Wall.Sub(wall) }

// Floor is the least time from a fault to the first act of another cluster that any lease without out-of-band fencing
// allows: the term of the old leader must have ended ε ago, and the fault must be detected. fault and stamp, the
// renewTime of the last Lease that the old leader could see, are on the boot clock. detection counts from the fault.
func Floor(t lease.Timings, fault, stamp, detection time.Duration) time.Duration {
	return max(detection, stamp+t.Duration+t.Skew-fault)
}
