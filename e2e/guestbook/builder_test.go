package guestbook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
)

// seen is what the reconcilers of a program have acted on, as "controller epoch object".
type seen struct {
	mu  sync.Mutex
	all map[string]bool
}

func (s *seen) note(ctx context.Context, controller, object string) {
	epoch, _ := member.EpochFrom(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[fmt.Sprint(controller, " ", epoch, " ", object)] = true
}

// acted is a condition: it was acted on these, and on nothing else, in this epoch.
func (s *seen) acted(epoch int64, want ...string) func(context.Context) error {
	return func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		var got []string
		for one := range s.all {
			if fields := strings.SplitN(one, " ", 3); fields[1] == fmt.Sprint(epoch) {
				got = append(got, fields[0]+" "+fields[2])
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		return must.ErrorIf(!slices.Equal(got, want), "in epoch %d acted on %q, want %q", epoch, got, want)
	}
}

// newProgram is a manager with a Member, without controllers.
func newProgram(t *testing.T, ns string) (ctrl.Manager, *member.Member) {
	mgr := harness.Get(ctrl.NewManager(cluster.AdminConfig(), ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}},
		Controller: config.Controller{SkipNameValidation: new(true)},
	}))(t)
	m, err := member.New(mgr.GetConfig(), member.Options{Namespaces: []string{ns}})
	harness.Must(t, errors.Join(err, mgr.Add(m)))
	return mgr, m
}

// shop is a request that no object has the name of.
type shop struct{ namespace, what string }

// Of several controllers in one program each gets back on promotion what it has skipped: of its own kind, of
// cluster-scoped ones, and what a handler has made of others. What predicates keep from it stays away.
func TestEveryControllerOfAProgramGetsBackWhatItHasSkipped(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	mine := map[string]string{"test": ns}
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()["test"] == ns })
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a", Labels: mine}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "of-others"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "b", Labels: mine}},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: mine}, Value: 7},
	} {
		harness.Must(t, admin.Create(t.Context(), o))
		t.Cleanup(func() { _ = admin.Delete(context.Background(), o) })
	}
	mgr, m := newProgram(t, ns)
	s := &seen{all: map[string]bool{}}
	by := func(name string) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			s.note(ctx, name, req.Name)
			return reconcile.Result{}, nil
		})
	}
	whole := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []shop {
		return []shop{{ns, "all"}, {ns, "class-" + o.GetName()}, {"elsewhere", "all"}}
	})
	harness.Must(t, errors.Join(
		gate.ControllerManagedBy(mgr, m).For(&corev1.ConfigMap{}, ours).Complete(by("maps")),
		gate.ControllerManagedBy(mgr, m).For(&corev1.Secret{}).WithEventFilter(ours).Complete(by("secrets")),
		gate.TypedControllerManagedBy(mgr, m, func(reconcile.Request) string { return ns }).
			For(&schedulingv1.PriorityClass{}, ours).Complete(by("classes")),
		gate.TypedControllerManagedBy(mgr, m, func(s shop) string { return s.namespace }).Named("shops").
			Watches(&schedulingv1.PriorityClass{}, whole, ours).
			Complete(reconcile.TypedFunc[shop](func(ctx context.Context, req shop) (reconcile.Result, error) {
				s.note(ctx, "shops", req.what)
				return reconcile.Result{}, nil
			}))))
	write(t, ns, them, 1, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { cancel(); harness.Must(t, <-ended) })
	skipped := func(controller string) float64 { return dropped(t, controller, "skipped") }
	await(t, "the follower has skipped everything", func(context.Context) error {
		for _, name := range []string{"configmap", "secret", "priorityclass", "shops"} {
			if n := skipped(name); n < 1 {
				return fmt.Errorf("%s has skipped %v requests", name, n)
			}
		}
		return nil
	})
	everything := []string{"maps a", "secrets b", "classes " + ns, "shops all", "shops class-" + ns}
	for epoch := int64(2); epoch < 8; epoch += 2 { // it was skipped, or done in an earlier term
		write(t, ns, us, epoch, time.Hour)
		await(t, "everything is done on promotion", s.acted(epoch, everything...))
		write(t, ns, them, epoch+1, time.Hour)
		await(t, "this cluster follows", leads(m, ns, false))
	}
}

// dropped is how many requests a controller has dropped for a reason, by the metrics of this process.
func dropped(t *testing.T, controller, reason string) (n float64) {
	families := harness.Get(metrics.Registry.Gather())(t)
	for _, family := range families {
		if family.GetName() != "leasecast_reader_reconciles_dropped_total" {
			continue
		}
		for _, one := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range one.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["controller"] == controller && labels["reason"] == reason {
				n += one.GetCounter().GetValue()
			}
		}
	}
	return n
}
