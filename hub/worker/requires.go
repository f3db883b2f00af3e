package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/labelled"
)

const (
	// maxKinds is how many resources are watched in a member, and maxRequired how many objects are kept of one.
	maxKinds, maxRequired = 32, 2000
	// namespacePause is the pause between two turns of a namespace, and turn how many objects are read in one. Tenants
	// write those objects, as often as they like.
	namespacePause, turn = time.Second, 50
	// readRequiredEvery is the least time between two reads of a resource in the long run.
	readRequiredEvery = 20 * time.Millisecond
)

// Requires is what must be healthy in a namespace of a member for it to lead there.
type Requires struct {
	Resources []schema.GroupVersionResource
	Reader    bool
}

// Required is what is known of that. The zero value: all of it is healthy.
type Required struct {
	Unhealthy string // what is not, in words
	Err       error  // why not all of it is known: one of a few constant errors
}

// ErrUnread is the error of what was not read yet.
var ErrUnread = errors.New("not all of what the policy requires was read yet")

// These are constant, and hold nothing that a member says: a text that changes would cause decisions and writes.
var (
	errNoRight   = errors.New("the hub may not read it: apply config/requires there, with a rule for the resource")
	errNoKind    = errors.New("the cluster does not serve it: check group, version and names in requires.resources")
	errNoScope   = errors.New("its objects are in no namespace: take it out of requires.resources")
	errTooMany   = fmt.Errorf("more than %d objects have the label %s", maxRequired, v1alpha1.RequiredLabel)
	errKinds     = fmt.Errorf("the policies of the fleet require more than %d kinds", maxKinds)
	errFailing   = errors.New("it cannot be listed and watched at the moment")
	errNoStatus  = errors.New("the status of an object cannot be read")
	errTooLarge  = errors.New("an object is too large to be read")
	errNoReaders = errors.New("the cluster has more registrations of readers than are kept")
)

// Required returns what is known of what must be healthy in a namespace, as watches show it.
func (w *Worker) Required(namespace string, of Requires) (is Required) {
	if of.Reader {
		is = w.requiredReader(namespace)
	}
	w.required.mu.Lock()
	defer w.required.mu.Unlock()
	for _, resource := range of.Resources {
		unhealthy, err := w.required.in(resource, namespace)
		is.Unhealthy, is.Err = cmp.Or(is.Unhealthy, unhealthy), cmp.Or(is.Err, err)
	}
	return is
}

// required watches the objects in the member that policies require to be healthy, one watch for each resource. A watch
// shows their metadata only. An object that has changed is read as a whole, within a bound.
type required struct {
	Options

	mu sync.Mutex // guards what follows, and all requiredObjects; never held across I/O
	of map[schema.GroupVersionResource]*requiredObjects
	// left: policies require more resources than are watched.
	left bool
}

// requiredObjects are the objects of one resource.
type requiredObjects struct {
	resource schema.GroupVersionResource
	end      func()
	// unread holds the namespaces with objects to be read.
	unread workqueue.TypedDelayingInterface[string]
	err    error // why nothing is known
	of     map[string]map[string]*objectHealth
	n      int
	gone   map[string]bool // the namespaces in which objects have gone since their last turn
}

// objectHealth is what is known of one object.
type objectHealth struct {
	version   string // that the health is of; "": none
	changed   bool   // it is to be read
	unhealthy string // what is wrong, or empty
	err       error  // it was not read, or cannot be
}

// in returns what is not healthy in a namespace, and why not all is known. The caller holds mu.
func (r *required) in(resource schema.GroupVersionResource, namespace string) (unhealthy string, err error) {
	o := r.of[resource]
	switch {
	case o == nil && r.left:
		return "", errKinds
	case o == nil:
		return "", ErrUnread
	case o.err != nil:
		return "", fmt.Errorf("%s: %w", resource.GroupResource(), o.err)
	default:
		return o.in(namespace)
	}
}

