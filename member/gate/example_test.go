package gate_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
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

// Followers may keep a cache warm or count objects. ReadOnly keeps them from writing.
func ExampleObserve() {
	fake := membertest.New()
	act := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		fmt.Println("acting")
		return reconcile.Result{}, nil
	})
	look := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		fmt.Println("looking")
		return reconcile.Result{}, nil
	})
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "book"}}
	_, _ = gate.Gate(fake, act, gate.Observe(look)).Reconcile(context.Background(), req)
	// Output:
	// looking
}

// A controller that is only told of some objects resyncs the same ones: give Resync what the builder was given.
func ExampleResync() {
	add := func(mgr ctrl.Manager, m member.Leader, r reconcile.Reconciler) error {
		gold := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()["tier"] == "gold" })
		return ctrl.NewControllerManagedBy(mgr).
			Named("books").
			For(&corev1.ConfigMap{}).
			WithEventFilter(gold).
			WatchesRawSource(gate.Resync(m, mgr.GetClient(), &corev1.ConfigMapList{}, gate.Passing(gold), gate.Named("books"))).
			Complete(gate.Gate(m, r))
	}
	fmt.Println(add != nil)
	// Output:
	// true
}

// The fake client of controller-runtime takes every write. CapClient makes it refuse those after the term.
func ExampleCapClient() {
	leader := membertest.New()
	leader.Promote("shop")
	c := gate.CapClient(fake.NewClientBuilder().Build())
	gated := gate.Gate(leader, reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		leader.Expire() // the term ends while the reconciler works
		err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}})
		fmt.Println("not begun:", errors.Is(err, member.ErrNotBegun))
		return reconcile.Result{}, err
	}))
	_, err := gated.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "book"}})
	fmt.Println("a term that is over is no failure:", err)
	// Output:
	// not begun: true
	// a term that is over is no failure: <nil>
}
