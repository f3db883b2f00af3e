// Package controller is the sample controller: it prints guestbooks, in the cluster
// that leads their namespace and in no other.
package controller

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
)

// workers is how many guestbooks are worked on at once: a write that hangs in one
// namespace does not keep the others waiting.
const workers = 4

// Reconciler prints each Guestbook's book and notes in its status what it printed.
type Reconciler struct {
	client.Client
	// Print prints a book.
	Print func(ctx context.Context, g *webappv1.Guestbook) error
	// Every is the time between two prints of one book; 0 prints on change only.
	Every time.Duration
}

// Reconcile is the controller's own logic. It knows nothing of clusters, except
// that it notes the term in which it printed.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g := &webappv1.Guestbook{}
	if err := r.Get(ctx, req.NamespacedName, g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.Print(ctx, g); err != nil {
		return ctrl.Result{}, err
	}
	was := g.DeepCopy()
	g.Status.Book = g.Spec.Book
	g.Status.Epoch, _ = member.EpochFrom(ctx)
	if g.Status != was.Status {
		if err := r.Status().Patch(ctx, g, client.MergeFrom(was)); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	return ctrl.Result{RequeueAfter: r.Every}, nil
}

// SetupWithManager adds the controller to the manager. That the builder is package gate's is all that makes it act in
// the leader cluster only, and there on everything that it skipped before.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, m member.Leader) error {
	return gate.ControllerManagedBy(mgr, m).
		For(&webappv1.Guestbook{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}
