package worker

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/publish"
)

// readers passes the registrations in the member to [publish.Readers].
type readers struct {
	*Worker
	// changed holds the namespaces whose readers have changed and whose status does not show that yet. "": all.
	changed workqueue.TypedDelayingInterface[string]
}

// byNamespace indexes registrations by the namespaces that their readers follow.
const byNamespace = "namespace"

// unread begins the names under which registrations are indexed that cannot be read.
const unread = "?"

// follows returns the namespaces that a reader follows, or one empty name: all, also if they cannot be read.
func follows(l *coordinationv1.Lease) []string {
	if namespaces := wire.ReadClaims(l); len(namespaces) > 0 {
		return namespaces
	}
	return []string{""}
}

// indexed returns the names under which a registration is indexed.
func indexed(l *coordinationv1.Lease) []string {
	namespaces := follows(l)
	if _, err := wire.ReadRegistration(l); err != nil {
		for i := range namespaces {
			namespaces[i] = unread + namespaces[i]
		}
	}
	return namespaces
}

// Readers returns how many registered readers follow a namespace, as the watch shows it. While the watch rests, it
// returns 0.
func (w *Worker) Readers(namespace string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.registered.count("", namespace) + w.registered.count(unread, namespace)
}

// requiredReader returns whether a registered reader follows a namespace. One whose registration cannot be read counts
// for none.
func (w *Worker) requiredReader(namespace string) Required {
	w.mu.Lock()
	is, p := w.registered, w.publisher
	w.mu.Unlock()
	switch {
	case is.count("", namespace) > 0:
		return Required{}
	case w.Member.OmitsReaders(), p != nil && p.Readers.TooMany():
		return Required{Err: errNoReaders}
	case is.index == nil || !is.synced():
		return Required{Err: ErrUnread}
	default:
		return Required{Unhealthy: "no registered reader follows the namespace"}
	}
}

// shownReaders are the registrations that a watch shows. The zero value: it rests.
type shownReaders struct {
	index  toolscache.Indexer
	synced func() bool
}

// count returns how many follow a namespace, of those that are indexed with a prefix: none, or unread.
func (r shownReaders) count(prefix, namespace string) (n int) {
	if r.index == nil {
		return 0
	}
	for _, name := range []string{prefix, prefix + namespace} {
		keys, _ := r.index.IndexKeys(byNamespace, name) // an error if there is no such index
		n += len(keys)
	}
	return n
}

func (w *Worker) setRegistered(is shownReaders) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.registered = is
}

// watchReaders passes on the member's registrations until the returned function is called. They have a watch of their
// own, because the member's cache holds the Leases of one label only. The watch is for speed: [publish.Readers] lists
// them when it matters.
func (w *Worker) watchReaders(ctx context.Context, to *publish.Readers) (unwatch func()) {
	client, err := kubernetes.NewForConfigAndClient(w.Cluster.GetConfig(), w.Cluster.GetHTTPClient())
	if err != nil {
		w.Log.Error(err, "The readers in the cluster cannot be watched", "reason", reason.Unreachable)
		return func() {}
	}
	rs := &readers{Worker: w, changed: workqueue.NewTypedDelayingQueue[string]()}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(rs.report)
	wg.Go(func() {
		defer rs.changed.ShutDown()
		// A watch that shows more than is kept holds it all in its cache. So it ends, and rests for readersPause.
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			ctx, end := context.WithCancel(ctx)
			index, informer := rs.informer(client.CoordinationV1().RESTClient(), to, end)
			rs.setRegistered(shownReaders{index, informer.HasSynced})
			defer rs.setRegistered(shownReaders{})
			wg.Go(func() {
				if toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
					rs.Hub.Changed(rs.Member.Key, "") // also where no reader has registered
				}
			})
			informer.RunWithContext(ctx)
		}, readersPause)
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// readersPause is how long a watch of the registrations rests after it has shown more than is kept.
const readersPause = time.Minute

// informer watches the registrations in the member. It calls end when there are more than are kept.
func (rs *readers) informer(
	client toolscache.Getter, to *publish.Readers, end func(),
) (toolscache.Indexer, toolscache.Controller) {
	seen := func(l *coordinationv1.Lease) {
		if to.Observe(l); to.TooMany() {
			end()
		}
	}
	store, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.NewFilteredListWatchFromClient(client, "leases", metav1.NamespaceAll,
			func(o *metav1.ListOptions) { o.LabelSelector = publish.ReaderSelector().String() }),
		ObjectType: &coordinationv1.Lease{},
		Indexers: toolscache.Indexers{byNamespace: func(o any) ([]string, error) {
			l, _ := o.(*coordinationv1.Lease)
			return indexed(l), nil
		}},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) {
				if l, ok := o.(*coordinationv1.Lease); ok {
					seen(l)
					rs.mark(l)
				}
			},
			UpdateFunc: func(_, o any) {
				if l, ok := o.(*coordinationv1.Lease); ok {
					seen(l)
				}
			},
			DeleteFunc: func(o any) {
				// A registration that a new list lacks comes as DeletedFinalStateUnknown. That is no proof of its
				// end: its reader may still act.
				unknown, missing := o.(toolscache.DeletedFinalStateUnknown)
				if missing {
					o = unknown.Obj
				}
				if l, ok := o.(*coordinationv1.Lease); ok {
					if !missing {
						to.ObserveGone(l.UID)
					}
					rs.mark(l)
				}
			},
		},
	})
	index, _ := store.(toolscache.Indexer) // because it has Indexers
	return index, informer
}

// readersEvery is the least time between two writes of a status because readers have registered or gone. Tenants do
// that as fast as their API server answers.
const readersEvery = time.Second

// mark has the statuses of the namespaces that a reader follows written.
func (rs *readers) mark(l *coordinationv1.Lease) {
	for _, namespace := range follows(l) {
		rs.changed.AddAfter(namespace, readersEvery)
	}
}

// report enqueues decisions for marked namespaces until the queue is shut down.
func (rs *readers) report() {
	for {
		namespace, shutdown := rs.changed.Get()
		if shutdown {
			return
		}
		rs.Hub.Changed(rs.Member.Key, namespace)
		rs.changed.Done(namespace)
	}
}
