package member_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

func TestLead_RunsInEachTermAndOnlyThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, made := newTestTerms(t), &calls{}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() {
			result <- c.Lead(ctx, ns, func(ctx context.Context) error {
				epoch, _ := member.EpochFrom(ctx)
				made.add(fmt.Sprint("begin ", epoch))
				<-ctx.Done()
				pass(recheck) // takes its time to stop
				made.add(fmt.Sprint("end ", epoch))
				return errors.New("this is dropped")
			})
		}()
		made.expect(t, "at first")
		for _, step := range []struct {
			when    string
			happens func()
			want    []string
		}{
			{"another namespace is led", func() { c.write("other", us, 1) }, nil},
			{"promoted", func() { c.write(ns, us, 1) }, []string{"begin 1"}},
			{"renewed", func() { c.write(ns, us, 1) }, nil},
			{"a new term waits for the old one's work", func() { c.write(ns, us, 2) }, nil},
			{"and then begins", func() { pass(recheck) }, []string{"end 1", "begin 2"}},
			{"ran out", func() { pass(duration + recheck) }, []string{"end 2"}},
			{"promoted again", func() { c.write(ns, us, 3) }, []string{"begin 3"}},
			{"its context ends", cancel, nil},
		} {
			step.happens()
			made.expect(t, step.when, step.want...)
		}
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("Lead returned %v, want context.Canceled", err)
		}
		made.expect(t, "Lead returned after the work", "end 3")
	})
}

// The clocks show the end of a term before its context ends, as after a suspend.
func TestLead_GoesOnAfterATermThatItsFunctionFindsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, made := newTestTerms(t), &calls{}
		c.write(ns, us, 1)
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			result <- c.Lead(ctx, ns, func(ctx context.Context) error {
				epoch, _ := member.EpochFrom(ctx)
				if made.add(fmt.Sprint("begin ", epoch)); epoch == 1 {
					c.clock.Suspend(duration)
					return member.Check(ctx)
				}
				<-ctx.Done()
				return nil
			})
		}()
		made.expect(t, "in the first term", "begin 1")
		c.write(ns, us, 2)
		made.expect(t, "in the next term", "begin 2")
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("Lead returned %v, want context.Canceled", err)
		}
	})
}

func TestLead_Returns(t *testing.T) {
	errStop := errors.New("stop")
	type row struct {
		holder string
		result error // of its function
		want   error
	}
	musttest.Each(t, map[string]row{
		"the function returns nothing":   {us, nil, nil},
		"the function returns an error":  {us, errBroken, errBroken},
		"its context ends in a follower": {them, errBroken, errStop},
	}, func(t *testing.T, row row) {
		r := startTestMember(t, member.Options{})
		r.write(ns, row.holder, 7)
		ctx, stop := context.WithCancelCause(within(t))
		var work context.Context
		result := make(chan error)
		go func() {
			result <- r.Lead(ctx, ns, func(ctx context.Context) error { work = ctx; return row.result })
		}()
		if row.holder != us {
			synctest.Wait()
			stop(errStop)
		}
		if err := <-result; !errors.Is(err, row.want) {
			t.Errorf("Lead returned %v, want %v", err, row.want)
		}
		stop(nil)
		if led := work != nil; led != (row.holder == us) || led && work.Err() == nil {
			t.Errorf("the function was called = %v, and its context outlives it", led)
		}
	})
}
