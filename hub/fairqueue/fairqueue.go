// Package fairqueue orders decisions. Whoever may label namespaces in one member can trigger thousands of them.
// Decisions about other policies and members must not wait behind these.
package fairqueue

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// Lane names a queue of requests. Queues take turns.
type Lane struct {
	Fleet, Policy string
	Member        string // the only member in which the namespaces match; empty: several, or not known
}

// newEvery: while others wait, every newEvery-th decision is about a namespace without a record.
const newEvery = 8

// fair is the order of decisions: namespaces with a record before those without, and in turn by policy and
// member. It is a [workqueue.Queue], whose user holds the lock.
type fair struct {
	laneOf   func(types.NamespacedName) (l Lane, recorded bool)
	recorded turns
	fresh    turns // without a record
	since    int   // requests with a record since the last one without
}

// Constructor makes a work queue with a name.
type Constructor = func(
	string, workqueue.TypedRateLimiter[mcreconcile.Request],
) workqueue.TypedRateLimitingInterface[mcreconcile.Request]

// New returns a constructor of work queues with that order. laneOf returns the lane of a namespace, and whether it has
// a record. It is called under the queue's lock.
func New(laneOf func(types.NamespacedName) (Lane, bool)) Constructor {
	type request = mcreconcile.Request
	type queue = workqueue.TypedRateLimitingInterface[request]
	return func(name string, limiter workqueue.TypedRateLimiter[request]) queue {
		order := &fair{laneOf: laneOf}
		ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[request]{Name: name, Queue: order})
		config := workqueue.TypedDelayingQueueConfig[request]{Name: name, Queue: ordered}
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[request]{
			Name: name, DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(config),
		})
	}
}

// Touch does nothing: a request keeps its place.
func (q *fair) Touch(mcreconcile.Request) {}

// Push adds a request at the end of its lane.
func (q *fair) Push(r mcreconcile.Request) {
	if l, recorded := q.laneOf(r.NamespacedName); recorded {
		q.recorded.push(l, r)
	} else {
		q.fresh.push(l, r)
	}
}

// Len returns the number of waiting requests.
func (q *fair) Len() int { return q.recorded.n + q.fresh.n }

// Pop removes and returns the next request. The queue must not be empty.
func (q *fair) Pop() mcreconcile.Request {
	if q.recorded.n > 0 && (q.fresh.n == 0 || q.since < newEvery-1) {
		q.since++
		return q.recorded.pop()
	}
	q.since = 0
	return q.fresh.pop()
}

// turns holds lanes that take turns.
type turns struct {
	order []Lane // lanes with waiting requests; the first one is next
	lanes map[Lane][]mcreconcile.Request
	n     int
}

func (t *turns) push(l Lane, r mcreconcile.Request) {
	if t.lanes == nil {
		t.lanes = map[Lane][]mcreconcile.Request{}
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
