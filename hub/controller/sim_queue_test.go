package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// simQueue is the queue of a publisher.
type simQueue struct {
	workqueue.TypedDelayingInterface[types.NamespacedName]
	r      *replica
	work   func(types.NamespacedName)
	isOpen bool
	items  map[types.NamespacedName]*item

	watches []*watcher
	cancel  context.CancelFunc
	isRead  bool // or has given up reading
	ended   bool // nothing begins any more
	running int  // how many copies are worked on
	early   []types.NamespacedName
}

type item struct {
	queued, running, again bool
	due                    time.Duration
	start, work            func() // bound once
}

func (q *simQueue) open() {
	q.isOpen = true
	for _, k := range q.early {
		q.Add(k)
	}
	q.early = nil
}

func (q *simQueue) item(k types.NamespacedName) *item {
	i := q.items[k]
	if i != nil {
		return i
	}
	i = &item{}
	i.work = func() {
		q.work(k)
		q.running--
		if i.running = false; i.again {
			i.again = false
			q.Add(k)
		}
	}
	i.start = func() {
		if i.queued = false; q.ended {
			return
		}
		i.running = true
		q.running++
		q.r.spawn(i.work).writes = true
	}
	q.items[k] = i
	return i
}

// Add has the copy worked on, once at a time.
func (q *simQueue) Add(k types.NamespacedName) {
	i := q.item(k)
	switch {
	case !q.r.alive, q.ended:
	case !q.isOpen:
		q.early = append(q.early, k)
	case i.running:
		i.again = true
	case !i.queued:
		i.queued = true
		q.r.after(10*time.Microsecond, i.start)
	}
}

// AddAfter keeps the earliest timer only.
func (q *simQueue) AddAfter(k types.NamespacedName, d time.Duration) {
	i, at := q.item(k), q.r.w.now+d
	if i.due != 0 && i.due <= at || !q.r.alive {
		return
	}
	i.due = at
	q.r.after(d, func() {
		if i.due == at {
			i.due = 0
			q.Add(k)
		}
	})
}
