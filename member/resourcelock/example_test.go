package resourcelock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	clientlock "k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/membertest"
	"github.com/leasecast/leasecast/member/resourcelock"
)

// The elected replica of the leading cluster works, and stops with the term.
func ExampleNew() {
	leader := membertest.New() // in a program: a *member.Member that runs
	leader.Promote("shop")
	inner := &clientlock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "shopkeeper"},
		Client:     fake.NewClientset().CoordinationV1(),
		LockConfig: clientlock.ResourceLockConfig{Identity: "replica-1"},
	}
	lock, ctx, done := resourcelock.New(context.Background(), leader, "shop", inner)
	defer done()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     10 * time.Millisecond,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				fmt.Println("works")
				leader.Demote("shop")
			},
			OnStoppedLeading: func() { fmt.Println("stops with its term:", errors.Is(context.Cause(ctx), member.ErrLost)) },
		},
	})
	// Output:
	// works
	// stops with its term: true
}
