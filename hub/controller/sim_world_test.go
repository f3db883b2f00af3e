package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// The simulation runs the real decisions, publishers, tenure and reader's rule in one
// thread, on a heap of events in virtual time. A process's blocking code is a task: a
// coroutine that leaves whenever it waits for an answer or a timer. Everything that
// happens follows from the seed.
//
// A seed covers 5 to 30 s with faults and about half a minute without, in which what was
// promised ends and everything has to come right. It has two hub replicas, two or three
// members with one or two readers each, one or two namespaces, and some of the faults:
// processes and servers that stop, crash and restart, links cut one way or both, messages
// lost, late, doubled or answered wrongly, stale lists and late watches, restored and edited
// members, records and elections, operators' edits, and clocks anywhere within ε, many of
// them at its limits.

// world is one simulated run.
type world struct {
	scenario
	rng    *rand.Rand
	now    time.Duration // true time since the start
	events eventHeap
	seq    uint64
	cur    *task
	trace  io.Writer // nil: nobody reads it

	hub      *hubServer
	members  []*member
	replicas []*replica
	readers  []*reader
	stocks   []*stock
	procs    []*proc // all that ever lived
	oracle   oracle
	faulty   bool // faults may still happen
}

// epoch0 is the true time at the start of a run. Where no record is ever lost, it may also be earlyEpoch0,
// before the seconds that epochs start from: then it is by the hub's memory alone that they rise.
var (
	epoch0      = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	earlyEpoch0 = time.Date(2024, time.March, 1, 12, 0, 0, 0, time.UTC)
)

type simEvent struct {
	at  time.Duration
	seq uint64
	p   *proc // in which it happens; nil: in none
	do  func()
}

// eventHeap has four children to a node: less deep, and they lie side by side.
type eventHeap []simEvent

func (e *simEvent) before(o *simEvent) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func (h *eventHeap) push(e simEvent) {
	s := append(*h, e)
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&s[up]) {
			break
		}
		s[i], i = s[up], up
	}
	s[i], *h = e, s
}

func (h *eventHeap) pop() simEvent {
	s := *h
	first, n := s[0], len(s)-1
	e := s[n]
	s[n] = simEvent{}
	s = s[:n]
	*h = s
	if n == 0 {
		return first
	}
	i := 0
	for below := 1; below < n; below = 4*i + 1 {
		down := below
		for j := below + 1; j < min(below+4, n); j++ {
			if s[j].before(&s[down]) {
				down = j
			}
		}
		if e.before(&s[down]) {
			break
		}
		s[i], i = s[down], down
	}
	s[i] = e
	return first
}

// after has something happen, whatever becomes of any process.
func (w *world) after(d time.Duration, do func()) { w.plan(d, nil, do) }

// soon has something happen between lo and hi from now, if faults may still happen then.
func (w *world) soon(lo, hi time.Duration, do func()) {
	w.after(w.between(lo, hi), func() {
		if w.faulty {
			do()
		}
	})
}

func (w *world) plan(d time.Duration, p *proc, do func()) {
	w.seq++
	if p != nil && !p.alive {
		return // it does not come back
	}
	w.events.push(simEvent{at: w.now + max(0, d), seq: w.seq, p: p, do: do})
}

// run lets events happen until the given time, or until the oracle has seen enough.
func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= until && w.oracle.violation == "" {
		e := w.events.pop()
		if w.now = e.at; e.p != nil {
			e.p.do(e.do)
		} else {
			e.do()
		}
	}
	w.now = max(w.now, until)
}

// end lets all processes go.
func (w *world) end() {
	for _, p := range w.procs {
		p.crash()
	}
}

func (w *world) say(who, format string, args ...any) {
	if w.trace != nil {
		_, _ = fmt.Fprintf(w.trace, "%10.4f %-8s %s\n", w.now.Seconds(), who, fmt.Sprintf(format, args...))
	}
}

// between draws a duration.
func (w *world) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)+1))
}

func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// hostClock is the clock of one host. While it is honest its wall clock stays within
// ε/2 of true time.
type hostClock struct {
	w        *world
	from, to time.Duration // error of the wall clock at the start and at the end
	over     time.Duration
	rate     float64 // of the boot clock, against true time
	base     time.Duration
	jump     time.Duration // a step of the wall clock, outside the promise
	before   time.Duration // the jump before this one
	stepped  time.Duration // when it last changed
}

func (w *world) newClock() *hostClock {
	half := w.timings.Skew / 2
	edge := func() time.Duration {
		if n := w.rng.IntN(4); n < 2 {
			return half - time.Duration(n)*2*half
		}
		return w.between(-half, half)
	}
	c := &hostClock{
		w: w, from: edge(), to: edge(), over: w.length(),
		rate: 1 + drift*pick(w.rng, []float64{-1, 1, w.rng.Float64(), -w.rng.Float64()}),
		base: w.between(time.Hour, 100*time.Hour),
	}
	if w.chance(0.6) { // mostly it is wrong by the same all the time: what ε is for
		c.to = c.from
	}
	return c
}

// drift is how fast a boot clock may go wrong: less than ε/2 in the longest D.
const drift = 0.02

func (c *hostClock) read(now time.Duration) lease.Reading {
	off := c.from + c.jump
	if c.to != c.from {
		off += time.Duration(min(1, float64(now)/float64(c.over)) * float64(c.to-c.from))
	}
	return lease.Reading{Wall: c.w.start.Add(now + off), Boot: c.base + time.Duration(float64(now)*c.rate)}
}

// err makes the error of the wall clock the same all the time.
func (c *hostClock) err(by time.Duration) { c.from, c.to = by, by }

