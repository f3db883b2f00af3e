package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/publish"
)

// readers are the registrations that the member's watch shows. They are for people only. Which readers have
// to release the term is decided by a consistent list, which the publisher makes.
type readers struct {
	Options
	events flowcontrol.PassiveRateLimiter
	due    chan struct{} // holds one: changed is not empty

	mu      sync.Mutex
	all     map[types.UID]registration
	changed map[string]bool // namespaces whose readers changed and whose status does not show it; "": all
}

type registration struct {
	name   types.NamespacedName
	reader lease.Registration
	broken bool // it cannot be read: it counts in the namespaces that it claims, and in all if those cannot be read either
}

// scope returns in words which namespaces the reader follows.
func (r registration) scope() string {
	switch {
	case r.broken && len(r.reader.Namespaces) == 0:
		return "namespaces that cannot be read"
	case len(r.reader.Namespaces) == 0:
		return "all namespaces"
	}
	return "namespaces " + strings.Join(r.reader.Namespaces, ", ")
}

func newReaders(o Options) *readers {
	perSecond := float32(time.Second) / float32(readerEventEvery)
	return &readers{
		Options: o, due: make(chan struct{}, 1), all: map[types.UID]registration{}, changed: map[string]bool{},
		events: flowcontrol.NewTokenBucketPassiveRateLimiter(perSecond, readerEvents),
	}
}

// Readers returns how many registered readers follow a namespace.
func (w *Worker) Readers(namespace string) (n int) {
	w.readers.mu.Lock()
	defer w.readers.mu.Unlock()
	for _, r := range w.readers.all {
		if r.reader.Follows(namespace) {
			n++
		}
	}
	return n
}

// watch passes the member's registrations to the publisher until the returned function is called. They have
// a watch of their own, because the member's cache holds the Leases of one label only. The watch is for speed: the
// publisher lists the readers when it matters.
func (rs *readers) watch(ctx context.Context, p *publish.Publisher) (unwatch func()) {
	client, err := kubernetes.NewForConfigAndClient(rs.Cluster.GetConfig(), rs.Cluster.GetHTTPClient())
	if err != nil {
		rs.Log.Error(err, "The readers in the cluster cannot be watched", "reason", "Unwatched")
		return func() {}
	}
	leases := client.CoordinationV1().Leases(metav1.NamespaceAll)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { rs.report(ctx) })
	wg.Go(func() {
		// A watch that shows more than is kept holds it all in its cache. So it ends, and rests for readersPause.
		for ctx.Err() == nil {
			bounded, end := context.WithCancel(ctx)
			rs.informer(leases, p, func() {
				if p.TooManyReaders() != "" {
					end()
				}
			}).RunWithContext(bounded)
			end()
			pause(ctx, readersPause)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// readersPause is how long a watch of the registrations rests after it has shown more than is kept.
const readersPause = time.Minute

// informer watches the registrations in the member. It calls noted after the publisher has observed each
// one.
func (rs *readers) informer(leases coordinationclient.LeaseInterface, p *publish.Publisher,
	noted func()) toolscache.Controller {
	selector := publish.ReaderSelector().String()
	_, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = selector
				return leases.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = selector
				return leases.Watch(ctx, o)
			},
		},
		ObjectType: &coordinationv1.Lease{},
		Transform:  publish.SlimRegistration,
		Handler: toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, initial bool) {
				if l, ok := o.(*coordinationv1.Lease); ok {
					p.ObserveReader(l)
					rs.seen(l, initial)
					noted()
				}
			},
			UpdateFunc: func(_, o any) {
				if l, ok := o.(*coordinationv1.Lease); ok {
					p.ObserveReader(l)
					rs.seen(l, false)
					noted()
				}
			},
			DeleteFunc: func(o any) {
				if l, ok := o.(*coordinationv1.Lease); ok {
					p.ObserveReaderGone(l.UID)
					rs.gone(l.UID)
				}
				// A registration that a new list lacks comes as DeletedFinalStateUnknown. That is no proof of its
				// end: its reader may still act.
				if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					if l, ok := unknown.Obj.(*coordinationv1.Lease); ok {
						rs.gone(l.UID)
					}
				}
			},
		},
	})
	return informer
}

// seen counts a reader that has registered. It records an event on the Cluster, unless an initial list of the
// watch shows the reader.
func (rs *readers) seen(l *coordinationv1.Lease, before bool) {
	reader, err := wire.ReadRegistration(l)
	if err != nil {
		reader = lease.Registration{Namespaces: wire.ReadClaims(l)}
	}
	r := registration{name: types.NamespacedName{Namespace: l.Namespace, Name: l.Name}, reader: reader, broken: err != nil}
	rs.mu.Lock()
	_, known := rs.all[l.UID]
	tooMany := !known && len(rs.all) >= publish.MaxRegistrations
	if !tooMany {
		rs.all[l.UID] = r
	}
	n := len(rs.all)
	rs.mu.Unlock()
	if known || tooMany {
		return
	}
	rs.mark(r)
	if !before {
		rs.record(r.name, "ReaderRegistered", fmt.Sprintf("%s has registered for %s", r.name, r.scope()), n)
	}
}

// gone handles a registration that is gone.
func (rs *readers) gone(uid types.UID) {
	rs.mu.Lock()
	r, known := rs.all[uid]
	delete(rs.all, uid)
	n := len(rs.all)
	rs.mu.Unlock()
	if known {
		rs.mark(r)
		rs.record(r.name, "ReaderGone", r.name.String()+" is not registered any more", n)
	}
}

// Tenants register and unregister as fast as their API server answers. What the management cluster stores of that
// is bounded.
const (
	// readersEvery is how often the status of namespaces is written because readers have registered or gone.
	readersEvery = time.Second
	// readerEvents is how many events about readers are recorded at once; each readerEventEvery allows one more.
	// More would fill the management cluster's store, which keeps each for an hour.
	readerEvents     = 50
	readerEventEvery = 10 * time.Second
)

// mark marks the namespaces that a reader follows as changed, so that their statuses are written.
func (rs *readers) mark(r registration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, ns := range r.reader.Namespaces {
		rs.changed[ns] = true
	}
	if len(r.reader.Namespaces) == 0 {
		rs.changed[""] = true
	}
	select {
	case rs.due <- struct{}{}:
	default:
	}
}

// report enqueues the marked namespaces, at once and then at most every readersEvery, until ctx ends.
func (rs *readers) report(ctx context.Context) {
	for {
		select {
		case <-rs.due:
		case <-ctx.Done():
			return
		}
		rs.mu.Lock()
		changed := rs.changed
		rs.changed = map[string]bool{}
		rs.mu.Unlock()
		for ns := range changed {
			rs.Hub.Changed(rs.Member.Key, ns)
		}
		pause(ctx, readersEvery)
	}
}

// record records an event on the Cluster about a reader: planned changes wait for all readers. If many register or
// leave at once, it records the first of them.
func (rs *readers) record(name types.NamespacedName, why, what string, n int) {
	if rs.events.TryAccept() {
		rs.Hub.RecordReader(rs.Member.Key, name, corev1.EventTypeNormal, why,
			fmt.Sprintf("%s; readers that are registered in this cluster: %d", what, n))
	}
}
