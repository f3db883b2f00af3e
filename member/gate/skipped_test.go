package gate_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/membertest"
)

// What a Gate has skipped is lost where no Resync enqueues it again. That is told, once.
func TestRequestsThatNobodyEnqueuesAgainAreTold(t *testing.T) {
	nothing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	for name, test := range map[string]struct {
		resyncs, skips, observes bool
		told                     int
	}{
		"where nobody does":              {false, true, false, 1},
		"not where a Resync does":        {true, true, false, 0},
		"not where none was skipped":     {false, false, false, 0},
		"not where followers do observe": {false, true, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var lines []string
				logger := funcr.New(func(_, line string) {
					mu.Lock()
					defer mu.Unlock()
					lines = append(lines, line)
				}, funcr.Options{})
				ctx, cancel := context.WithCancel(log.IntoContext(t.Context(), logger))
				f := membertest.New()
				var options []gate.Option[reconcile.Request]
				if test.observes {
					options = append(options, gate.Observe[reconcile.Request](nothing))
				}
				g := gate.Gate(f, nothing, options...)
				if test.resyncs {
					queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
					defer queue.ShutDown()
					if err := gate.Resync(f, fake.NewClientBuilder().Build(), &corev1.ConfigMapList{}).Start(ctx, queue); err != nil {
						t.Fatal(err)
					}
				}
				f.Demote("shop")
				req := reconcile.Request{}
				if req.Namespace = "shop"; test.skips {
					for range 2 {
						if _, err := g.Reconcile(ctx, req); err != nil {
							t.Fatal(err)
						}
					}
				}
				for range 2 {
					f.Promote("shop")
					synctest.Wait()
					f.Demote("shop")
					synctest.Wait()
				}
				cancel()
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				told := 0
				for _, line := range lines {
					if strings.Contains(line, "no Resync enqueues them again") && strings.Contains(line, `"namespace"="shop"`) {
						told++
					}
				}
				if told != test.told {
					t.Errorf("told %d times, want %d: %v", told, test.told, lines)
				}
			})
		})
	}
}
