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

// Tenants register and go as fast as their API server answers. What the management cluster stores of that is bounded.
const (
	// readerNewsEvery is how often the status of namespaces is written because readers have come or gone.
	readerNewsEvery = time.Second
	// readerEvents is how many events about that are recorded at once, and one more each readerEventEvery. More would fill
	// the management cluster's store, which keeps each for an hour.
	readerEvents     = 50
	readerEventEvery = 10 * time.Second
)

// readerNews is what people do not know yet of the readers in a member.
type readerNews struct {
	events flowcontrol.PassiveRateLimiter
	due    chan struct{} // holds one: there are namespaces

	mu         sync.Mutex
	namespaces map[string]bool // of which there is news; "": all
}

func newReaderNews() *readerNews {
	perSecond := float32(time.Second) / float32(readerEventEvery)
	return &readerNews{events: flowcontrol.NewTokenBucketPassiveRateLimiter(perSecond, readerEvents), due: make(chan struct{}, 1)}
}

// readersChanged asks for decisions where a reader counts, because they write the status.
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

// tellNews hands on what readersChanged asked for, at once and then no more often than people need it, until ctx ends.
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

// recordReader tells the owner of the Cluster who registers there: planned changes wait for all of them. Of many that come
// or go at once it tells of the first.
func (w *Worker) recordReader(name types.NamespacedName, why, what string, n int) {
	if w.news.events.TryAccept() {
		w.Hub.RecordReader(w.Member.Key, name, corev1.EventTypeNormal, why, fmt.Sprintf("%s; readers that are registered in this cluster: %d", what, n))
	}
}
