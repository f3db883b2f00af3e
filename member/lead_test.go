package member_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/leasecast/leasecast/member"
)

func TestLeadRunsInEachTermAndOnlyThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, heard := newCluster(t), &calls{}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() {
			result <- c.Lead(ctx, ns, func(ctx context.Context) error {
				epoch, _ := member.EpochFrom(ctx)
				heard.add(fmt.Sprint("begin ", epoch))
				<-ctx.Done()
				pass(recheck) // takes its time to stop
				heard.add(fmt.Sprint("end ", epoch))
				return errors.New("this is dropped")
			})
		}()
		heard.expect(t, "at first")
		c.write("other", us, 1)
		heard.expect(t, "another namespace is led")
		c.write(ns, us, 1)
		heard.expect(t, "promoted", "begin 1")
		c.write(ns, us, 1)
		heard.expect(t, "renewed")
		c.write(ns, us, 2)
		heard.expect(t, "a new term waits for the old one's work")
		pass(recheck)
		heard.expect(t, "and then begins", "end 1", "begin 2")
		pass(duration + recheck)
		heard.expect(t, "ran out", "end 2")
		c.write(ns, us, 3)
		heard.expect(t, "promoted again", "begin 3")
		cancel()
		heard.expect(t, "told to stop")
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("Lead returned %v, want context.Canceled", err)
		}
		heard.expect(t, "Lead returned after the work", "end 3")
	})
}

func TestLeadReturnsWhatItsFunctionReturns(t *testing.T) {
	broken := errors.New("broken")
	for name, want := range map[string]error{"nothing": nil, "an error": broken} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.write(ns, us, 1)
				var in context.Context
				if err := c.Lead(within(t), ns, func(ctx context.Context) error { in = ctx; return want }); !errors.Is(err, want) {
					t.Errorf("Lead returned %v, want %v", err, want)
				}
				if in.Err() == nil {
					t.Error("the context of the work outlives it")
				}
			})
		})
	}
}

func TestAMemberLeadsAsItsTermsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t)
		r.put(r.cluster.leaseOf(ns, us, 7))
		defer r.start(t)()
		broken := errors.New("broken")
		if err := r.Lead(within(t), ns, func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("Lead returned %v, want %v", err, broken)
		}
	})
}

func TestLeadEndsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		result := make(chan error)
		go func() {
			result <- c.Lead(ctx, ns, func(context.Context) error {
				t.Error("called in a follower")
				return nil
			})
		}()
		c.write(ns, them, 1)
		synctest.Wait()
		cancel(stop)
		if err := <-result; !errors.Is(err, stop) {
			t.Errorf("Lead returned %v, want %v", err, stop)
		}
	})
}

func TestNothingIsLeftOfLeadWhenItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.write(ns, us, 7)
		if grew := heapGrowth(func() {
			for range 1000 {
				if err := c.Lead(t.Context(), ns, func(context.Context) error { return nil }); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // its listener has been told
			}
		}); grew > 100_000 {
			t.Errorf("1000 calls left %d bytes behind", grew)
		}
	})
}
