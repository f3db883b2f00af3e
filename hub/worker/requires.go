package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

const (
	// maxRequired is how many objects with the label are kept of one resource. With more, none of it is known.
	maxRequired = 2000
	// requiredPause is the pause before a resource is listed again that could not be watched.
	requiredPause = 5 * time.Second
	// readRequired bounds one read of an object. readRequiredAgain is the pause after one that failed, and
	// readRequiredEvery the least time between two reads of one resource: tenants write those objects.
	readRequired, readRequiredAgain, readRequiredEvery = 3 * time.Second, 5 * time.Second, 20 * time.Millisecond
)

// Requires is what must be healthy in a namespace of a member for it to lead there.
type Requires struct {
	Resources []schema.GroupVersionResource
	Reader    bool
}

// Required is what is known of that. The zero value: all of it is healthy.
type Required struct {
	Unhealthy string // what is not, in words
	Err       error  // why not all of it is known
}

var (
	errUnread  = errors.New("not all of what the policy requires was read yet")
	errNoRight = errors.New("the hub may not read it: apply config/requires in the cluster, with a rule for the resource")
	errUnknown = errors.New("the cluster does not serve it: check group, version and name in requires.resources")
	errTooMany = fmt.Errorf("more than %d objects have the label %s", maxRequired, v1alpha1.RequiredLabel)
)

// Required returns what is known of what must be healthy in a namespace, as watches show it.
func (w *Worker) Required(namespace string, of Requires) (is Required) {
	if of.Reader && w.Readers(namespace) == 0 {
		is.Unhealthy = "no registered reader follows the namespace"
		if w.registrations() == nil {
			is = Required{Err: errUnread}
		}
	}
	w.required.mu.Lock()
	defer w.required.mu.Unlock()
	for _, resource := range of.Resources {
		objects := w.required.of[resource]
		if objects == nil {
			is.Err = errUnread
			continue
		}
		unhealthy, err := objects.in(namespace)
		if is.Unhealthy == "" {
			is.Unhealthy = unhealthy
		}
		if err != nil {
			is.Err = fmt.Errorf("%s: %w", resource.GroupResource(), err)
		}
	}
	return is
}

// required watches the objects in the member that policies require to be healthy, one watch for each resource. A watch
// shows their metadata only. An object that has changed is read as a whole, within a bound.
type required struct {
	Options

	mu sync.Mutex // guards what follows; never held across I/O
	of map[schema.GroupVersionResource]*requiredObjects
}

// requiredObjects are the objects of one resource.
type requiredObjects struct {
	end func() // the watch
	err error  // why they are not known
	of  map[types.NamespacedName]objectHealth
}

// objectHealth is what the last read of an object has shown.
type objectHealth struct {
	unhealthy string // what is wrong, or empty
	err       error  // it could not be read
}

// in returns what is not healthy in a namespace, and why not all is known.
func (o *requiredObjects) in(namespace string) (unhealthy string, err error) {
	for name, is := range o.of {
		if name.Namespace != namespace {
			continue
		}
		if is.unhealthy != "" && (unhealthy == "" || is.unhealthy < unhealthy) { // the same one each time
			unhealthy = is.unhealthy
		}
		if is.err != nil {
			err = is.err
		}
	}
	if o.err != nil {
		err = o.err
	}
	return unhealthy, err
}

// run watches what the policies require until ctx ends.
func (r *required) run(ctx context.Context) {
	var watches sync.WaitGroup
	defer watches.Wait()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		wanted, err := r.Hub.Requires(ctx, r.Member.Key)
		if err != nil {
			return // everything stays as it is
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for resource, objects := range r.of {
			if !slices.Contains(wanted, resource) {
				objects.end()
				delete(r.of, resource)
			}
		}
		for _, resource := range wanted {
			if r.of[resource] == nil {
				watching, end := context.WithCancel(ctx)
				r.of[resource] = &requiredObjects{end: end, err: errUnread, of: map[types.NamespacedName]objectHealth{}}
				watches.Go(func() { r.watch(watching, resource, r.of[resource]) })
			}
		}
	}, keepEvery)
}

// watch watches the objects of one resource until ctx ends.
func (r *required) watch(ctx context.Context, resource schema.GroupVersionResource, o *requiredObjects) {
	client := metadata.NewForConfigOrDie(r.Tenants())
	queue := workqueue.NewTypedDelayingQueue[types.NamespacedName]()
	var reads sync.WaitGroup
	reads.Go(func() { r.read(ctx, resource, o, queue) })
	defer reads.Wait()
	defer queue.ShutDown()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		ctx, end := context.WithCancel(ctx)
		defer end()
		informer := toolscache.NewSharedIndexInformer(
			bounded{client.Resource(resource)}, &metav1.PartialObjectMetadata{}, 0, nil)
		fail := func(err error) {
			r.change(o, "", func() { o.err = explained(err) })
			end()
		}
		handler := toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { r.noteSeen(obj, o, queue, fail) },
			UpdateFunc: func(_, obj any) { r.noteSeen(obj, o, queue, fail) },
			DeleteFunc: func(obj any) { r.noteGone(obj, o) },
		}
		seen, err := informer.AddEventHandler(handler)
		if err == nil {
			err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) { fail(err) })
		}
		if err != nil {
			fail(err) // it has not started
			return
		}
		var sync sync.WaitGroup
		sync.Go(func() {
			if toolscache.WaitForCacheSync(ctx.Done(), seen.HasSynced) {
				r.noteAll(informer.GetStore(), o)
			}
		})
		informer.RunWithContext(ctx)
		end()
		sync.Wait()
	}, requiredPause)
}

