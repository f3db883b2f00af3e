package gate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/leasecast/leasecast/member"
)

// Builder builds a controller that acts only where its cluster leads. It is used as controller-runtime's own, with the
// differences that the package lists:
//
//	gate.ControllerManagedBy(mgr, m).For(&webappv1.Guestbook{}).Owns(&corev1.ConfigMap{}).Complete(r)
type Builder = TypedBuilder[reconcile.Request]

// TypedBuilder is a [Builder] for requests of any type.
type TypedBuilder[request comparable] struct {
	inner     *builder.TypedBuilder[request]
	manager   manager.Manager
	member    member.Leader
	namespace func(request) string
	own       bool // a request has the namespace of its object
	follower  reconcile.TypedReconciler[request]
	name      string
	watches   []*watch[request]
	filters   []predicate.Predicate

	reconciled client.Object // the object of For
}

// watch is a controller's watch of one kind. A promotion enqueues its objects again.
type watch[request comparable] struct {
	object     client.Object
	handler    handler.TypedEventHandler[client.Object, request] // nil: controller-runtime's builder rejects the watch
	predicates []predicate.Predicate

	list  client.ObjectList // an empty list of these objects
	kind  string
	local bool // the requests of a namespace come from its objects alone
	owned bool // the requests are the owners of the objects, which are in the same namespace
}

// ControllerManagedBy returns a Builder whose controller acts on a request while this cluster leads the request's
// namespace. m must also be added to the manager.
//
// Requests without a namespace are refused. So Complete rejects cluster-scoped kinds. For these kinds
// [TypedControllerManagedBy] sets which namespace's leader acts.
func ControllerManagedBy(mgr manager.Manager, m member.Leader) *Builder {
	b := TypedControllerManagedBy(mgr, m, func(req reconcile.Request) string { return req.Namespace })
	b.own = true
	return b
}

// TypedControllerManagedBy is ControllerManagedBy for requests of any type, and for cluster-scoped kinds. namespace
// returns the namespace whose leader acts on a request.
//
//	gate.TypedControllerManagedBy(mgr, m, func(reconcile.Request) string { return "shop" }).
//		For(&corev1.Node{}).Complete(r)
func TypedControllerManagedBy[request comparable](
	mgr manager.Manager, m member.Leader, namespace func(request) string,
) *TypedBuilder[request] {
	return &TypedBuilder[request]{
		inner: builder.TypedControllerManagedBy[request](mgr), manager: mgr, member: m, namespace: namespace,
	}
}

// For sets the kind to reconcile. A predicate is one that controller-runtime's builder.WithPredicates takes. To watch
// metadata only, pass a PartialObjectMetadata with its kind.
func (b *TypedBuilder[request]) For(object client.Object, predicates ...predicate.Predicate) *TypedBuilder[request] {
	b.inner.For(object, builder.WithPredicates(predicates...))
	b.reconciled = object
	h, _ := any(&handler.EnqueueRequestForObject{}).(handler.TypedEventHandler[client.Object, request])
	// The first kind gives the controller its name.
	b.watches = slices.Insert(b.watches, 0, &watch[request]{object: object, handler: h, predicates: predicates})
	return b
}

// Owns adds a kind of objects that a reconciled object controls. A promotion enqueues these owners, also where the
// predicates of For leave them out.
func (b *TypedBuilder[request]) Owns(object client.Object, predicates ...predicate.Predicate) *TypedBuilder[request] {
	b.inner.Owns(object, builder.WithPredicates(predicates...))
	b.watches = append(b.watches, &watch[request]{object: object, predicates: predicates, owned: true})
	return b
}

// Watches adds another kind, and the handler that maps its objects to requests. A promotion passes all of the objects
// to the handler, whose requests of other namespaces are dropped. So these objects are listed once for each promoted
// namespace, one namespace after the other.
func (b *TypedBuilder[request]) Watches(
	object client.Object, h handler.TypedEventHandler[client.Object, request], predicates ...predicate.Predicate,
) *TypedBuilder[request] {
	b.inner.Watches(object, h, builder.WithPredicates(predicates...))
	b.watches = append(b.watches, &watch[request]{object: object, handler: h, predicates: predicates})
	return b
}

// WatchesRawSource adds any other source. What it enqueues in a follower is skipped, and cannot be listed again. So For
// or Watches must enqueue its requests, too.
func (b *TypedBuilder[request]) WatchesRawSource(s source.TypedSource[request]) *TypedBuilder[request] {
	b.inner.WatchesRawSource(s)
	return b
}

// WithEventFilter filters the events of For, Owns and Watches by a predicate.
func (b *TypedBuilder[request]) WithEventFilter(p predicate.Predicate) *TypedBuilder[request] {
	b.inner.WithEventFilter(p)
	b.filters = append(b.filters, p)
	return b
}

// WithOptions sets the options of the controller. With a queue without priorities, a new event waits for all requests
// that promotions have enqueued before it.
func (b *TypedBuilder[request]) WithOptions(o controller.TypedOptions[request]) *TypedBuilder[request] {
	b.inner.WithOptions(o)
	return b
}

