package member_test

import (
	"testing"
	"testing/synctest"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/member"
)

// slowClock has something happen while it is read, once.
type slowClock struct {
	*clocktest.Bubble
	during func()
}

func (c *slowClock) Now() lease.Reading {
	if f := c.during; f != nil {
		c.during = nil
		f()
	}
	return c.Bubble.Now()
}

func TestTermCountsARenewalThatArrivesWhileItIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		clock := &slowClock{Bubble: c.clock}
		terms := member.NewTerms(clock, skew)
		terms.Observe(c.leaseOf(ns, us, 7))
		term, _ := terms.Term(ns)
		c.clock.Suspend(duration / 2)
		clock.during = func() {
			terms.Observe(c.leaseOf(ns, us, 7))
			c.clock.Suspend(duration / 2)
		}
		if !term.Holds() || term.Remaining() != duration/2 {
			t.Errorf("the renewed term holds = %v, for %v", term.Holds(), term.Remaining())
		}
	})
}
