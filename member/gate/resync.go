package gate

import (
	"context"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/member"
)

// relist is the backoff after a list that failed.
var relist = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 7, Cap: 5 * time.Second}

// resync is a source that enqueues every request of a namespace when this cluster has begun to lead it. These are the
// requests that a start of the controller would enqueue. A list that fails is repeated until it succeeds or the term is
// over. A failure is logged unless it equals the one before. A namespace outside the manager's cache is skipped,
// because this controller gets no request of it.
//
// It uses the logger of the controller's context, if there is one, and the Member's otherwise.
type resync[request comparable] struct {
	name      string
	member    member.Leader
	reader    client.Reader
	watches   []*watch[request]
	namespace func(request) string
	slot      chan struct{} // held while objects of all namespaces are listed
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
func (s *resync[request]) String() string { return "what promotions bring back" }

func (s *resync[request]) enqueueAll(
	ctx context.Context, namespace string, t member.Term, queue workqueue.TypedRateLimitingInterface[request],
) {
	ctx, done, err := s.member.Context(ctx, namespace)
	if err != nil {
		return // over already; if another term has begun, its own promotion follows
	}
	defer done()
	logger := log.FromContext(ctx).WithValues("controller", s.name, "namespace", namespace, "epoch", t.Epoch())
	belongs := func(req request) bool { return s.namespace(req) == namespace }
	promoted := &promotion[request]{TypedRateLimitingInterface: queue, belongs: belongs}
	for _, w := range s.watches {
		w.untilListed(ctx, logger.WithValues("type", w.kind), func(ctx context.Context) (int, error) {
			if !w.local { // many promotions at once must not hold a list of all objects each
				select {
				case s.slot <- struct{}{}:
					defer func() { <-s.slot }()
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}
			return w.enqueue(ctx, s.reader, namespace, promoted)
		})
	}
}

// untilListed calls list until it succeeds or the term is over.
func (w *watch[request]) untilListed(
	ctx context.Context, logger logr.Logger, list func(ctx context.Context) (int, error),
) {
	last := "" // failure
	_ = relist.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		n, err := list(ctx)
		switch {
		case err != nil && ctx.Err() != nil: // the end of the term is no problem
		case outsideOfCache(err):
			logger.Info("Nothing is resynced after a promotion, because the manager's cache leaves this namespace out")
		case err != nil:
			if text := err.Error(); text != last {
				last = text
				logger.Error(err, "Could not list what to resync after a promotion, and tries again until the term is over")
			}
			return false, nil
		default:
			logger.Info("Resynced after a promotion", "objects", n)
		}
		return true, nil
	}) // fails only if ctx ends, and then there is nothing left to do
}

// outsideOfCache reports whether a namespace outside the cache was listed. That error has no type.
func outsideOfCache(err error) bool {
	return err != nil && strings.Contains(err.Error(), "because of unknown namespace for the cache")
}

// enqueue passes all objects that may stand for requests of the namespace to the handler, and returns their number.
func (w *watch[request]) enqueue(
	ctx context.Context, reader client.Reader, namespace string, queue workqueue.TypedRateLimitingInterface[request],
) (n int, err error) {
	list := w.list.DeepCopyObject().(client.ObjectList)
	options := []client.ListOption{client.UnsafeDisableDeepCopy}
	if w.local {
		options = append(options, client.InNamespace(namespace))
	}
	if err := reader.List(ctx, list, options...); err != nil {
		return 0, err
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		created := event.CreateEvent{Object: o.(client.Object), IsInInitialList: true}
		if !w.passes(created) {
			return nil
		}
		w.handler.Create(ctx, created, queue)
		n++
		return nil
	})
	return n, err
}

// passes reports whether an object passes all predicates. Each gets the event that it gets at a controller's start.
func (w *watch[request]) passes(created event.CreateEvent) bool {
	for _, p := range w.predicates {
		if !p.Create(created) {
			return false
		}
	}
	return true
}

// promotion is the queue for the requests of a promotion. It adds requests of the promoted namespace only, at the low
// priority of the list at a controller's start. A handler's delayed ones pass unchanged.
type promotion[request comparable] struct {
	workqueue.TypedRateLimitingInterface[request]
	belongs func(request) bool
}

// Add implements workqueue.TypedInterface.
func (p *promotion[request]) Add(req request) {
	if !p.belongs(req) {
		return
	}
	queue, ok := p.TypedRateLimitingInterface.(priorityqueue.PriorityQueue[request])
	if !ok {
		p.TypedRateLimitingInterface.Add(req)
		return
	}
	queue.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}, req)
}