// in is the same of one resource. The caller holds the lock.
func (o *requiredObjects) in(namespace string) (unhealthy string, err error) {
	for _, is := range o.of[namespace] {
		if is.unhealthy != "" && (unhealthy == "" || is.unhealthy < unhealthy) { // the same one each time
			unhealthy = is.unhealthy
		}
		if is.err != nil && (err == nil || is.err.Error() < err.Error()) {
			err = is.err
		}
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
		slices.SortFunc(wanted, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
		wanted = slices.Compact(wanted)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.left = len(wanted) > maxKinds
		wanted = wanted[:min(len(wanted), maxKinds)]
		for resource, o := range r.of {
			if !slices.Contains(wanted, resource) {
				o.end()
				delete(r.of, resource)
			}
		}
		for _, resource := range wanted {
			if r.of[resource] == nil {
				watching, end := context.WithCancel(ctx)
				o := newRequiredObjects(resource, end)
				r.of[resource] = o
				watches.Go(func() { r.follow(watching, o) })
			}
		}
	}, keepEvery)
}

func newRequiredObjects(resource schema.GroupVersionResource, end func()) *requiredObjects {
	return &requiredObjects{
		resource: resource, end: end, err: ErrUnread, of: map[string]map[string]*objectHealth{},
		unread: workqueue.NewTypedDelayingQueue[string](), gone: map[string]bool{},
	}
}

// follow watches and reads the objects of one resource until ctx ends.
func (r *required) follow(ctx context.Context, o *requiredObjects) {
	var reads sync.WaitGroup
	reads.Go(func() { r.readAll(ctx, o) })
	defer reads.Wait()
	defer o.unread.ShutDown()
	client := metadata.NewForConfigOrDie(r.Tenants()).Resource(o.resource)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.watch(ctx, client, o); err != nil && ctx.Err() == nil {
			r.Log.V(1).Info("What policies require cannot be watched", "resource", o.resource.String(), "err", bare(err))
			r.fail(o, err)
		}
	}, labelled.Pause)
}

// watch lists the objects, and notes what changes until the watch ends. Nothing is known before the watch was opened.
func (r *required) watch(ctx context.Context, client metadata.ResourceInterface, o *requiredObjects) error {
	err := labelled.Watch{
		Client: client, Selector: v1alpha1.RequiredLabel + "=true", Most: maxRequired,
		Listed: func(list *metav1.PartialObjectMetadataList) error { return r.noteList(o, list.Items) },
		Changed: func(how watch.EventType, item *metav1.PartialObjectMetadata) error {
			return r.note(o, how, item)
		},
	}.Run(ctx)
	if errors.Is(err, labelled.ErrTooMany) {
		return errTooMany
	}
	return err
}

// noteList notes all objects there are. What is known of a version stays.
func (r *required) noteList(o *requiredObjects, items []metav1.PartialObjectMetadata) error {
	if slices.ContainsFunc(items, func(o metav1.PartialObjectMetadata) bool { return o.Namespace == "" }) {
		return errNoScope
	}
	r.mu.Lock()
	before := o.of
	o.err, o.of, o.n = nil, map[string]map[string]*objectHealth{}, 0
	for i := range items {
		item := &items[i]
		is := before[item.Namespace][item.Name]
		if is == nil || is.version != item.ResourceVersion {
			is = &objectHealth{err: ErrUnread}
		}
		o.put(item, is)
	}
	r.mu.Unlock()
	r.Hub.Changed(r.Member.Key, "")
	return nil
}

// put notes an object, and has it read unless its version is known. The caller holds the lock.
func (o *requiredObjects) put(item *metav1.PartialObjectMetadata, is *objectHealth) {
	if o.of[item.Namespace] == nil {
		o.of[item.Namespace] = map[string]*objectHealth{}
	}
	if o.of[item.Namespace][item.Name] == nil {
		o.n++
	}
	o.of[item.Namespace][item.Name] = is
	if is.changed = is.version != item.ResourceVersion; is.changed {
		o.unread.AddAfter(item.Namespace, namespacePause) // so each has a turn a second at most, whatever its tenants do
	}
}

