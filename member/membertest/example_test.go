package membertest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/membertest"
)

// A test says who leads, and lets time pass. Nothing waits: when a method returns, what it did has happened.
func Example() {
	fake := membertest.New()
	fake.Demote("shop") // another cluster leads
	_, _, err := fake.Context(context.Background(), "shop")
	fmt.Println(err)

	fake.Promote("shop")
	ctx, done, err := fake.Context(context.Background(), "shop")
	if err != nil {
		panic(err)
	}
	defer done()
	cluster, _ := member.ClusterFrom(ctx)
	fmt.Println("acting in", cluster, "may begin:", member.Check(ctx) == nil)
	fake.Advance(membertest.Duration + time.Second) // the hub falls silent
	fmt.Println("acting in", cluster, "may begin:", member.Check(ctx) == nil)
	fmt.Println(fake.State("shop").Why)
	// Output:
	// this cluster does not lead the namespace: namespace shop: other.fake leads in epoch 1
	// acting in here.fake may begin: true
	// acting in here.fake may begin: false
	// it ran out: the last Lease was 0.0 s old on arrival, and lasts 15 s
}
