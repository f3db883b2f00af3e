package harness

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
)

// syncPatience bounds the wait for the first list of a watch.
const syncPatience = 30 * time.Second

// Sighting is one version of an object, and when a watch straight at the API server showed it.
type Sighting[O client.Object] struct {
	At     lease.Reading
	Object O
	// Gone: the object was deleted; this was its last version.
	Gone bool
}

// Watch collects every version of the objects of one kind. It may miss versions when its connection breaks. A pause of
// the API server only delays them.
type Watch[O client.Object] struct {
	stop context.CancelFunc
	done chan struct{}

	mu   sync.Mutex
	seen []Sighting[O]
}

// Observe watches until Stop, and returns when the objects that exist have been seen. ctx bounds that wait only. list
// is an empty list of the kind.
func Observe[O client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, o O,
	options ...client.ListOption) (*Watch[O], error) {
	running, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	w := &Watch[O]{stop: stop, done: make(chan struct{})}
	with := func(raw metav1.ListOptions) []client.ListOption {
		return append(slices.Clone(options), &client.ListOptions{Raw: &raw})
	}
	empty, quiet := func() client.ObjectList { return list.DeepCopyObject().(client.ObjectList) }, logr.Discard()
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		Logger: &quiet,
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
				into := empty()
				return into, c.List(ctx, into, with(raw)...)
			},
			WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
				return c.Watch(ctx, empty(), with(raw)...)
			},
		},
		ObjectType: o,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { w.see(o, false) },
			UpdateFunc: func(_, o any) { w.see(o, false) },
			DeleteFunc: func(o any) { w.see(o, true) },
		},
	})
	go func() {
		defer close(w.done)
		controller.RunWithContext(running)
	}()
	err := must.Await(ctx, syncPatience, fmt.Sprintf("a watch of %T has begun", o), func(context.Context) error {
		return must.ErrorIf(!controller.HasSynced(), "no list yet")
	})
	if err != nil {
		w.Stop()
	}
	return w, err
}

func (w *Watch[O]) see(o any, gone bool) {
	now := Now()
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, Sighting[O]{At: now, Object: o.(O), Gone: gone})
}

// Seen returns all sightings so far, in order.
func (w *Watch[O]) Seen() []Sighting[O] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clip(w.seen)
}

// Take returns the sightings since the last call and drops them. Use it for a watch that lasts long.
func (w *Watch[O]) Take() []Sighting[O] {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

// Stop ends the watch and returns when it has ended. What was seen stays.
func (w *Watch[O]) Stop() {
	w.stop()
	<-w.done
}

// WatchLeases watches the managed Leases of a member, straight at its API server.
func (d *Drill) WatchLeases(ctx context.Context, member string) (*Watch[*coordinationv1.Lease], error) {
	return Observe(ctx, d.Members[member], &coordinationv1.LeaseList{}, &coordinationv1.Lease{},
		client.MatchingLabels{v1alpha1.ManagedLabel: "true"})
}

// WatchRecords watches the records on the hub, straight at its API server.
func (d *Drill) WatchRecords(ctx context.Context) (*Watch[*v1alpha1.NamespaceLeader], error) {
	return Observe(ctx, d.Hub, &v1alpha1.NamespaceLeaderList{}, &v1alpha1.NamespaceLeader{},
		client.InNamespace(FleetNamespace))
}

// LastRenewTime returns the latest renewTime, on the boot clock and up to an instant, of a Lease that let a member act
// in a namespace. seen are the sightings in that member.
func LastRenewTime(seen []Sighting[*coordinationv1.Lease], namespace string, upTo time.Duration) (stamp time.Duration,
	ok bool) {
	for _, l := range LedIn(seen)[namespace] {
		if at := l.Stamp(); at <= upTo && (!ok || at > stamp) {
			stamp, ok = at, true
		}
	}
	return stamp, ok
}
