package gate

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/leasecast/leasecast/member"
)

// NewGate is the reconciler that a builder gives its controller.
func NewGate[request comparable](
	m member.Leader, namespace func(request) string, leader, follower reconcile.TypedReconciler[request],
) reconcile.TypedReconciler[request] {
	return newGate("test", m, namespace, leader, follower)
}

// ResyncOf is the source that a builder gives its controller, with another reader.
func ResyncOf[request comparable](
	b *TypedBuilder[request], r client.Reader,
) (source.TypedSource[request], error) {
	return b.resync(r)
}
