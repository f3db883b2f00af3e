package election_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// The simulation has one namespace, three members with two readers each, and one hub process after the other. Time
// goes in ticks; every process has clocks of its own, whose wall clock is wrong by at most ε/2.
const (
	tick     = 50 * time.Millisecond
	simSkew  = second
	simRenew = second
	simH     = 2 * second
	timeout  = 500 * time.Millisecond
)

// simTimings have a D of whole seconds.
func simTimings(d time.Duration) lease.Timings {
	return lease.Timings{Duration: d, Renew: simRenew, Timeout: timeout, Skew: simSkew}
}

// simClock is wrong by a constant on the wall, and counts from anywhere on the boot clock.
type simClock struct {
	wrong, since time.Duration
}

type message struct {
	at time.Duration
	do func()
}

type world struct {
	r        *rand.Rand
	now      time.Duration // true time
	faulty   bool
	messages []message

	record    election.Record
	version   int
	largest   time.Duration
	forgetful bool // a record was lost: what remembered its epoch may be lost with it
	policy    election.Policy
	members   []*simMember
	hub       *simHub
	older     []*simHub // processes that have lost the election and may not know it yet

	acted     map[string]int64 // by cluster, in this tick
	lastEpoch int64
	problem   string
	trace     func(format string, args ...any) // of one seed
}

// say notes what happens, if somebody wants to know.
func (w *world) say(format string, args ...any) {
	if w.trace != nil {
		w.trace("%10v "+format, append([]any{w.now}, args...)...)
	}
}

type simMember struct {
	name     string
	priority int32
	fitness  election.Fitness
	why      reason.Reason
	up       bool
	copy     *lease.Content
	version  int
	before   []*lease.Content // what a restore may bring back
	readers  []*simReader
}

type simReader struct {
	clock  simClock
	rule   lease.Reader
	permit lease.Permit
	inbox  []delivery
}

type delivery struct {
	at   time.Duration
	copy *lease.Content
}

func newSim(seed uint64) *world {
	w := &world{r: rand.New(rand.NewPCG(seed, 7)), faulty: true, largest: 4 * second}
	w.policy = election.Policy{Timings: simTimings(4 * second), LeaseName: "leasecast", FailOverWhenMostUnreachable: w.chance(2)}
	for i, name := range []string{"east", "west", "south"} {
		m := &simMember{name: name, priority: int32(100 - 10*i), fitness: election.Fit, up: true}
		for range 2 {
			m.readers = append(m.readers, &simReader{clock: w.clock(), rule: lease.Reader{Skew: simSkew}})
		}
		w.members = append(w.members, m)
	}
	w.elect(wall(0).Add(-time.Hour))
	return w
}

func (w *world) chance(oneIn int) bool { return w.r.IntN(oneIn) == 0 }

func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.r.Int64N(int64(most-least)+1))
}

func (w *world) clock() simClock {
	c := simClock{wrong: w.between(-simSkew/2, simSkew/2), since: w.between(0, 1000*second)}
	switch w.r.IntN(4) {
	case 0:
		c.wrong = -simSkew / 2
	case 1:
		c.wrong = simSkew / 2
	}
	return c
}

func (w *world) read(c simClock) lease.Reading {
	return lease.Reading{Wall: zero.Add(w.now + c.wrong), Boot: w.now + c.since}
}

func (w *world) after(d time.Duration, do func()) {
	w.messages = append(w.messages, message{at: w.now + d, do: do})
}

// step lets one tick pass.
func (w *world) step() {
	w.now += tick
	for i := 0; i < len(w.messages); i++ {
		if m := w.messages[i]; m.at <= w.now {
			w.messages = slices.Delete(w.messages, i, i+1)
			i--
			m.do()
		}
	}
	if w.faulty {
		w.fault()
	}
	for _, h := range w.older {
		h.work()
	}
	w.hub.work()
	w.judge()
}

// judge looks at who may act at this very instant.
func (w *world) judge() {
	w.acted = map[string]int64{}
	lowest, highest := int64(0), w.lastEpoch
	for _, m := range w.members {
		for _, r := range m.readers {
			w.deliver(r)
			if now := w.read(r.clock); r.permit.Holds(now) {
				e := r.permit.Epoch
				w.acted[m.name] = e
				highest = max(highest, e)
				if lowest == 0 || e < lowest {
					lowest = e
				}
			}
		}
	}
	switch {
	case len(w.acted) > 1:
		w.fail("two clusters may act: %v", w.acted)
	case lowest > 0 && lowest < w.lastEpoch:
		w.failUnlessForgetful("epoch %d acts after epoch %d", lowest, w.lastEpoch)
	}
	w.lastEpoch = highest
}

func (w *world) fail(format string, args ...any) {
	if w.problem == "" {
		w.problem = fmt.Sprintf("at %v: ", w.now) + fmt.Sprintf(format, args...)
	}
}

// failUnlessForgetful lets pass what follows from an epoch that fell: readers keep to the highest that they saw.
func (w *world) failUnlessForgetful(format string, args ...any) {
	if !w.forgetful {
		w.fail(format, args...)
	}
}

