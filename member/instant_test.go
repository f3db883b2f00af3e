package member

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
)

// slowClock has something happen while it is read, once.
type slowClock struct {
	*handClock
	meanwhile func()
}

func (c *slowClock) Now() lease.Reading {
	if f := c.meanwhile; f != nil {
		c.meanwhile = nil
		f()
	}
	return c.handClock.Now()
}

func TestARenewalInTheInstantInWhichATermIsAskedForCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = 15 * time.Second
		clock := &slowClock{handClock: newHandClock()}
		terms := NewTerms(clock, time.Second)
		terms.Observe(clock.leaseOf(t, "shop", "us", 7, lasts))
		term, _ := terms.Term("shop")
		clock.Advance(lasts / 2)
		clock.meanwhile = func() {
			terms.Observe(clock.leaseOf(t, "shop", "us", 7, lasts))
			clock.Advance(lasts / 2)
		}
		if !term.Holds() || term.Remaining() != lasts/2 {
			t.Errorf("the renewed term holds = %v, for %v", term.Holds(), term.Remaining())
		}
	})
}

// What is seen without a registration may be the past by the time there is one.
func TestWithoutARegistrationNothingThatIsSeenIsRemembered(t *testing.T) {
	for name, seen := range map[string]func(t *testing.T, c *handClock) *coordinationv1.Lease{
		"it leads": func(t *testing.T, c *handClock) *coordinationv1.Lease {
			return c.leaseOf(t, "shop", "us", 7, time.Hour)
		},
		"nobody leads": func(t *testing.T, c *handClock) *coordinationv1.Lease { return c.leaseOf(t, "shop", "", 8, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := newHandClock()
				terms := NewTerms(clock, time.Second)
				terms.register()
				terms.Observe(seen(t, clock))
				says := lease.Registration{Confirmed: clock.Now().Wall, Duration: math.MaxInt32 * time.Second}
				terms.confirmed(says.Permit(clock.Now()))
				if released := terms.releasable(); len(released) > 0 {
					t.Errorf("released %v", released)
				}
				terms.Observe(clock.leaseOf(t, "shop", "", 6, time.Hour)) // a Lease that is older, but the first
				if _, leads := terms.Term("shop"); leads {
					t.Error("leads")
				}
			})
		})
	}
}
