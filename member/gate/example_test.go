package gate_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/membertest"
)

// An author's own test needs no cluster.
func ExampleGate() {
	ctx := context.Background()
	fake := membertest.New()
	gated := gate.Gate(fake, reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		epoch, _ := member.EpochFrom(ctx)
		fmt.Println("acting on", req.Name, "in epoch", epoch)
		return reconcile.Result{}, nil
	}))
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "book"}}

	_, err := gated.Reconcile(ctx, req)
	fmt.Println("follower:", err)
	fake.Promote("shop")
	_, err = gated.Reconcile(ctx, req)
	fmt.Println("leader:", err)
	// Output:
	// follower: <nil>
	// acting on book in epoch 1
	// leader: <nil>
}
