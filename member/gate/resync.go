package gate

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/leasecast/leasecast/member"
)

// relist is how long to wait after a list that failed.
var relist = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 7, Cap: 5 * time.Second}

// tellEvery is how often a list is told of that goes on failing.
const tellEvery = time.Minute

// ResyncOption changes what Resync does.
type ResyncOption func(*resyncOptions)

type resyncOptions struct {
	lists      []client.ListOption
	predicates []predicate.Predicate
	name       string
}

// Matching has Resync list only what matches, by labels or by an indexed field:
//
//	gate.Matching(client.MatchingLabels{"tier": "gold"})
//
// The namespace is that of the promotion, whatever the options say, and all that matches is listed: a limit does not count.
func Matching(options ...client.ListOption) ResyncOption {
	return func(o *resyncOptions) { o.lists = append(o.lists, options...) }
}

// Passing has Resync enqueue only objects that pass all the predicates. Give it those that the builder was given by
// WithPredicates or WithEventFilter: the builder applies them to its watches, and cannot apply them to a source of
// another kind. They are asked what they are asked when a controller starts: an object of the initial list was created.
func Passing(predicates ...predicate.Predicate) ResyncOption {
	return func(o *resyncOptions) { o.predicates = append(o.predicates, predicates...) }
}

// Named names the controller in the log, where the builder was given a name by Named. Default: the builder's own
// default, which is the type of the objects in lower case.
func Named(name string) ResyncOption {
	return func(o *resyncOptions) { o.name = name }
}

// Resync is a source that enqueues every object of a namespace when this cluster
// has begun to lead it. The objects are listed with r, which should be the manager's
// client or cache, so that no API server is asked; list says of which type, usually
// that of For. A list that fails is repeated until it succeeds or the term is over, and told at
// once and every minute. A
// namespace that the manager's cache leaves out is skipped: no request of it comes here.
//
// It logs by the logger of the controller's context, if there is one, and by that of the Member otherwise.
func Resync(m member.Leader, r client.Reader, list client.ObjectList, options ...ResyncOption) source.Source {
	return ResyncTyped(m, r, list, func(o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	}, options...)
}

// ResyncTyped is Resync for requests of any type: requests says which ones an object
// stands for. It must not change the object, which may be the cache's own.
func ResyncTyped[request comparable](
	m member.Leader, r client.Reader, list client.ObjectList, requests func(client.Object) []request, options ...ResyncOption,
) source.TypedSource[request] {
	s := &resync[request]{member: m, reader: r, list: list, requests: requests, kind: kindOf(list), clock: clock.RealClock{}}
	for _, o := range options {
		o(&s.resyncOptions)
	}
	if s.name == "" {
		s.name = strings.ToLower(s.kind)
	}
	return s
}

// kindOf names the type of the objects in a list.
func kindOf(list client.ObjectList) string {
	if list == nil {
		return ""
	}
	kind := list.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = reflect.Indirect(reflect.ValueOf(list)).Type().Name()
	}
	return strings.TrimSuffix(kind, "List")
}

type resync[request comparable] struct {
	resyncOptions
	member   member.Leader
	reader   client.Reader
	list     client.ObjectList
	requests func(client.Object) []request
	kind     string
	clock    clock.PassiveClock
}

// Start implements source.TypedSource.
func (s *resync[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	if s.member == nil || s.reader == nil || s.list == nil || s.requests == nil {
		return fmt.Errorf("%w: Resync needs a Member, a client and a list", member.ErrMisused)
	}
	listensTo(s.member)
	remove := s.member.Listen(member.Listener{Promoted: func(namespace string, t member.Term) {
		s.enqueueAll(ctx, namespace, t, queue)
	}})
	context.AfterFunc(ctx, remove)
	return nil
}

// String names the source in the controller's logs.
func (s *resync[request]) String() string { return "resync source: " + s.kind }

func (s *resync[request]) enqueueAll(ctx context.Context, namespace string, t member.Term, queue workqueue.TypedInterface[request]) {
	ctx, done, err := s.member.Context(ctx, namespace)
	if err != nil {
		return // over already; if another term has begun, its own promotion follows
	}
	defer done()
	logger := log.FromContext(ctx).WithValues("controller", s.name, "type", s.kind, "namespace", namespace, "epoch", t.Epoch())
	var told string // what failed, and when that was told
	var at time.Time
	_ = relist.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		n, err := s.enqueue(ctx, namespace, queue)
		switch {
		case err != nil && ctx.Err() != nil: // the end is no trouble
		case outsideOfCache(err):
			logger.Info("Nothing is resynced after a promotion, because the manager's cache leaves this namespace out")
		case err != nil:
			if now := s.clock.Now(); err.Error() != told || now.Sub(at) >= tellEvery {
				told, at = err.Error(), now
				logger.Error(err, "Could not list what to resync after a promotion, and tries again until the term is over")
			}
			return false, nil
		default:
			logger.Info("Resynced after a promotion", "objects", n)
		}
		return true, nil
	}) // fails only if ctx ends, and then there is nothing left to do
}

// outsideOfCache reports whether a cache of some namespaces was asked for another one. That error has no type.
func outsideOfCache(err error) bool {
	return err != nil && strings.Contains(err.Error(), "because of unknown namespace for the cache")
}

func (s *resync[request]) enqueue(ctx context.Context, namespace string, queue workqueue.TypedInterface[request]) (n int, err error) {
	list := s.list.DeepCopyObject().(client.ObjectList)
	options := append(s.lists[:len(s.lists):len(s.lists)],
		client.InNamespace(namespace), client.Limit(0), client.Continue(""), client.UnsafeDisableDeepCopy)
	if err := s.reader.List(ctx, list, options...); err != nil {
		return 0, err
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		object, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("list of %T contains a %T, which has no name", list, o)
		}
		if !s.passes(object) {
			return nil
		}
		for _, req := range s.requests(object) {
			queue.Add(req)
		}
		n++
		return nil
	})
	return n, err
}

// passes reports whether an object passes all predicates.
func (s *resync[request]) passes(o client.Object) bool {
	for _, p := range s.predicates {
		if !p.Create(event.CreateEvent{Object: o, IsInInitialList: true}) {
			return false
		}
	}
	return true
}
