package harness

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

var errMissing = errors.New("the salt is missing")

func TestAwaitSaysWhatWasMissing(t *testing.T) {
	missing := func(context.Context) error { return errMissing }
	err := Await(t.Context(), 50*time.Millisecond, "dinner is ready", missing)
	if !errors.Is(err, errMissing) || !strings.Contains(err.Error(), "dinner is ready") {
		t.Errorf("after the limit: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the guests left")
	cancel(gone)
	if err := Await(ctx, time.Hour, "dinner is ready", missing); !errors.Is(err, gone) {
		t.Errorf("after an interruption: %v, want its cause", err)
	}
	tries := 0
	if err := Await(t.Context(), time.Minute, "the third try", func(context.Context) error {
		if tries++; tries < 3 {
			return errMissing
		}
		return nil
	}); err != nil || tries != 3 {
		t.Errorf("%d tries, %v; want 3 and no error", tries, err)
	}
}

func TestStayEndsWithTheFirstBreak(t *testing.T) {
	begin := time.Now()
	if err := Stay(t.Context(), 100*time.Millisecond, "all is well", func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("watched for %v only", took)
	}
	looks := 0
	err := Stay(t.Context(), time.Hour, "all is well", func(context.Context) error {
		if looks++; looks == 3 {
			return errMissing
		}
		return nil
	})
	if !errors.Is(err, errMissing) || looks != 3 {
		t.Errorf("%d looks, %v; want the error of the third", looks, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Stay(ctx, time.Hour, "all is well", func(context.Context) error { return nil }); err == nil {
		t.Error("an interrupted watch passes")
	}
}

func TestStayWaitsForALookThatHasBegun(t *testing.T) {
	slow := func(verdict error) func(context.Context) error {
		return func(ctx context.Context) error {
			select {
			case <-time.After(100 * time.Millisecond):
				return verdict
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if err := Stay(t.Context(), 10*time.Millisecond, "all is well", slow(nil)); err != nil {
		t.Errorf("a look that took longer: %v", err)
	}
	if err := Stay(t.Context(), 10*time.Millisecond, "all is well", slow(errMissing)); !errors.Is(err, errMissing) {
		t.Errorf("what it saw: %v, want its error", err)
	}
}