// note notes an event. An object that has changed is as healthy as it was until it is read.
func (r *required) note(o *requiredObjects, how watch.EventType, item *metav1.PartialObjectMetadata) error {
	if item.Namespace == "" {
		return errNoScope
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	is := o.of[item.Namespace][item.Name]
	switch {
	case how == watch.Deleted && is == nil:
	case how == watch.Deleted:
		delete(o.of[item.Namespace], item.Name)
		if o.n--; len(o.of[item.Namespace]) == 0 {
			delete(o.of, item.Namespace)
		}
		o.gone[item.Namespace] = true
		o.unread.AddAfter(item.Namespace, namespacePause)
	case is == nil && o.n >= maxRequired:
		return errTooMany
	case is == nil:
		o.put(item, &objectHealth{err: ErrUnread})
	default:
		o.put(item, is)
	}
	return nil
}

// fail notes that nothing is known of a resource, and why.
func (r *required) fail(o *requiredObjects, err error) {
	r.mu.Lock()
	was := o.err
	o.err = explained(err)
	changed := !errors.Is(was, o.err)
	if errors.Is(o.err, errTooMany) {
		o.of, o.n = map[string]map[string]*objectHealth{}, 0
	}
	r.mu.Unlock()
	if changed {
		r.Hub.Changed(r.Member.Key, "")
	}
}

// explained is the constant error for one of a request.
func explained(err error) error {
	for _, is := range []error{errTooMany, errNoScope} {
		if errors.Is(err, is) {
			return is
		}
	}
	switch {
	case apierrors.IsForbidden(err):
		return errNoRight
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return errNoKind
	default:
		return errFailing
	}
}

// readAll reads the objects that have changed. Namespaces take turns.
func (r *required) readAll(ctx context.Context, o *requiredObjects) {
	client := batchclient.NewForConfigOrDie(r.Tenants()).RESTClient() // of any group
	pace := rate.NewLimiter(rate.Every(readRequiredEvery), 2*turn)
	for {
		namespace, shutdown := o.unread.Get()
		if shutdown {
			return
		}
		before := r.stateOf(o, namespace)
		gone := r.takeGone(o, namespace)
		r.readSome(ctx, client, o, namespace, pace)
		o.unread.Done(namespace)
		if gone || before != r.stateOf(o, namespace) { // a status that only says that it is alive changes nothing
			r.Hub.Changed(r.Member.Key, namespace)
		}
	}
}

// stateOf is what is known of a namespace, and takeGone reports whether objects have gone since its last turn.
func (r *required) stateOf(o *requiredObjects, namespace string) (is Required) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is.Unhealthy, is.Err = o.in(namespace)
	return is
}

func (r *required) takeGone(o *requiredObjects, namespace string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := o.gone[namespace]
	delete(o.gone, namespace)
	return gone
}

// readSome is one turn of a namespace.
func (r *required) readSome(
	ctx context.Context, client rest.Interface, o *requiredObjects, namespace string, pace *rate.Limiter,
) {
	for range turn {
		name := r.next(o, namespace)
		if name == "" {
			return
		}
		if pace.Wait(ctx) != nil {
			return // ctx has ended
		}
		is, version, err := readHealth(ctx, client, o.resource, namespace, name)
		r.mu.Lock()
		if known := o.of[namespace][name]; known != nil {
			if err != nil {
				known.changed = true // it is as healthy as it was, until it can be read
			} else {
				known.version, known.unhealthy, known.err = version, is.unhealthy, is.err
			}
		}
		r.mu.Unlock()
		if err != nil {
			break
		}
	}
	o.unread.AddAfter(namespace, namespacePause)
}

// next takes an object of a namespace that is to be read, or returns "".
func (r *required) next(o *requiredObjects, namespace string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, is := range o.of[namespace] {
		if is.changed {
			is.changed = false
			return name
		}
	}
	return ""
}