func (w *world) deliver(r *simReader) {
	for len(r.inbox) > 0 && r.inbox[0].at <= w.now {
		if c := r.inbox[0].copy; c != nil {
			r.permit = r.rule.Observe(*c, w.read(r.clock))
		} else {
			r.rule.Gone()
			r.permit = lease.Permit{}
		}
		r.inbox = r.inbox[1:]
	}
}

// put changes what stands in a member, and lets its readers know, each in its time.
func (w *world) put(m *simMember, c *lease.Content) {
	w.say("%s: %+v", m.name, c)
	m.before = append(m.before, m.copy)
	m.copy = c
	m.version++
	for _, r := range m.readers {
		at := w.now + w.between(0, 100*time.Millisecond)
		if w.faulty && w.chance(20) {
			at += w.between(0, 3*second)
		}
		if n := len(r.inbox); n > 0 {
			at = max(at, r.inbox[n-1].at)
		}
		r.inbox = append(r.inbox, delivery{at: at, copy: c})
	}
}

// fault does something to the world, now and then.
func (w *world) fault() {
	if !w.chance(14) {
		return
	}
	m, what := w.members[w.r.IntN(len(w.members))], w.r.IntN(15)
	w.say("fault %d in %s", what, m.name)
	switch what {
	case 0, 1, 2:
		m.up = !m.up
	case 3, 4, 5:
		states := []election.Fitness{election.Fit, election.Fit, election.Unfit, election.Unfit, election.RetainOnly}
		m.fitness = states[w.r.IntN(len(states))]
		m.why = []reason.Reason{reason.Unreachable, reason.Recovering, reason.Deleting}[w.r.IntN(3)]
		w.hub.ask = w.now
	case 6, 7:
		m.priority = int32(w.r.IntN(200))
		w.hub.ask = w.now
	case 8: // a reader restarts, and its first list may be old
		r := m.readers[w.r.IntN(len(m.readers))]
		*r = simReader{clock: w.clock(), rule: lease.Reader{Skew: simSkew}}
		first := m.copy
		if n := len(m.before); n > 0 && w.chance(2) {
			first = m.before[max(0, n-1-w.r.IntN(3))]
		}
		r.inbox = []delivery{{at: w.now + w.between(0, second), copy: first}, {at: w.now + w.between(second, 2*second), copy: m.copy}}
	case 9: // the member's etcd is restored
		if n := len(m.before); n > 0 {
			w.put(m, m.before[w.r.IntN(n)])
		}
	case 10:
		w.put(m, nil) // somebody deletes the copy
	case 11:
		w.policy.Timings = simTimings(time.Duration(4+w.r.IntN(4)) * second)
		w.hub.ask = w.now
	case 12: // somebody else writes the record
		w.version++
		w.hub.ask = w.now
	case 13:
		w.changeHub()
	case 14: // it is cut off from its election, and nobody takes over yet
		w.hub.stuck = true
	}
}

// changeHub lets another process take over, in one of the ways in which that happens.
func (w *world) changeHub() {
	h := w.hub
	switch w.r.IntN(5) {
	case 0: // an orderly release
		h.ended = true
		w.elect(w.read(h.clock).Wall)
	case 1: // the election's Lease was lost
		h.stuck = true
		w.elect(time.Time{})
	case 2: // all records are lost, as by a move
		h.ended = true
		w.record, w.forgetful = election.Record{}, true
		w.version++
		w.elect(h.stamp.Add(simH))
	case 3: // a long outage
		h.ended = true
		w.takeOver(h, w.between(5*second, 15*second))
	default: // the others saw no renewal for h
		h.stuck = true
		w.takeOver(h, simH+w.between(0, second))
	}
}

// takeOver elects another process after a while, unless somebody else was first.
func (w *world) takeOver(h *simHub, after time.Duration) {
	w.after(after, func() {
		if w.hub == h {
			w.elect(h.stamp.Add(simH))
		}
	})
}

// elect begins a tenure. Without an inherited deadline nothing is known of earlier ones.
func (w *world) elect(inherited time.Time) {
	if w.hub != nil {
		w.older = append(w.older, w.hub)
	}
	h := &simHub{w: w, clock: w.clock(), lanes: map[string]*simLane{}, read: map[string]bool{}, ask: w.now}
	started := w.read(h.clock)
	h.stamp = started.Wall
	if inherited.IsZero() {
		inherited = started.Wall.Add(simH)
	}
	h.tenure = election.Tenure{Started: started, Inherited: inherited}
	for _, m := range w.members {
		h.lanes[m.name] = &simLane{member: m}
	}
	w.hub = h
	w.say("elected: %+v, wrong by %v", h.tenure, h.clock.wrong)
}

// heal ends all faults.
func (w *world) heal() {
	w.faulty = false
	for _, m := range w.members {
		m.up, m.fitness, m.why = true, election.Fit, ""
	}
	if w.hub.stuck || w.hub.ended {
		w.hub.ended = true
		w.elect(w.hub.stamp.Add(simH))
	}
	w.hub.ask = w.now
}
