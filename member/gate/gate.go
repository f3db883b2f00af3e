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

// Option changes what Gate does.
type Option[request comparable] func(*gate[request])

// Observe has followers' requests reconciled by r instead of skipped, for instance
// to keep metrics or caches warm. It must not write, but for what the package says of
// finalizers: give it a client made by ReadOnly. Its context carries no term, and it may still be running when this
// cluster is promoted.
func Observe[request comparable](r reconcile.TypedReconciler[request]) Option[request] {
	return func(g *gate[request]) { g.follower = r }
}

// Gate returns a reconciler that calls r while this cluster leads the namespace of
// the request, and otherwise returns at once: no error, no requeue. Resync enqueues
// the request again when this cluster is promoted. Where no Resync does, that is told once.
//
// The context of r is cancelled when the term ends, carries its epoch, and its
// logger has the value "epoch". A reconciler that ignores its context acts on after
// the term, and nobody can stop it. What r returns after the term has ended is
// dropped, errors too: it was told to stop, and that is no reason to back off.
//
// A request of a namespace that the Member does not watch is refused with a terminal
// error, which the controller logs and counts: nobody would ever act on it. That happens once
// for each such namespace; later requests are skipped.
//
// A request without a namespace, as for a cluster-scoped object, is refused with a
// terminal error; use Typed to say which namespace decides.
func Gate(m member.Leader, r reconcile.Reconciler, opts ...Option[reconcile.Request]) reconcile.Reconciler {
	return Typed(m, func(req reconcile.Request) string { return req.Namespace }, r, opts...)
}

// Typed is Gate for requests of any type: namespace says which namespace's
// leader acts on a request.
func Typed[request comparable](m member.Leader, namespace func(request) string, r reconcile.TypedReconciler[request], opts ...Option[request]) reconcile.TypedReconciler[request] {
	g := &gate[request]{member: m, namespace: namespace, leader: r}
	for _, o := range opts {
		o(g)
	}
	return g
}

type gate[request comparable] struct {
	member    member.Leader
	namespace func(request) string
	leader    reconcile.TypedReconciler[request]
	follower  reconcile.TypedReconciler[request] // nil: followers do nothing
	refused   sync.Map                           // the namespaces that are not watched and were refused
	skipped   skipped
}

// Reconcile implements reconcile.TypedReconciler.
func (g *gate[request]) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	ns := g.namespace(req)
	if ns == "" {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("request %v has no namespace, so no cluster leads it: use Typed for cluster-scoped objects", req))
	}
	term, done, err := g.member.Context(ctx, ns)
	switch {
	case errors.Is(err, member.ErrNotLeader):
		return g.follow(ctx, ns, req)
	case errors.Is(err, member.ErrNotWatched): // trying again changes nothing
		if _, before := g.refused.LoadOrStore(ns, true); before {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, reconcile.TerminalError(err)
	case errors.Is(err, member.ErrMisused):
		return reconcile.Result{}, reconcile.TerminalError(err)
	case err != nil:
		return reconcile.Result{}, err
	}
	defer done()
	epoch, _ := member.EpochFrom(term)
	logger := log.FromContext(ctx).WithValues("epoch", epoch)
	result, err := g.leader.Reconcile(log.IntoContext(term, logger), req)
	if lost := member.Check(term); errors.Is(lost, member.ErrLost) { // which its context may learn later
		logger.V(1).Info("The term ended during a reconcile", "reason", lost.Error(), "dropped", err)
		return reconcile.Result{}, nil
	}
	return result, err
}

func (g *gate[request]) follow(ctx context.Context, namespace string, req request) (reconcile.Result, error) {
	if g.follower == nil {
		g.skipped.note(g.member, namespace, log.FromContext(ctx))
		return reconcile.Result{}, nil
	}
	return g.follower.Reconcile(ctx, req)
}
