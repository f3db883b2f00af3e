package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// item is one key of a queue. It is worked on once at a time, and keeps its earliest timer only.
type item struct {
	p                              *proc
	queued, running, again, writes bool
	ended                          func() bool   // whether nothing begins any more; may be nil
	due                            time.Duration // of the timer that is set; zero: none
	start, work                    func()        // bound once
}

func newItem(p *proc, do func()) *item {
	i := &item{p: p}
	i.work = func() {
		do()
		if i.running = false; i.again {
			i.again = false
			i.add()
		}
	}
	i.start = func() {
		if i.queued = false; i.ended != nil && i.ended() {
			return
		}
		i.running = true
		p.spawn(i.work).writes = i.writes
	}
	return i
}

// add has the item worked on, now or once more.
func (i *item) add() {
	switch {
	case !i.p.alive, i.ended != nil && i.ended():
	case i.running:
		i.again = true
	case !i.queued:
		i.queued = true
		i.p.after(10*time.Microsecond, i.start)
	}
}

func (i *item) addAfter(d time.Duration) { i.p.soonest(&i.due, d, i.add) }

// soonest has something happen after a while, unless that is to happen sooner already. due remembers when.
func (p *proc) soonest(due *time.Duration, d time.Duration, do func()) {
	at := p.w.now + d
	if *due != 0 && *due <= at || !p.alive {
		return
	}
	*due = at
	p.after(d, func() {
		if *due == at {
			*due = 0
			do()
		}
	})
}

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
	early   []types.NamespacedName
}

func (q *simQueue) open() {
	q.isOpen = true
	for _, k := range q.early {
		q.Add(k)
	}
	q.early = nil
}

func (q *simQueue) item(k types.NamespacedName) *item {
	if q.items[k] == nil {
		i := newItem(q.r.proc, func() { q.work(k) })
		i.writes, i.ended = true, func() bool { return q.ended }
		q.items[k] = i
	}
	return q.items[k]
}

// busy reports whether a Lease is worked on.
func (q *simQueue) busy() bool {
	for _, i := range q.items {
		if i.running {
			return true
		}
	}
	return false
}

// Add has the Lease worked on.
func (q *simQueue) Add(k types.NamespacedName) {
	if q.isOpen || q.ended || !q.r.alive {
		q.item(k).add()
	} else {
		q.early = append(q.early, k)
	}
}

func (q *simQueue) AddAfter(k types.NamespacedName, d time.Duration) {
	q.item(k).p.soonest(&q.item(k).due, d, func() { q.Add(k) })
}
