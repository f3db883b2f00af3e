package controller

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// link is the way from one process to one server.
type link struct {
	noRequests, noAnswers bool // cut, one way each
}

// machine is what all simulated API servers have in common.
type machine struct {
	w      *world
	id     int
	name   string
	frozen time.Duration // stopped until then: requests wait
	down   bool          // refuses connections
	direct bool          // answers at once, and not only tasks
}

var errRefused = errors.New("connection refused")

// lag draws how long a message travels.
func (w *world) lag() time.Duration {
	if w.faulty {
		switch {
		case w.chance(w.veryLate):
			return w.between(w.timings.Timeout/2, 3*w.timings.Duration)
		case w.chance(w.late):
			return w.between(10*time.Millisecond, 2*w.timings.Timeout)
		}
	}
	return w.between(100*time.Microsecond, 5*time.Millisecond)
}

func (p *proc) link(m *machine) *link {
	for len(p.links) <= m.id {
		p.links = append(p.links, link{})
	}
	return &p.links[m.id]
}

// reaches reports whether the process and a server that answers hear each other.
func (p *proc) reaches(m *machine) bool {
	return *p.link(m) == link{} && !m.down && m.frozen <= p.w.now
}

// request is a request to a server. apply carries it out there. Who sent it hears of the outcome, at
// most once, or of a timeout: a task that waits for it, or else answer.
type request[T any] struct {
	p       *proc
	m       *machine
	apply   func() (T, error)
	task    *task
	answer  func(T, error)
	out     T
	err     error
	settled bool
	unheard bool // no answer comes
}

// What happens to a request: it reaches its server, the answer comes back, or nobody waits any longer.
type (
	arrival[T any] request[T]
	outcome[T any] request[T]
	expiry[T any]  request[T]
)

func (q *arrival[T]) happen() { (*request[T])(q).arrive() }
func (q *outcome[T]) happen() { (*request[T])(q).settle() }
func (q *expiry[T]) happen()  { (*request[T])(q).expire() }

// send sends a request.
func (q *request[T]) send(timeout time.Duration) {
	p, w := q.p, q.p.w
	w.plan(timeout, p, (*expiry[T])(q))
	if p.link(q.m).noRequests || w.faulty && w.chance(w.loss) {
		return
	}
	lag := w.lag()
	if q.m == &w.hub.machine && w.faulty && w.chance(w.lateHub) {
		lag = w.between(w.h, 2*w.h+w.timings.Duration) // it may arrive in the next tenure
	}
	w.plan(lag, nil, (*arrival[T])(q))
	if w.faulty && w.chance(w.twice) { // nobody answers, and its effect is delivered once more, late
		q.unheard = true
		again := &request[T]{p: p, m: q.m, apply: q.apply, settled: true}
		w.plan(w.lag()+w.between(0, 2*w.timings.Timeout), nil, (*arrival[T])(again))
	}
}

// arrive is the request reaching its server.
func (q *request[T]) arrive() {
	w := q.p.w
	if q.m.frozen > w.now {
		w.plan(q.m.frozen-w.now, nil, (*arrival[T])(q))
		return
	}
	var out T
	var err error
	switch {
	case q.m.down:
		err = errRefused
	case w.faulty && w.chance(w.busy):
		err = apierrors.NewTooManyRequests("busy", 1)
	default:
		out, err = q.apply()
		if w.faulty && w.chance(w.broken) { // carried out, but the answer does not say so
			var none T
			out, err = none, apierrors.NewInternalError(errors.New("etcd did not answer in time"))
		}
	}
	if q.unheard || q.p.link(q.m).noAnswers || w.faulty && w.chance(w.loss) {
		return
	}
	if !q.settled {
		q.out, q.err = out, err
	}
	w.plan(w.lag(), q.p, (*outcome[T])(q))
}

func (q *request[T]) expire() {
	if !q.settled {
		var none T
		q.out, q.err = none, context.DeadlineExceeded
		q.settle()
	}
}

func (q *request[T]) settle() {
	if q.settled {
		return
	}
	if q.settled = true; q.task != nil {
		q.task.step()
	} else {
		q.answer(q.out, q.err)
	}
}

// send sends a request, of whose outcome answer hears.
func send[T any](p *proc, m *machine, timeout time.Duration, apply func() (T, error), answer func(T, error)) {
	(&request[T]{p: p, m: m, apply: apply, answer: answer}).send(timeout)
}

// call is a request of the running task, which waits for the answer.
func call[T any](p *proc, m *machine, timeout time.Duration, apply func() (T, error)) (T, error) {
	if m.direct {
		return apply()
	}
	var none T
	t := p.w.cur
	if !p.alive || t == nil || t.killed {
		return none, errEnded
	}
	q := &request[T]{p: p, m: m, apply: apply, task: t}
	if q.send(timeout); !t.wait() {
		return none, errEnded
	}
	return q.out, q.err
}

// item is one key of a queue. It is worked on once at a time, and keeps its earliest timer only.
type item struct {
	p                              *proc
	queued, running, again, writes bool
	ended                          func() bool   // whether nothing begins any more; may be nil
	due                            time.Duration // of the timer that is set; zero: none
	start, work, enqueue           func()        // bound once
}

func newItem(p *proc, do func()) *item {
	i := &item{p: p}
	i.enqueue = i.add
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

func (i *item) addAfter(d time.Duration) { i.p.soonest(&i.due, d, i.enqueue) }

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

// invoke is a call whose answer is an error, or nothing.
func invoke(p *proc, m *machine, timeout time.Duration, apply func() error) error {
	_, err := call(p, m, timeout, func() (struct{}, error) { return struct{}{}, apply() })
	return err
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
		i.writes, i.ended, i.enqueue = true, func() bool { return q.ended }, func() { q.Add(k) }
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

func (q *simQueue) AddAfter(k types.NamespacedName, d time.Duration) { q.item(k).addAfter(d) }