// Named names the controller. Default: the kind of For in lower case.
func (b *TypedBuilder[request]) Named(name string) *TypedBuilder[request] {
	b.inner.Named(name)
	b.name = name
	return b
}

// Observe reconciles followers' requests with r instead of skipping them, for instance to keep metrics or caches warm.
// The reconciler must not write, except for finalizers as the package describes: give it the manager's client as a
// client.Reader. Its context carries no term, and it may still be running when this cluster is promoted.
func (b *TypedBuilder[request]) Observe(r reconcile.TypedReconciler[request]) *TypedBuilder[request] {
	b.follower = r
	return b
}

// Complete builds the controller and adds it to the manager. Its reconciler is r, in the terms of this cluster.
//
// The context of r is cancelled when the term ends and carries its epoch. Its logger has the value "epoch". A
// reconciler that ignores its context goes on after the term, and nothing can stop it. What r returns after the term
// has ended is dropped, errors too: r was cancelled, and that is no reason to back off.
//
// A request of a namespace that the Member does not watch will never be acted on. It is refused with a terminal error,
// which the controller logs and counts. This happens once for each such namespace. Later requests are skipped.
//
// A setup that could only lose requests is rejected with an error that wraps [member.ErrMisused].
func (b *TypedBuilder[request]) Complete(r reconcile.TypedReconciler[request]) error {
	if r == nil {
		return errors.New("must provide a non-nil Reconciler")
	}
	if b.manager == nil || b.member == nil || b.namespace == nil {
		return fmt.Errorf("%w: a gated controller needs a manager, a Member, and to know the namespace of a request",
			member.ErrMisused)
	}
	if !slices.ContainsFunc(b.watches, func(w *watch[request]) bool { return w.handler != nil }) {
		return fmt.Errorf("%w: a promotion would bring back nothing that was skipped before: name the kind by For or Watches",
			member.ErrMisused)
	}
	back, err := b.resync(b.manager.GetCache())
	if err != nil {
		return err
	}
	observe(b.member)
	b.inner.WatchesRawSource(back)
	return b.inner.Complete(newGate(back.name, b.member, b.namespace, r, b.follower))
}

// resync returns the source of the requests that a promotion enqueues.
func (b *TypedBuilder[request]) resync(reader client.Reader) (*resync[request], error) {
	back := &resync[request]{
		name: b.name, member: b.member, reader: reader, namespace: b.namespace, slot: make(chan struct{}, 1),
	}
	for _, w := range b.watches {
		if w.owned {
			if _, partial := b.reconciled.(*metav1.PartialObjectMetadata); partial {
				return nil, fmt.Errorf("%w: Owns finds no owners by their metadata: pass For an object of its type",
					member.ErrMisused)
			}
			w.handler = b.enqueueOwner()
		}
		if w.handler == nil {
			continue
		}
		if err := b.complete(w); err != nil {
			return nil, err
		}
		if back.name == "" && !w.owned {
			back.name = strings.ToLower(w.kind)
		}
		back.watches = append(back.watches, w)
	}
	return back, nil
}

// enqueueOwner returns the handler of Owns. It is nil without For, and for requests of another type.
func (b *TypedBuilder[request]) enqueueOwner() handler.TypedEventHandler[client.Object, request] {
	if b.reconciled == nil {
		return nil
	}
	h, _ := handler.EnqueueRequestForOwner(b.manager.GetScheme(), b.manager.GetRESTMapper(), b.reconciled,
		handler.OnlyControllerOwner()).(handler.TypedEventHandler[client.Object, request])
	return h
}

// complete determines how the objects of a watch are listed. It rejects objects whose requests would never be acted on.
func (b *TypedBuilder[request]) complete(w *watch[request]) error {
	kind, err := apiutil.GVKForObject(w.object, b.manager.GetScheme())
	if err != nil {
		return fmt.Errorf("the kind of a %T: %w", w.object, err)
	}
	w.kind = kind.Kind
	w.predicates = append(b.filters[:len(b.filters):len(b.filters)], w.predicates...)
	if w.list, err = newList(w.object, kind, b.manager.GetScheme()); err != nil {
		return err
	}
	if _, plain := any(w.handler).(*handler.EnqueueRequestForObject); !plain && !w.owned || !b.own {
		return nil
	}
	namespaced, err := apiutil.IsGVKNamespaced(kind, b.manager.GetRESTMapper())
	if err != nil {
		return fmt.Errorf("the scope of %s: %w", w.kind, err)
	}
	if !namespaced {
		return fmt.Errorf("%w: %s is cluster-scoped, so no cluster leads the namespace of its objects: make the controller "+
			"by gate.TypedControllerManagedBy, and say which namespace's leader acts on them", member.ErrMisused, w.kind)
	}
	w.local = true
	return nil
}

// newList returns an empty list of objects of a kind, in the same representation.
func newList(object client.Object, kind schema.GroupVersionKind, scheme *runtime.Scheme) (client.ObjectList, error) {
	kind.Kind += "List"
	switch object.(type) {
	case *metav1.PartialObjectMetadata:
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	case runtime.Unstructured:
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	}
	list, err := scheme.New(kind)
	if err != nil {
		return nil, err
	}
	return list.(client.ObjectList), nil
}
