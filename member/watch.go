package member

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

const allNamespaces = metav1.NamespaceAll

// backoff is how long to wait after a failed request: much less at its end than
// client-go's minute, because a leader that comes back has until its deadline, and
// a successor is waited for.
var backoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 3 * time.Second}

// watched is the watch of one namespace, or of all. It is the store that its
// reflector fills, so an observation is taken in where it is received.
type watched struct {
	namespace string
	client    coordinationv1client.LeaseInterface
	member    *Member
	synced    chan struct{} // closed by the first list
	syncOnce  sync.Once
	heard     atomic.Int64 // when there was a sign of life, as in Reading.Boot
}

var (
	_ cache.ReflectorStore         = (*watched)(nil)
	_ cache.ReflectorBookmarkStore = (*watched)(nil)
)

func newWatched(m *Member, client coordinationv1client.LeasesGetter, namespace string) *watched {
	w := &watched{namespace: namespace, client: client.Leases(namespace), member: m, synced: make(chan struct{})}
	w.alive()
	return w
}

// String names the watch in errors.
func (w *watched) String() string {
	if w.namespace == allNamespaces {
		return "all namespaces"
	}
	return "namespace " + w.namespace
}

func (w *watched) alive() { w.heard.Store(int64(w.member.clock.Now().Boot)) }

// run watches until ctx ends.
func (w *watched) run(ctx context.Context) {
	cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc:  w.list,
			WatchFuncWithContext: w.watch,
		}, w.client),
		&coordinationv1.Lease{}, w,
		cache.ReflectorOptions{Name: "leasecast-member", Logger: &w.member.log, Backoff: &backoff},
	).RunWithContext(ctx)
}

func (w *watched) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.LabelSelector = managed
	ctx, cancel := context.WithTimeout(ctx, w.member.stale/2)
	defer cancel()
	return w.client.List(ctx, o)
}

// watch opens a stream that the server is to end after a quarter to half of the time
// in which nothing may be heard. Shortly before, it sends a bookmark: the sign of
// life of a watch in which nothing happens. That it opens proves nothing.
func (w *watched) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector = managed
	quarter := int64(w.member.stale / time.Second / 4)
	seconds := quarter + rand.Int64N(quarter)
	o.TimeoutSeconds = &seconds
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+w.member.stale/8)
	stream, err := w.client.Watch(ctx, o)
	if err != nil {
		cancel()
		return nil, err
	}
	return &boundedWatch{stream, cancel}, nil
}

// managed selects the copies of the hub.
var managed = labels.Set{v1alpha1.ManagedLabel: "true"}.String()

// boundedWatch is a watch whose context ends with it.
type boundedWatch struct {
	watch.Interface
	cancel context.CancelFunc
}

func (b *boundedWatch) Stop() {
	b.Interface.Stop()
	b.cancel()
}

// Add takes in a Lease that is new to the watch.
func (w *watched) Add(obj any) error { return w.observe(obj) }

// Update takes in a Lease that has changed.
func (w *watched) Update(obj any) error { return w.observe(obj) }

func (w *watched) observe(obj any) error {
	l, err := asLease(obj)
	if err != nil {
		return err
	}
	w.alive()
	w.member.Observe(l)
	return nil
}

// Delete takes in that a Lease is gone, or no longer labelled.
func (w *watched) Delete(obj any) error {
	l, err := asLease(obj)
	if err != nil {
		return err
	}
	w.alive()
	w.member.Delete(l.Namespace, l.Name)
	return nil
}

// Replace takes in a whole list.
func (w *watched) Replace(objs []any, _ string) error {
	all := make([]*coordinationv1.Lease, 0, len(objs))
	for _, obj := range objs {
		l, err := asLease(obj)
		if err != nil {
			return err
		}
		all = append(all, l)
	}
	w.alive()
	w.member.Replace(w.namespace, all)
	w.syncOnce.Do(func() { close(w.synced) })
	return nil
}

// Bookmark takes in a sign of life.
func (w *watched) Bookmark(string) error {
	w.alive()
	return nil
}

// Resync has nothing to do: time alone changes what is permitted, and a timer sees
// to that.
func (w *watched) Resync() error { return nil }

func asLease(obj any) (*coordinationv1.Lease, error) {
	l, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return nil, fmt.Errorf("watch of leases delivered a %T", obj)
	}
	return l, nil
}
