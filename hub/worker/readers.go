package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/publish"
)

// registrations are the registrations that the member's watch shows. They are for people only. Which readers have
// to release the term is decided by a consistent list, which the publisher makes.
type registrations struct {
	mu  sync.Mutex
	all map[types.UID]registration
}

type registration struct {
	name   types.NamespacedName
	reader lease.Registration
	broken bool // it cannot be read: it counts in the namespaces that it claims, and in all if those cannot be read either
}

func (r registration) follows(namespace string) bool {
	return r.reader.Follows(namespace)
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

// Readers returns how many registered readers follow a namespace.
func (w *Worker) Readers(namespace string) (n int) {
	w.readers.mu.Lock()
	defer w.readers.mu.Unlock()
	for _, r := range w.readers.all {
		if r.follows(namespace) {
			n++
		}
	}
	return n
}

// watchReaders passes the member's registrations to the publisher until the returned function is called. They have
// a watch of their own, because the member's cache holds the Leases of one label only. The watch is for speed: the
// publisher lists the readers when it matters.
func (w *Worker) watchReaders(ctx context.Context, p *publish.Publisher) (unwatch func()) {
	client, err := kubernetes.NewForConfigAndClient(w.Cluster.GetConfig(), w.Cluster.GetHTTPClient())
	if err != nil {
		w.Log.Error(err, "The readers in the cluster cannot be watched", "reason", "Unwatched")
		return func() {}
	}
	leases := client.CoordinationV1().Leases(metav1.NamespaceAll)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { w.tellNews(ctx) })
	wg.Go(func() {
		// A watch that shows more than is kept holds it all in its cache. So it ends, and rests for readersPause.
		for ctx.Err() == nil {
			bounded, end := context.WithCancel(ctx)
			w.readersInformer(leases, p, func() {
				if p.TooManyReaders() != "" {
					end()
				}
			}).RunWithContext(bounded)
			end()
			rest, rested := context.WithTimeout(ctx, readersPause)
			<-rest.Done()
			rested()
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// readersPause is how long a watch of the registrations rests after it has shown more than is kept.
const readersPause = time.Minute

// readersInformer watches the registrations in the member. It calls noted after the publisher has observed each
// one.
func (w *Worker) readersInformer(leases coordinationclient.LeaseInterface, p *publish.Publisher, noted func()) toolscache.Controller {
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
					w.readerSeen(l, initial)
					noted()
				}
			},
			UpdateFunc: func(_, o any) {
				if l, ok := o.(*coordinationv1.Lease); ok {
					p.ObserveReader(l)
					w.readerSeen(l, false)
					noted()
				}
			},
			DeleteFunc: func(o any) {
				if l, ok := o.(*coordinationv1.Lease); ok {
					p.ObserveReaderGone(l.UID)
					w.readerGone(l.UID)
				}
				// A registration that a new list lacks comes as DeletedFinalStateUnknown. That is no proof of its
				// end: its reader may still act.
				if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					if l, ok := unknown.Obj.(*coordinationv1.Lease); ok {
						w.readerGone(l.UID)
					}
				}
			},
		},
	})
	return informer
}

// readerSeen counts a reader that has registered. It records an event on the Cluster, unless an initial list of the
// watch shows the reader.
func (w *Worker) readerSeen(l *coordinationv1.Lease, before bool) {
	reader, err := wire.ReadRegistration(l)
	if err != nil {
		reader = lease.Registration{Namespaces: wire.ReadClaims(l)}
	}
	r := registration{name: types.NamespacedName{Namespace: l.Namespace, Name: l.Name}, reader: reader, broken: err != nil}
	w.readers.mu.Lock()
	if w.readers.all == nil {
		w.readers.all = map[types.UID]registration{}
	}
	_, known := w.readers.all[l.UID]
	tooMany := !known && len(w.readers.all) >= publish.MaxRegistrations
	if !tooMany {
		w.readers.all[l.UID] = r
	}
	n := len(w.readers.all)
	w.readers.mu.Unlock()
	if known || tooMany {
		return
	}
	w.readersChanged(r)
	if !before {
		w.recordReader(r.name, "ReaderRegistered", fmt.Sprintf("%s has registered for %s", r.name, r.scope()), n)
	}
}

// readerGone handles a registration that is gone.
func (w *Worker) readerGone(uid types.UID) {
	w.readers.mu.Lock()
	r, known := w.readers.all[uid]
	delete(w.readers.all, uid)
	n := len(w.readers.all)
	w.readers.mu.Unlock()
	if known {
		w.readersChanged(r)
		w.recordReader(r.name, "ReaderGone", r.name.String()+" is not registered any more", n)
	}
}
