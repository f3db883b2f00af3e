package controller

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// Whoever may label namespaces in one member can ask for thousands of decisions. Those of other policies and members must
// not wait behind them.

// lane is a line of requests. Those that wait in other lanes come in turn.
type lane struct {
	fleet, policy string
	member        string // the only one in which the namespaces match; empty: they match in several, or that is not known
}

// newEvery is how often a decision about a namespace without a record comes first, while others wait.
const newEvery = 8

// fairQueue is the order in which decisions are made: what has a record before what has none, and in turn by policy and
// member. It is a [workqueue.Queue], so that its user has the lock.
type fairQueue struct {
	laneOf   func(types.NamespacedName) (l lane, recorded bool)
	recorded turns
	fresh    turns // without a record
	since    int   // how many with a record came since one without had its turn
}

// newFairQueue returns a work queue with that order.
func newFairQueue(laneOf func(types.NamespacedName) (lane, bool)) func(string, workqueue.TypedRateLimiter[mcreconcile.Request]) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
	return func(name string, limiter workqueue.TypedRateLimiter[mcreconcile.Request]) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
		type request = mcreconcile.Request
		ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[request]{Name: name, Queue: &fairQueue{laneOf: laneOf}})
		delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[request]{Name: name, Queue: ordered})
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[request]{Name: name, DelayingQueue: delaying})
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

// Len is how many requests wait.
func (q *fairQueue) Len() int { return q.recorded.n + q.fresh.n }

// Pop takes the next request out. There must be one.
func (q *fairQueue) Pop() mcreconcile.Request {
	if q.recorded.n > 0 && (q.fresh.n == 0 || q.since < newEvery-1) {
		q.since++
		return q.recorded.pop()
	}
	q.since = 0
	return q.fresh.pop()
}

// turns are lanes that have their turn one after the other.
type turns struct {
	order []lane // those in which something waits; the first one is next
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
