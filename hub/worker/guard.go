package worker

import (
	"context"
	"errors"
	"time"

	"github.com/leasecast/leasecast/hub/guard"
)

const (
	// guardEvery is how often a guard in force is checked, and guardRetry how often before that. A policy takes
	// effect about a second after it was created. A guard that is unchanged is probed every verifyEvery only.
	// refusedRetry is how often a rejected request is retried.
	guardEvery   = 10 * time.Second
	guardRetry   = 300 * time.Millisecond
	verifyEvery  = time.Minute
	refusedRetry = time.Second
	// guardTimeout bounds one check.
	guardTimeout = 10 * time.Second
)

// ErrUnchecked means that a guard was not checked yet.
var ErrUnchecked = errors.New("the guard has not been checked yet")

// keepGuard installs the guard of the member, keeps it in place, and records whether it is in force. It removes the
// guard while the member takes no part.
func (w *Worker) keepGuard(ctx context.Context) {
	verifyAt := time.Duration(0) // boot reading
	for pause := time.Duration(0); w.guardDue(ctx, pause); {
		if w.leaving() {
			w.leave(ctx)
			pause, verifyAt = guardRetry, 0
			continue
		}
		if !w.Hub.Served(w.Member.Fleet) {
			if _, ok := w.Hub.Serve(ctx, w.Member.Fleet); !ok {
				pause, verifyAt = guardRetry, 0
				continue
			}
		}
		now := w.Clock.Now().Boot
		verified, err := w.checkGuard(ctx, now >= verifyAt)
		switch {
		case err != nil:
			verifyAt = 0
		case verified:
			verifyAt = now + verifyEvery
		}
		switch {
		case err == nil:
			pause = guardEvery
		case errors.Is(err, guard.ErrForbidden), errors.Is(err, guard.ErrUnsupported):
			pause = refusedRetry
		default:
			pause = guardRetry
		}
		if w.noteCheck(err) {
			w.Log.Info("The guard of the cluster's Leases was checked", "inForce", err == nil, "err", err)
			w.Hub.Changed(w.Member.Key, "")
		}
	}
}

// guardDue waits for the pause to pass, for the member to leave, or until this installation does not serve its
// fleet. It returns false when ctx has ended.
func (w *Worker) guardDue(ctx context.Context, pause time.Duration) bool {
	timer, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	for {
		select {
		case <-w.wake:
			if w.leaving() || !w.Hub.Served(w.Member.Fleet) {
				return ctx.Err() == nil
			}
		case <-timer.Done():
			return ctx.Err() == nil
		}
	}
}

// noteCheck records the result of a check, and reports whether it changed. Silence keeps the last result.
func (w *Worker) noteCheck(err error) (news bool) {
	if err != nil && !errors.Is(err, guard.ErrForbidden) && !errors.Is(err, guard.ErrUnsupported) && !errors.Is(err, guard.ErrNotEnforced) {
		return false
	}
	return w.noteGuard(err)
}

// noteGuard records whether the guard is in force, and reports whether that changed.
func (w *Worker) noteGuard(err error) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.unguarded
	w.unguarded = err
	return (before == nil) != (err == nil) || errors.Is(before, ErrUnchecked)
}

// checkGuard installs the guard. If the guard had changed, or if due is true, it verifies by probes that the guard
// is in force.
func (w *Worker) checkGuard(ctx context.Context, due bool) (verified bool, err error) {
	if !w.Hub.Serves(w.Member.Fleet) {
		return false, ErrUnchecked
	}
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	changed, err := guard.Ensure(ctx, w.Client)
	if err != nil || !changed && !due {
		return false, err
	}
	return true, guard.Verify(ctx, w.Client)
}
