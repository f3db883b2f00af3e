package controller

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// Whoever may label namespaces in one member can trigger thousands of decisions. Decisions about other policies and
// members must not wait behind them.

// lane is a queue of requests. Lanes take turns.
type lane struct {
	fleet, policy string
	member        string // the only member in which the namespaces match; empty: several, or not known
}

// newEvery: while others wait, every newEvery-th decision is about a namespace without a record.
const newEvery = 8

// fairQueue is the order of decisions: namespaces with a record before those without, and in turn by policy and
// member. It is a [workqueue.Queue], whose user holds the lock.
type fairQueue struct {
	laneOf   func(types.NamespacedName) (l lane, recorded bool)
	recorded turns
	fresh    turns // without a record
	since    int   // requests with a record since the last one without
}

// newQueue makes a work queue with a name.
type newQueue = func(
	string, workqueue.TypedRateLimiter[mcreconcile.Request],
) workqueue.TypedRateLimitingInterface[mcreconcile.Request]

// newFairQueue returns a constructor of work queues with that order.
func newFairQueue(laneOf func(types.NamespacedName) (lane, bool)) newQueue {
	type request = mcreconcile.Request
	type queue = workqueue.TypedRateLimitingInterface[request]
	return func(name string, limiter workqueue.TypedRateLimiter[request]) queue {
		order := &fairQueue{laneOf: laneOf}
		ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[request]{Name: name, Queue: order})
		config := workqueue.TypedDelayingQueueConfig[request]{Name: name, Queue: ordered}
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[request]{
			Name: name, DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(config),
		})
	}
}

// Touch does nothing: a request keeps its place.
func (q *fairQueue) Touch(mcreconcile.Request) {}

// Push adds a request at the end of its lane.
func (q *fairQueue) Push(r mcreconcile.Request) {
	if l, recorded := q.laneOf(r.NamespacedName); recorded {
		q.recorded.push(l, r)
	} else {
		q.fresh.push(l, r)
	}
}

// Len returns the number of waiting requests.
func (q *fairQueue) Len() int { return q.recorded.n + q.fresh.n }

// Pop removes and returns the next request. The queue must not be empty.
func (q *fairQueue) Pop() mcreconcile.Request {
	if q.recorded.n > 0 && (q.fresh.n == 0 || q.since < newEvery-1) {
		q.since++
		return q.recorded.pop()
	}
	q.since = 0
	return q.fresh.pop()
}

// turns holds lanes that take turns.
type turns struct {
	order []lane // lanes with waiting requests; the first one is next
	lanes map[lane][]mcreconcile.Request
	n     int
}

func (t *turns) push(l lane, r mcreconcile.Request) {
	if t.lanes == nil {
		t.lanes = map[lane][]mcreconcile.Request{}
	}
	if len(t.lanes[l]) == 0 {
		t.order = append(t.order, l)
	}
	t.lanes[l] = append(t.lanes[l], r)
	t.n++
}

func (t *turns) pop() mcreconcile.Request {
	l := t.order[0]
	t.order = t.order[1:]
	r, rest := t.lanes[l][0], t.lanes[l][1:]
	if t.n--; len(rest) == 0 {
		delete(t.lanes, l)
	} else {
		t.lanes[l], t.order = rest, append(t.order, l)
	}
	return r
}
