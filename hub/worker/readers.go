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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
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
}

// scope returns in words which namespaces the reader follows.
func (r registration) scope() string {
	if len(r.reader.Namespaces) == 0 {
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
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { wait.UntilWithContext(ctx, rs.report, readersEvery) })
	wg.Go(func() {
		// A watch that shows more than is kept holds it all in its cache. So it ends, and rests for readersPause.
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			ctx, end := context.WithCancel(ctx)
			defer end()
			rs.informer(client.CoordinationV1().RESTClient(), p, end).RunWithContext(ctx)
		}, readersPause)
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// readersPause is how long a watch of the registrations rests after it has shown more than is kept.
const readersPause = time.Minute

// informer watches the registrations in the member. It calls end when there are more than the publisher keeps.
func (rs *readers) informer(client toolscache.Getter, p *publish.Publisher, end func()) toolscache.Controller {
	seen := func(o any, initial bool) {
		if l, ok := o.(*coordinationv1.Lease); ok {
			p.ObserveReader(l)
			rs.seen(l, initial)
		}
		if p.TooManyReaders() != "" {
			end()
		}
	}
	_, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.NewFilteredListWatchFromClient(client, "leases", metav1.NamespaceAll,
			func(o *metav1.ListOptions) { o.LabelSelector = publish.ReaderSelector().String() }),
		ObjectType: &coordinationv1.Lease{},
		Transform:  publish.SlimRegistration,
		Handler: toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc:    seen,
			UpdateFunc: func(_, o any) { seen(o, false) },
			DeleteFunc: func(o any) {
				// A registration that a new list lacks comes as DeletedFinalStateUnknown. That is no proof of its
				// end: its reader may still act.
				unknown, missing := o.(toolscache.DeletedFinalStateUnknown)
				if missing {
					o = unknown.Obj
				}
				if l, ok := o.(*coordinationv1.Lease); ok {
					rs.gone(l.UID)
					if !missing {
						p.ObserveReaderGone(l.UID)
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
		reader = lease.Registration{Namespaces: wire.ReadClaims(l)} // all, if they cannot be read either
	}
	r := registration{name: types.NamespacedName{Namespace: l.Namespace, Name: l.Name}, reader: reader}
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
	// readersEvery is the least time between two writes of statuses because readers have registered or gone.
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

// report waits for marked namespaces, and enqueues them.
func (rs *readers) report(ctx context.Context) {
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
}

// record records an event on the Cluster about a reader: planned changes wait for all readers. If many register or
// leave at once, it records the first of them.
func (rs *readers) record(name types.NamespacedName, why, what string, n int) {
	if rs.events.TryAccept() {
		rs.Hub.RecordReader(rs.Member.Key, name, corev1.EventTypeNormal, why,
			fmt.Sprintf("%s; readers that are registered in this cluster: %d", what, n))
	}
}
