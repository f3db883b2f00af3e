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

// request is one request of a process to a server, which apply carries out there.
type request[T any] struct {
	p                  *proc
	m                  *machine
	apply              func() (T, error)
	answered           func() // is called once: with the answer in out and err, or with a timeout
	out                T
	err                error
	isSettled, isTwice bool
}

func send[T any](p *proc, m *machine, timeout time.Duration, apply func() (T, error), answered func()) *request[T] {
	w, r := p.w, &request[T]{p: p, m: m, apply: apply, answered: answered}
	p.after(timeout, r.expire)
	if p.link(m).noRequests || w.faulty && w.chance(w.loss) {
		return r
	}
	lag := w.lag()
	if m == &w.hub.machine && w.faulty && w.chance(w.lateHub) {
		lag = w.between(w.h, 2*w.h+w.timings.Duration) // it may arrive in the next tenure
	}
	w.after(lag, r.arrive)
	// Nobody answers, and its effect is delivered once more, late.
	if r.isTwice = w.faulty && w.chance(w.twice); r.isTwice {
		w.after(w.lag()+w.between(0, 2*w.timings.Timeout), r.arrive)
	}
	return r
}

func (r *request[T]) arrive() {
	w, m := r.p.w, r.m
	if m.frozen > w.now {
		w.after(m.frozen-w.now, r.arrive)
		return
	}
	out, err := serve(m, r.apply)
	if !r.isTwice && !r.p.link(m).noAnswers && !(w.faulty && w.chance(w.loss)) {
		r.out, r.err = out, err
		r.p.after(w.lag(), r.settle)
	}
}

func (r *request[T]) settle() {
	if !r.isSettled {
		r.isSettled = true
		r.answered()
	}
}

func (r *request[T]) expire() {
	if !r.isSettled {
		var none T
		r.out, r.err = none, context.DeadlineExceeded
		r.settle()
	}
}

// serve is what a server does with a request that has reached it.
func serve[T any](m *machine, apply func() (T, error)) (out T, err error) {
	w := m.w
	switch {
	case m.down:
		return out, errRefused
	case w.faulty && w.chance(w.busy):
		return out, apierrors.NewTooManyRequests("busy", 1)
	}
	done, err := apply()
	if w.faulty && w.chance(w.broken) { // carried out, but the answer does not say so
		return out, apierrors.NewInternalError(errors.New("etcd did not answer in time"))
	}
	return done, err
}

// call is a request of the running task, which waits for the answer.
func call[T any](p *proc, m *machine, timeout time.Duration, apply func() (T, error)) (out T, err error) {
	if m.direct {
		return apply()
	}
	t := p.w.cur
	if !p.alive || t == nil || t.killed {
		return out, errEnded
	}
	r := send(p, m, timeout, apply, t.again)
	if !t.wait() {
		return out, errEnded
	}
	return r.out, r.err
}

// item is one key of a queue. It is worked on once at a time, and keeps its earliest timer only.
type item struct {
	p                      *proc
	do                     func()
	queue                  *queueState
	queued, running, again bool
	writes                 bool          // Leases in a member
	due                    time.Duration // of the timer that is set; zero: none
	begin, run, wake       func()        // start, work and add, as values that are made once
}

// queueState is what the items of a queue share. Before it is open they wait, and none begins once it has ended.
type queueState struct{ isOpen, ended bool }

func newItem(p *proc, do func()) *item {
	i := &item{p: p, do: do, queue: &queueState{isOpen: true}}
	i.begin, i.run, i.wake = i.start, i.work, i.add
	return i
}

// add has the item worked on, now or once more.
func (i *item) add() {
	switch {
	case !i.p.alive, i.queue.ended:
	case i.running:
		i.again = true
	case !i.queued:
		if i.queued = true; i.queue.isOpen {
			i.p.after(10*time.Microsecond, i.begin)
		}
	}
}

func (i *item) start() {
	if i.queued = false; !i.queue.ended {
		i.running = true
		i.p.spawn(i.run).writes = i.writes
	}
}

func (i *item) work() {
	i.do()
	if i.running = false; i.again {
		i.again = false
		i.add()
	}
}

func (i *item) addAfter(d time.Duration) { i.p.soonest(&i.due, d, i.wake) }

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
	queueState
	r     *replica
	work  func(types.NamespacedName)
	items map[types.NamespacedName]*item

	watches []*watcher
	cancel  context.CancelFunc
	isRead  bool // or has given up reading
}

func (q *simQueue) open() {
	q.isOpen = true
	for _, k := range sortedKeys(q.items) {
		if i := q.items[k]; i.queued {
			i.p.after(10*time.Microsecond, i.begin)
		}
	}
}

func (q *simQueue) item(k types.NamespacedName) *item {
	if q.items[k] == nil {
		i := newItem(q.r.proc, func() { q.work(k) })
		i.queue, i.writes = &q.queueState, true
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
func (q *simQueue) Add(k types.NamespacedName) { q.item(k).add() }

func (q *simQueue) AddAfter(k types.NamespacedName, d time.Duration) { q.item(k).addAfter(d) }
