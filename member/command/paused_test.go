package command

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/member/internal/fed"
)

// pausing is the clock of a process that is paused around each of its readings.
type pausing struct {
	*clocktest.Bubble
	pause time.Duration
}

func (c pausing) Now() lease.Reading {
	c.Suspend(c.pause)
	now := c.Bubble.Now()
	c.Suspend(c.pause)
	return now
}

// The gate reads its clock and asks for the rest of its term. Between the two it may be paused.
func TestTheWatchdogIsToldNoLateDeadlineByAGateThatIsPaused(t *testing.T) {
	for name, pause := range map[string]time.Duration{"not at all": 0, "for 200 ms": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := clocktest.NewBubble(lease.Reading{Wall: time.Now(), Boot: time.Hour})
				terms := fed.New(clock, time.Second)
				o := Options{Namespace: ns, Clock: pausing{clock, pause}, Logger: logr.Discard()}
				var program *fakeGroup
				r := newRunner(terms, o, func(until instant, _ int64) (group, error) {
					program = &fakeGroup{clock: clock, until: until, gone: make(chan struct{}), left: make(chan struct{})}
					return program, nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = r.run(ctx)
				}()
				first, err := leaseOf(clock.Now(), us, 1, d)
				if err != nil {
					t.Fatal(err)
				}
				deadline := clock.Now().Boot + d
				terms.Observe(first)
				for range 5 {
					pass(look)
					synctest.Wait()
					if program.told().Boot > deadline {
						t.Errorf("the watchdog kills %v after the deadline", program.told().Boot-deadline)
					}
				}
				cancel()
				program.exits(0)
				<-ended
			})
		})
	}
}