// bounded lists and watches the metadata of the objects with the label. A list has a bound, because an informer keeps
// the pages of a list until it has the last one.
type bounded struct{ metadata.Getter }

var (
	_ toolscache.ListerWatcherWithContext = bounded{}
	_ toolscache.ListerWatcher            = bounded{}
)

// IsWatchListSemanticsUnSupported has the informer begin with a list.
func (bounded) IsWatchListSemanticsUnSupported() bool { return true }

func (b bounded) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.LabelSelector, o.Limit = v1alpha1.RequiredLabel+"=true", maxRequired
	list, err := b.Getter.List(ctx, o)
	if err == nil && list.Continue != "" {
		return nil, errTooMany
	}
	return list, err
}

func (b bounded) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector = v1alpha1.RequiredLabel + "=true"
	return b.Getter.Watch(ctx, o)
}

// List and Watch are what an informer has for the time before contexts.
func (b bounded) List(o metav1.ListOptions) (runtime.Object, error) {
	return b.ListWithContext(context.Background(), o)
}

func (b bounded) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return b.WatchWithContext(context.Background(), o)
}

// explained says what to do about an error that stays.
func explained(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return errNoRight
	case apierrors.IsNotFound(err):
		return errUnknown
	default:
		return err
	}
}

// nameOf is the name of an object that a watch shows, or of one that is gone. Objects in no namespace have none.
func nameOf(obj any) (name types.NamespacedName, ok bool) {
	if unknown, gone := obj.(toolscache.DeletedFinalStateUnknown); gone {
		obj = unknown.Obj
	}
	o, ok := obj.(*metav1.PartialObjectMetadata)
	if ok {
		name = types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	}
	return name, ok && name.Namespace != ""
}

// noteSeen has an object read that is new or has changed.
func (r *required) noteSeen(
	obj any, o *requiredObjects, queue workqueue.TypedInterface[types.NamespacedName], fail func(error),
) {
	name, ok := nameOf(obj)
	if !ok {
		return
	}
	r.mu.Lock()
	is, known := o.of[name]
	full := !known && len(o.of) >= maxRequired
	if !known && !full {
		is.err = errUnread
		o.of[name] = is
	}
	r.mu.Unlock()
	if full {
		fail(errTooMany)
		return
	}
	queue.Add(name)
}

// noteGone forgets an object.
func (r *required) noteGone(obj any, o *requiredObjects) {
	if name, ok := nameOf(obj); ok {
		r.change(o, name.Namespace, func() { delete(o.of, name) })
	}
}

// noteAll forgets the objects that a new list does not show. All others were shown.
func (r *required) noteAll(shown toolscache.Store, o *requiredObjects) {
	r.change(o, "", func() {
		o.err = nil
		maps.DeleteFunc(o.of, func(name types.NamespacedName, _ objectHealth) bool {
			_, exists, err := shown.GetByKey(name.String())
			return err == nil && !exists
		})
	})
}

// read reads the objects that are queued, one after the other.
func (r *required) read(
	ctx context.Context, resource schema.GroupVersionResource, o *requiredObjects,
	queue workqueue.TypedDelayingInterface[types.NamespacedName],
) {
	client := batchclient.NewForConfigOrDie(r.Tenants()).RESTClient() // of any group
	pace := rate.NewLimiter(rate.Every(readRequiredEvery), 100)
	for {
		name, shutdown := queue.Get()
		if shutdown {
			return
		}
		is, gone := readHealth(ctx, client, resource, name)
		if is.err != nil {
			queue.AddAfter(name, readRequiredAgain)
		}
		r.change(o, name.Namespace, func() {
			if _, shown := o.of[name]; shown && !gone {
				o.of[name] = is
			}
		})
		queue.Done(name)
		_ = pace.Wait(ctx) // it ends with the queue
	}
}

// change applies a change to what is known of a resource. If that changes a namespace, decisions on it are enqueued; an
// empty namespace stands for all.
func (r *required) change(o *requiredObjects, namespace string, apply func()) {
	r.mu.Lock()
	unhealthy, err := o.in(namespace)
	all := o.err
	apply()
	nowUnhealthy, nowErr := o.in(namespace)
	changed := unhealthy != nowUnhealthy || !sameError(err, nowErr) || namespace == "" && !sameError(all, o.err)
	r.mu.Unlock()
	if changed {
		r.Hub.Changed(r.Member.Key, namespace)
	}
}

func sameError(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}
