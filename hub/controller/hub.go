package controller

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
)

const (
	// decideTimeout bounds one decision with all its calls to the hub's API server, and listTimeout a list from a cache.
	decideTimeout, listTimeout = 20 * time.Second, 5 * time.Second
	// statusTimeout bounds the write of a record's status. No decision depends on it.
	statusTimeout = 2 * time.Second
	// notYet is the delay before a retry while the tenure does not hold, and rightAway before the next decision after a
	// change.
	notYet, rightAway = time.Second, time.Millisecond
	// retryFirst and retrySlowest bound the pause before a request that failed is tried again. A status is written again
	// after retrySlowest.
	retryFirst, retrySlowest = 5 * time.Millisecond, 5 * time.Second
)

// hub is what the parts of a controller share. Nothing in it changes once the manager has started.
type hub struct {
	ledger.Options
	ledger       *ledger.Ledger
	Fleet        *fleet.Provider
	Seals        *seal.Store
	OwnNamespace string

	events      events.EventRecorder
	promises    *publish.Promises
	source      memberSource
	writer      func(fleet.Member) kubernetes.Interface // reaches a member
	recordQueue queue
	policyQueue queue
}

// now reads the clocks for a decision. It truncates the wall clock to what a record can store, so that a record is
// the same before and after it is written.
func (h *hub) now() lease.Reading {
	now := h.Clock.Now()
	now.Wall = now.Wall.Truncate(time.Microsecond)
	return now
}

// standsBack reports whether another installation on this management cluster serves a fleet. Then this one decides
// nothing there and writes nothing: neither into members nor records, statuses of policies or events on Clusters.
func (h *hub) standsBack(fleetName string) bool {
	_, other := h.source.Served(fleetName)
	return other != ""
}

// Serves reports whether this replica decides for a fleet now.
func (h *hub) Serves(fleetName string) bool {
	return h.Tenure.Holds() && !h.standsBack(fleetName)
}

// MayWrite is [tenure.Tenure.MayWrite], but returns false for fleets that another installation serves.
func (h *hub) MayWrite(fleetName string, now lease.Reading) bool {
	return h.Tenure.MayWrite(now) && !h.standsBack(fleetName)
}

// recordOnCluster records an event on the Cluster of a member, and relates it to another object, if that is not
// nil.
func (h *hub) recordOnCluster(key fleet.Key, related runtime.Object, kind, why, action, message string) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	cl := &clusterv1.Cluster{}
	if err := h.Client.Get(ctx, types.NamespacedName{Namespace: key.Fleet, Name: key.Name}, cl); err != nil {
		return // it is gone, and its events are of no use any more
	}
	cl.ResourceVersion = "" // the recorder does not merge events about different versions
	h.events.Eventf(cl, related, kind, why, action, "%s", message)
}

// queue is the work queue of a controller. It is empty until the controller has started.
type queue struct {
	mu sync.Mutex
	q  workqueue.TypedRateLimitingInterface[mcreconcile.Request]
}

// source takes the controller's queue when the controller starts.
func (w *queue) source() source.TypedSource[mcreconcile.Request] {
	return source.TypedFunc[mcreconcile.Request](func(_ context.Context,
		q workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.q = q
		return nil
	})
}

// requestOf asks for the reconciliation of one object.
func requestOf(key types.NamespacedName) mcreconcile.Request {
	return mcreconcile.Request{Request: reconcile.Request{NamespacedName: key}}
}

// add enqueues a decision. Before the controller has started this does nothing: its first lists enqueue everything.
func (w *queue) add(key types.NamespacedName) { w.addIn(0, key) }

// addIn is add after a delay.
func (w *queue) addIn(wait time.Duration, key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.q != nil {
		w.q.AddAfter(requestOf(key), wait)
	}
}

// controllerOptions fills in what multicluster-runtime leaves empty: the manager's defaults, its logger among them.
//
// It uses client-go's queues. The priority queue of controller-runtime v0.24.1 can block forever when it is shut
// down with work in it (controller-runtime issue 3538). A hub that does not stop gives up its election half a
// minute late.
//
// Each request has a pause of its own, so that many failures do not delay each other. The pause stays short: a decision
// is due as soon as the fault ends.
func controllerOptions(
	mgr manager.Manager, f reconcile.TypedFunc[mcreconcile.Request], concurrent int,
) controller.TypedOptions[mcreconcile.Request] {
	o := controller.TypedOptions[mcreconcile.Request]{
		MaxConcurrentReconciles: concurrent,
		Reconciler:              f,
		SkipNameValidation:      ptr.To(true), // a process may hold several hubs, as tests do
		UsePriorityQueue:        ptr.To(false),
		Logger:                  mgr.GetLogger(),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](
			retryFirst, retrySlowest),
	}
	o.DefaultFromConfig(mgr.GetControllerOptions())
	return o
}
