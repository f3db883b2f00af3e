package gate

import (
	"strings"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/leasecast/leasecast/member"
)

func own(req reconcile.Request) string { return req.Namespace }

// NewGate is the reconciler that a Builder gives its controller.
func NewGate(m member.Leader, r reconcile.Reconciler) reconcile.Reconciler {
	return newGate("test", m, own, r, nil)
}

// NewObservedGate is NewGate with Observe.
func NewObservedGate(m member.Leader, r, follower reconcile.Reconciler) reconcile.Reconciler {
	return newGate("test", m, own, r, follower)
}

// NewTypedGate is NewGate for requests of any type.
func NewTypedGate[request comparable](
	m member.Leader, namespace func(request) string, r reconcile.TypedReconciler[request],
) reconcile.TypedReconciler[request] {
	return newGate("test", m, namespace, r, nil)
}

// ResyncOf is the source that a Builder gives its controller, with another reader.
func ResyncOf(b *Builder, r client.Reader) (source.Source, error) { return b.resync(r) }

// NewResync is the source that a Builder for a namespaced kind gives its controller.
func NewResync(
	m member.Leader, r client.Reader, object client.Object, predicates ...predicate.Predicate,
) source.Source {
	w := newWatch[reconcile.Request](object, &handler.EnqueueRequestForObject{})
	w.predicates, w.local = predicates, true
	return &resync[reconcile.Request]{strings.ToLower(w.kind), m, r, []*watch[reconcile.Request]{w}, own}
}

// NewTypedResync is the source that a TypedBuilder gives its controller.
func NewTypedResync[request comparable](
	m member.Leader,
	r client.Reader,
	namespace func(request) string,
	watches map[client.Object]handler.TypedEventHandler[client.Object, request],
) source.TypedSource[request] {
	s := &resync[request]{"test", m, r, nil, namespace}
	for object, h := range watches {
		s.watches = append(s.watches, newWatch(object, h))
	}
	return s
}

func newWatch[request comparable](
	object client.Object, h handler.TypedEventHandler[client.Object, request],
) *watch[request] {
	list, err := newList(object, scheme.Scheme)
	if err != nil {
		panic(err)
	}
	kind, err := apiutil.GVKForObject(object, scheme.Scheme)
	if err != nil {
		panic(err)
	}
	return &watch[request]{handler: h, list: list, kind: kind.Kind}
}
