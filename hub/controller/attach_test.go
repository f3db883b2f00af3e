package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
)

// An earlier publisher of a member may draw one more stamp until it has stopped. Whoever closes the source of stamps has
// to find it until then, and its successor from then on.
func TestANewAttachmentWaitsForTheEndOfTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Fleet: fleet.New(fleet.Options{})})
		running, stop := context.WithCancel(t.Context())
		c.running = running
		key := fleet.Key{Fleet: "fleet", Name: "east"}
		engage := func() (end context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			if err := c.Engage(ctx, key.ClusterName(), nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return cancel
		}
		attached := func() *attachment {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.attached[key]
		}
		engaged := func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			_, ok := c.engaged[key]
			return ok
		}

		endFirst := engage()
		first := attached()
		if first == nil {
			t.Fatal("a member that was engaged is not attached")
		}
		endSecond := engage()
		if attached() != first {
			t.Error("the new attachment is at work before the old one has ended")
		}
		endFirst()
		second := attached()
		if second == nil || second == first {
			t.Errorf("after the end of the old attachment there is %p, want a new one than %p", second, first)
		}
		if !engaged() {
			t.Error("the end of the old engagement ended the new one")
		}
		endSecond()
		if left := attached(); left != nil || engaged() {
			t.Errorf("after the end of both there is still %p, engaged: %v", left, engaged())
		}
		stop()
		c.wg.Wait()
	})
}

// A cluster that does not answer has not lost its guard, and a leader there is not to be replaced for it.
func TestSilenceSaysNothingOfAGuard(t *testing.T) {
	silence := errors.New("context deadline exceeded")
	for name, test := range map[string]struct {
		before, found error
		stands, news  bool
	}{
		"one that stands, and is found standing":           {nil, nil, true, false},
		"one that stands, and nobody answers":              {nil, silence, true, false},
		"one that stands, and this hub may not write":      {nil, errUnchecked, true, false},
		"one that stands, and is forbidden":                {nil, fmt.Errorf("install: %w", guard.ErrForbidden), false, true},
		"one that stands, in a cluster that knows no such": {nil, fmt.Errorf("install: %w", guard.ErrUnsupported), false, true},
		"one that stood, and lets a write through":         {nil, fmt.Errorf("verify: %w", guard.ErrNotEnforced), false, true},
		"one that is not known, and nobody answers":        {errUnchecked, silence, false, false},
		"one that is not known, and is found standing":     {errUnchecked, nil, true, true},
		"one that does not stand, and nobody answers":      {guard.ErrNotEnforced, silence, false, false},
		"one that does not stand, and is found standing":   {guard.ErrNotEnforced, nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := &attachment{guard: test.before}
			news := New(Options{}).heedGuard(a, test.found)
			if stands := a.guard == nil; stands != test.stands || news != test.news {
				t.Errorf("it stands: %v (%v), news: %v; want %v, %v", stands, a.guard, news, test.stands, test.news)
			}
		})
	}
}
