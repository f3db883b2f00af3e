package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/member"
)

// gate calls leader while this cluster leads the namespace of the request, and otherwise returns at once: no error, no
// requeue. A resync enqueues the request again when this cluster is promoted.
type gate[request comparable] struct {
	member    member.Leader
	namespace func(request) string
	leader    reconcile.TypedReconciler[request]
	follower  reconcile.TypedReconciler[request] // nil: followers do nothing
	refused   sync.Map                           // the namespaces that are not watched and were refused
	dropped   dropped
}

func newGate[request comparable](
	name string, m member.Leader, namespace func(request) string, leader, follower reconcile.TypedReconciler[request],
) *gate[request] {
	return &gate[request]{member: m, namespace: namespace, leader: leader, follower: follower, dropped: droppedBy(name)}
}

// Reconcile implements reconcile.TypedReconciler.
func (g *gate[request]) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	ns := g.namespace(req)
	if ns == "" {
		g.dropped.refused.Inc()
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("%w: request %v has no namespace, so no cluster "+
			"leads it: make the controller by gate.TypedControllerManagedBy, and say which namespace's leader acts on it",
			member.ErrMisused, req))
	}
	term, done, err := g.member.Context(ctx, ns)
	switch {
	case errors.Is(err, member.ErrNotLeader):
		return g.follow(ctx, req)
	case errors.Is(err, member.ErrNotWatched): // trying again changes nothing
		g.dropped.refused.Inc()
		if _, before := g.refused.LoadOrStore(ns, true); before {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, reconcile.TerminalError(err)
	case err != nil:
		return reconcile.Result{}, err
	}
	defer done()
	epoch, _ := member.EpochFrom(term)
	logger := log.FromContext(ctx).WithValues("epoch", epoch)
	result, err := g.leader.Reconcile(log.IntoContext(term, logger), req)
	if lost := member.Check(term); errors.Is(lost, member.ErrLost) { // the context may end later than this check
		g.dropped.cut.Inc()
		logger.V(1).Info("The term ended during a reconcile", "reason", lost.Error(), "dropped", err)
		return reconcile.Result{}, nil
	}
	return result, err
}

func (g *gate[request]) follow(ctx context.Context, req request) (reconcile.Result, error) {
	if g.follower == nil {
		g.dropped.skipped.Inc()
		return reconcile.Result{}, nil
	}
	return g.follower.Reconcile(ctx, req)
}
