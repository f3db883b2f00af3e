package gate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/membertest"
)

// manager is made without a cluster. A program's own comes from ctrl.NewManager(cfg, ctrl.Options{}).
func manager() ctrl.Manager {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, ctrl.Options{
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)},
		Logger:         logr.Discard(),
	})
	if err != nil {
		panic(err)
	}
	return mgr
}

// nothing is a reconciler.
var nothing = reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
})

// It is used as controller-runtime's builder. Predicates count on promotion, too.
func ExampleControllerManagedBy() {
	mgr, fake := manager(), membertest.New() // in a program: m, err := member.New(mgr.GetConfig(), …), and mgr.Add(m)
	gold := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()["tier"] == "gold" })
	err := gate.ControllerManagedBy(mgr, fake).
		Named("books").
		For(&corev1.ConfigMap{}, gold).
		Owns(&corev1.Secret{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(nothing)
	fmt.Println(err)
	// Output: <nil>
}

// The leader of one namespace acts on cluster-scoped objects. Say of which.
func ExampleTypedControllerManagedBy() {
	mgr, fake := manager(), membertest.New()
	err := gate.ControllerManagedBy(mgr, fake).For(&corev1.Node{}).Complete(nothing)
	fmt.Println("refused:", errors.Is(err, member.ErrMisused))
	err = gate.TypedControllerManagedBy(mgr, fake, func(reconcile.Request) string { return "infra" }).
		For(&corev1.Node{}).
		Complete(nothing)
	fmt.Println(err)
	// Output:
	// refused: true
	// <nil>
}

// A request can be of any comparable type: here one for each namespace with settings, whichever of them changes.
func ExampleTypedControllerManagedBy_requests() {
	type shop struct{ Namespace string }
	settings := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []shop {
		return []shop{{o.GetNamespace()}}
	})
	err := gate.TypedControllerManagedBy(manager(), membertest.New(), func(s shop) string { return s.Namespace }).
		Named("shops").
		Watches(&corev1.ConfigMap{}, settings).
		Watches(&corev1.Secret{}, settings).
		Complete(reconcile.TypedFunc[shop](func(context.Context, shop) (reconcile.Result, error) {
			return reconcile.Result{}, nil
		}))
	fmt.Println(err)
	// Output: <nil>
}

// Followers may keep a cache warm or count objects. Through a client.Reader they cannot write.
func ExampleTypedBuilder_Observe() {
	mgr := manager()
	var r client.Reader = mgr.GetClient()
	count := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, client.IgnoreNotFound(r.Get(ctx, req.NamespacedName, &corev1.ConfigMap{}))
	})
	fmt.Println(gate.ControllerManagedBy(mgr, membertest.New()).For(&corev1.ConfigMap{}).Observe(count).Complete(nothing))
	// Output: <nil>
}

// An author's own test needs no cluster: the context of a term is all that a reconciler gets. The fake client of
// controller-runtime takes every write. With its interceptor, a write after the term is refused, as member.CapWrites
// refuses it in a cluster.
func Example_fakeClient() {
	leader := membertest.New()
	leader.Promote("shop")
	ctx, done, err := leader.Context(context.Background(), "shop")
	if err != nil {
		panic(err)
	}
	defer done()
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := member.Check(ctx); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	book := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "book"}}
	fmt.Println("in its term:", c.Create(ctx, book))
	leader.Expire()
	fmt.Println("not begun:", errors.Is(c.Create(ctx, book), member.ErrNotBegun))
	// Output:
	// in its term: <nil>
	// not begun: true
}
