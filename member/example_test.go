package member_test

import (
	"context"
	"fmt"
	"time"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/membertest"
)

// A program on plain client-go: Lead is to clusters what
// leaderelection.RunOrDie is to processes.
func ExampleMember_Lead() {
	ctx, stop := context.WithCancel(context.Background())
	fake := membertest.New() // in a program: m, err := member.New(cfg, member.Options{}), and go m.Start(ctx)
	fake.Promote("shop")

	err := fake.Lead(ctx, "shop", func(ctx context.Context) error {
		epoch, _ := member.EpochFrom(ctx)
		fmt.Println("leading shop in epoch", epoch)
		switch epoch {
		case 1:
			fake.Expire() // the hub falls silent: ctx ends, Lead waits for the next term
			<-ctx.Done()
			fmt.Println("stopped:", context.Cause(ctx))
			fake.Promote("shop")
		default:
			stop() // the program is told to end
			<-ctx.Done()
		}
		return ctx.Err()
	})
	fmt.Println("Lead returned:", err)
	// Output:
	// leading shop in epoch 1
	// stopped: the term is over: namespace shop, epoch 1: it ran out: the last Lease was 0.0 s old on arrival, and lasts 15 s
	// leading shop in epoch 2
	// Lead returned: context canceled
}

// Work by the clock: a loop in each cluster, which does something in the one that leads.
func ExampleMember_Lead_cron() {
	ctx, stop := context.WithCancel(context.Background())
	fake := membertest.New() // in a program: a *member.Member
	fake.Promote("shop")
	runs := 0
	_ = fake.Lead(ctx, "shop", func(ctx context.Context) error {
		tick := time.NewTicker(time.Millisecond) // in a program: an hour
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil // the term is over: another cluster's loop goes on
			case <-tick.C:
			}
			if member.Check(ctx) != nil { // read the clocks right before the act
				return nil
			}
			fmt.Println("backing up")
			if runs++; runs == 2 {
				stop()
			}
		}
	})
	// Output:
	// backing up
	// backing up
}

// The check costs tens of nanoseconds, so it can stand in front of every act.
func ExampleMember_Term() {
	fake := membertest.New()
	_, ok := fake.Term("shop")
	fmt.Println("leading:", ok)
	fake.Promote("shop")
	if term, ok := fake.Term("shop"); ok {
		fmt.Println("leading in epoch", term.Epoch(), "for another", term.Remaining())
	}
	// Output:
	// leading: false
	// leading in epoch 1 for another 15s
}

// A listener hears first where things stand, then of every change.
func ExampleMember_Listen() {
	fake := membertest.New()
	fake.Demote("shop")
	heard := make(chan string)
	remove := fake.Listen(member.Listener{
		Promoted: func(ns string, t member.Term) { heard <- fmt.Sprint("promoted in ", ns, ", epoch ", t.Epoch()) },
		Demoted:  func(_ string, reason error) { heard <- reason.Error() },
	})
	defer remove()
	fmt.Println(<-heard)
	fake.Promote("shop")
	fmt.Println(<-heard)
	// Output:
	// this cluster does not lead the namespace: namespace shop: other.fake leads in epoch 1
	// promoted in shop, epoch 2
}
