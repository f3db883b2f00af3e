package gate

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/leasecast/leasecast/member"
)

// relist is how long to wait after a list that failed.
var relist = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 7, Cap: 5 * time.Second}

// Resync is a source that enqueues every object of a namespace when this cluster
// has begun to lead it. The objects are listed with r, which should be the manager's
// client or cache, so that no API server is asked; list says of which type, usually
// that of For. A list that fails is repeated until it succeeds or the term is over.
func Resync(m member.Leader, r client.Reader, list client.ObjectList) source.Source {
	return ResyncTyped(m, r, list, func(o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	})
}

// ResyncTyped is Resync for requests of any type: requests says which ones an object
// stands for. It must not change the object, which may be the cache's own.
func ResyncTyped[request comparable](m member.Leader, r client.Reader, list client.ObjectList, requests func(client.Object) []request) source.TypedSource[request] {
	return &resync[request]{member: m, reader: r, list: list, requests: requests}
}

type resync[request comparable] struct {
	member   member.Leader
	reader   client.Reader
	list     client.ObjectList
	requests func(client.Object) []request
}

// Start implements source.TypedSource.
func (s *resync[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	remove := s.member.Listen(member.Listener{Promoted: func(namespace string, t member.Term) {
		s.enqueueAll(ctx, namespace, t, queue)
	}})
	context.AfterFunc(ctx, remove)
	return nil
}

// String names the source in the controller's logs.
func (s *resync[request]) String() string { return fmt.Sprintf("resync source: %T", s.list) }

func (s *resync[request]) enqueueAll(ctx context.Context, namespace string, t member.Term, queue workqueue.TypedInterface[request]) {
	logger := log.FromContext(ctx).WithValues("namespace", klog.KRef("", namespace), "epoch", t.Epoch())
	ctx, done, err := s.member.Context(ctx, namespace)
	if err != nil {
		return // over already; if another term has begun, its own promotion follows
	}
	defer done()
	_ = relist.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		n, err := s.enqueue(ctx, namespace, queue)
		if err != nil {
			logger.Error(err, "Could not list what to resync after a promotion, will try again")
			return false, nil
		}
		logger.Info("Resynced after a promotion", "objects", n)
		return true, nil
	}) // fails only if ctx ends, and then there is nothing left to do
}

func (s *resync[request]) enqueue(ctx context.Context, namespace string, queue workqueue.TypedInterface[request]) (n int, err error) {
	list := s.list.DeepCopyObject().(client.ObjectList)
	if err := s.reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		object, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("list of %T contains a %T, which has no name", list, o)
		}
		for _, req := range s.requests(object) {
			queue.Add(req)
		}
		n++
		return nil
	})
	return n, err
}
