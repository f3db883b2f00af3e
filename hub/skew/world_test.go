package skew_test

import (
	"math/rand/v2"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/skew"
)

const (
	second = time.Second
	ms     = time.Millisecond
)

// noon is the hub's wall clock when its boot clock shows zero.
var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// world is a hub and a clock of a member, of which the test knows the truth.
type world struct {
	*rand.Rand
	boot   time.Duration
	stepH  time.Duration // what the hub's wall clock was stepped by
	offset time.Duration // of the member's clock, against an unstepped hub clock
	rate   float64       // of its drift
	track  skew.Track
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 0))}
	w.boot = w.between(0, 100*second)
	return w
}

func (w *world) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.Int64N(int64(hi-lo)+1))
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.boot += d
	w.offset += time.Duration(w.rate * float64(d))
}

func (w *world) hub() lease.Reading {
	return lease.Reading{Wall: noon.Add(w.boot + w.stepH), Boot: w.boot}
}

// shows is what the member's clock shows.
func (w *world) shows() time.Time { return noon.Add(w.boot + w.offset) }

// truth is how far it is ahead of the hub's wall clock.
func (w *world) truth() time.Duration { return w.offset - w.stepH }

// ask sends a request that takes that long there and back.
func (w *world) ask(there, back time.Duration) skew.Sample {
	s := skew.Sample{Sent: w.boot}
	w.pass(there)
	s.Date = w.shows().Truncate(second)
	w.pass(back)
	s.Answered = w.boot
	return s
}

// answer gives the track the sample of an answer.
func (w *world) answer(there, back time.Duration) { w.track.Observe(w.ask(there, back), w.hub()) }

// answers gives it that many, at random times within a second each.
func (w *world) answers(n int) {
	for range n {
		w.pass(w.between(0, second))
		w.answer(5*ms, 5*ms)
	}
}

// probes gives it the answers of probes for that long. Each is sent early by a random time, as by package fleet.
func (w *world) probes(every, d time.Duration) {
	for end := w.boot + d; w.boot < end; {
		w.pass(every - w.between(0, min(every, second)/4))
		w.answer(5*ms, 5*ms)
	}
}

func (w *world) verdict(eps time.Duration) skew.Verdict { return w.track.Verdict(w.hub(), eps) }
