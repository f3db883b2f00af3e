package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
)

// Tenants register and unregister as fast as their API server answers. What the management cluster stores of that
// is bounded.
const (
	// readerNewsEvery is how often the status of namespaces is written because readers have registered or gone.
	readerNewsEvery = time.Second
	// readerEvents is how many events about readers are recorded at once; each readerEventEvery allows one more.
	// More would fill the management cluster's store, which keeps each for an hour.
	readerEvents     = 50
	readerEventEvery = 10 * time.Second
)

// readerNews holds the changes of a member's readers that no status shows yet, and the limit on events about them.
type readerNews struct {
	events flowcontrol.PassiveRateLimiter
	due    chan struct{} // holds one: namespaces is not empty

	mu         sync.Mutex
	namespaces map[string]bool // whose readers changed; "": all
}

func newReaderNews() *readerNews {
	perSecond := float32(time.Second) / float32(readerEventEvery)
	return &readerNews{events: flowcontrol.NewTokenBucketPassiveRateLimiter(perSecond, readerEvents), due: make(chan struct{}, 1)}
}

// readersChanged marks the namespaces that a reader follows as changed, so that their statuses are written.
func (w *Worker) readersChanged(r registration) {
	w.news.mu.Lock()
	defer w.news.mu.Unlock()
	if w.news.namespaces == nil {
		w.news.namespaces = map[string]bool{}
	}
	for _, ns := range r.reader.Namespaces {
		w.news.namespaces[ns] = true
	}
	if len(r.reader.Namespaces) == 0 {
		w.news.namespaces[""] = true
	}
	select {
	case w.news.due <- struct{}{}:
	default:
	}
}

// tellNews enqueues the namespaces that readersChanged marked, at once and then at most every readerNewsEvery,
// until ctx ends.
func (w *Worker) tellNews(ctx context.Context) {
	for {
		select {
		case <-w.news.due:
		case <-ctx.Done():
			return
		}
		w.news.mu.Lock()
		namespaces := w.news.namespaces
		w.news.namespaces = nil
		w.news.mu.Unlock()
		for ns := range namespaces {
			w.Hub.Changed(w.Member.Key, ns)
		}
		pause(ctx, readerNewsEvery)
	}
}

// recordReader records an event on the Cluster about a reader: planned changes wait for all readers. If many
// register or leave at once, it records the first of them.
func (w *Worker) recordReader(name types.NamespacedName, why, what string, n int) {
	if w.news.events.TryAccept() {
		w.Hub.RecordReader(w.Member.Key, name, corev1.EventTypeNormal, why, fmt.Sprintf("%s; readers that are registered in this cluster: %d", what, n))
	}
}