// proc is one process on one host.
type proc struct {
	w      *world
	name   string
	host   *hostClock
	alive  bool
	frozen bool // stopped, as by SIGSTOP
	asleep *task
	// stopNext is for how long one of the next readings by a publisher stops it.
	stopNext time.Duration
	froze    lease.Reading
	muted    bool // no watch or list of it shows anything new
	backlog  []func()
	tasks    []*task
	links    []link // by server
	ctx      context.Context
	cancel   context.CancelFunc
	woke     func(from lease.Reading) // tells that the process was stopped since then
}

// untimed is a context on which context.WithTimeout sets no timer: the simulated
// network ends requests by virtual time.
type untimed struct{ context.Context }

func (untimed) Deadline() (time.Time, bool) { return time.Unix(0, 0), true }

func (w *world) newProc(name string, host *hostClock) *proc {
	ctx, cancel := context.WithCancel(context.Background())
	p := &proc{w: w, name: name, host: host, alive: true, ctx: untimed{ctx}, cancel: cancel}
	w.procs = append(w.procs, p)
	return p
}

// Now implements lease.Clock. The process may be stopped right after any reading.
func (p *proc) Now() lease.Reading {
	r := p.host.read(p.w.now)
	t := p.w.cur
	if t == nil || t.p != p || !p.alive || t.killed || !p.w.faulty || p.frozen {
		return r
	}
	d := time.Duration(0)
	if p.w.chance(p.w.stopAtReading) {
		d = p.w.between(time.Millisecond, p.w.longestStop)
	}
	if t.writes && d == 0 && p.w.chance(0.3) {
		d, p.stopNext = p.stopNext, 0
	}
	if d > 0 {
		p.freeze(d, t)
		t.wait()
	}
	return r
}

// after has something happen in the process, if it still lives then and once it is not
// stopped any more.
func (p *proc) after(d time.Duration, do func()) { p.w.plan(d, p, do) }

func (p *proc) do(do func()) {
	switch {
	case !p.alive:
	case p.frozen:
		p.backlog = append(p.backlog, do)
	default:
		do()
	}
}

// freeze stops the process. asleep is the task that was running.
func (p *proc) freeze(d time.Duration, asleep *task) {
	if p.frozen || !p.alive {
		return
	}
	p.w.say(p.name, "stopped for %v", d)
	p.frozen, p.asleep, p.froze = true, asleep, p.host.read(p.w.now)
	p.w.after(d, func() {
		if !p.alive {
			return
		}
		p.w.say(p.name, "continues")
		p.frozen = false
		if p.woke != nil {
			p.woke(p.froze)
		}
		if t := p.asleep; t != nil {
			p.asleep = nil
			t.step()
		}
		waiting := p.backlog
		p.backlog = nil
		p.w.rng.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		for _, do := range waiting {
			p.do(do)
		}
	})
}

// crash ends the process at once. It must not be called by a task of its own.
func (p *proc) crash() {
	if !p.alive {
		return
	}
	p.w.say(p.name, "ends")
	p.alive, p.backlog = false, nil
	p.cancel()
	if t := p.asleep; t != nil {
		p.asleep = nil
		t.end() // first: it may hold a lock that the others wait for
	}
	for len(p.tasks) > 0 {
		p.tasks[0].end()
	}
}

// task is a coroutine of a process.
type task struct {
	p       *proc
	do      func() // nil: it has nothing left to do
	next    func() (struct{}, bool)
	again   func() // step, as a value that is made once
	yield   func(struct{}) bool
	started bool
	killed  bool
	writes  bool // Leases in a member
}

// idle are coroutines that have nothing to do, for the next tasks: a new one has to grow its stack first.
var idle struct {
	sync.Mutex
	tasks []*task
}

func newTask() *task {
	idle.Lock()
	defer idle.Unlock()
	if n := len(idle.tasks); n > 0 {
		t := idle.tasks[n-1]
		idle.tasks = idle.tasks[:n-1]
		return t
	}
	t := &task{}
	t.again = t.step
	t.next, _ = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		for ok := true; ok; ok = yield(struct{}{}) {
			t.do()
			t.do = nil
		}
	})
	return t
}

// spawn starts a task. It first runs when the present event is over, and never in a process that has ended.
func (p *proc) spawn(do func()) *task {
	if !p.alive {
		return &task{}
	}
	t := newTask()
	t.p, t.do = p, do
	p.tasks = append(p.tasks, t)
	p.after(0, t.again)
	return t
}

func (t *task) step() {
	if t.killed {
		return
	}
	w := t.p.w
	before := w.cur
	w.cur, t.started = t, true
	t.next()
	w.cur = before
	if t.do == nil {
		t.leave()
	}
}

// end unwinds the task: whatever it still asks for fails.
func (t *task) end() {
	if t.killed = true; t.started {
		t.next()
	}
	t.leave()
}

// leave has the task wait for something else to do. It must know nothing any more of a world that
// may be over.
func (t *task) leave() {
	p := t.p
	if i := slices.Index(p.tasks, t); i >= 0 {
		p.tasks = slices.Delete(p.tasks, i, i+1)
	}
	t.p, t.do, t.started, t.killed, t.writes = nil, nil, false, false, false
	idle.Lock()
	defer idle.Unlock()
	idle.tasks = append(idle.tasks, t)
}

// wait leaves the task until step is called. It returns false if the process has ended.
func (t *task) wait() bool { return !t.killed && t.yield(struct{}{}) && !t.killed }

// sleep waits in a task, and returns false if the process has ended.
func (p *proc) sleep(d time.Duration) bool {
	t := p.w.cur
	if !p.alive || t == nil || t.killed {
		return false
	}
	p.after(d, t.again)
	return t.wait()
}

var errEnded = errors.New("the process has ended")
