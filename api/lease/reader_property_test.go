package lease_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// history is what a reader has seen, in order. It applies the rule to the whole of it, without the state that a Reader
// keeps.
type history []seen

// believed drops what the rule refuses.
func (h history) believed() (kept history) {
	highest := int64(0)
	for _, s := range h {
		if !s.gone {
			allowed := skew
			if s.copy.Skew > 0 {
				allowed = min(allowed, s.copy.Skew)
			}
			if s.copy.Epoch < highest || !lease.PlausibleEpoch(s.at.Wall, s.copy.Epoch) ||
				s.copy.RenewTime.Sub(s.at.Wall) > allowed {
				continue
			}
			highest = s.copy.Epoch
		}
		kept = append(kept, s)
	}
	return kept
}

// remaining returns, of a history that is believed, how long the holder may act from now on: the last Lease leads
// here, and has time left on both clocks. Time counts from the first observation of the latest deadline in that term,
// and from the last one too, where its deadline is earlier.
func (h history) remaining(now lease.Reading) time.Duration {
	if len(h) == 0 {
		return 0
	}
	last := h[len(h)-1]
	if last.gone || !last.copy.LeadsHere() {
		return 0
	}
	var best *seen
	for _, s := range h {
		if !s.gone && s.copy.LeadsHere() && s.copy.Epoch == last.copy.Epoch &&
			(best == nil || s.copy.Deadline().After(best.copy.Deadline())) {
			best = &s
		}
	}
	deadline := last.copy.Deadline()
	end := best.at.Boot + deadline.Sub(best.at.Wall)
	if deadline.Before(best.copy.Deadline()) {
		end = min(end, last.at.Boot+deadline.Sub(last.at.Wall))
	}
	return max(0, min(deadline.Sub(now.Wall), end-now.Boot))
}

// world draws histories: Leases of rising and falling epochs, delivered in any order and again, pauses, and steps of
// the wall clock.
type world struct {
	*rand.Rand
	now  lease.Reading
	sent []lease.Content
}

func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.Int64N(int64(high-low)+1))
}

// pass lets time pass, and sometimes steps the wall clock.
func (w *world) pass() {
	d := w.between(0, 4*s)
	w.now.Boot += d
	w.now.Wall = w.now.Wall.Add(d)
	if w.IntN(5) == 0 {
		w.now.Wall = w.now.Wall.Add(w.between(-10*s, 10*s))
	}
}

// next draws what the reader sees next.
func (w *world) next() seen {
	switch n := w.IntN(10); {
	case n == 0:
		return seen{gone: true}
	case n < 4 && len(w.sent) > 0:
		return seen{at: w.now, copy: w.sent[w.IntN(len(w.sent))]}
	}
	holder := []string{here, here, there, ""}[w.IntN(4)]
	ahead, allowed := w.between(-20*s, 2*s), time.Duration(w.IntN(3))*skew*2/3
	if w.IntN(4) == 0 { // at a bound
		ahead = []time.Duration{skew, allowed}[w.IntN(2)] + time.Duration(w.IntN(2))
	}
	c := leaseAt(w.now.Wall.Sub(noon)+ahead, holder, int64(3+len(w.sent)/4+w.IntN(2)))
	c.Duration = time.Duration(1+w.IntN(15)) * s
	c.Skew = allowed
	if w.IntN(20) == 0 {
		c.Epoch = lease.EpochFloor(w.now.Wall) + 1<<21 // absurd
	}
	w.sent = append(w.sent, c)
	return seen{at: w.now, copy: c}
}

// probes returns readings at which a permit is checked: now, near each end in the history, and at random.
func (w *world) probes(h history) (all []lease.Reading) {
	all = append(all, w.now)
	for range 4 {
		d := w.between(0, 20*s)
		all = append(all, lease.Reading{Boot: w.now.Boot + d, Wall: w.now.Wall.Add(d + w.between(-5*s, 5*s))})
	}
	for _, s := range h[max(0, len(h)-4):] {
		if s.gone {
			continue
		}
		boot := s.at.Boot + s.copy.Deadline().Sub(s.at.Wall)
		for _, off := range []time.Duration{-1, 0} {
			all = append(all,
				lease.Reading{Boot: boot + off, Wall: noon.Add(-time.Hour)},
				lease.Reading{Boot: 0, Wall: s.copy.Deadline().Add(off)})
		}
	}
	return all
}

func TestReaderPermitsExactlyWhatItsHistoryPermits(t *testing.T) {
	cases := map[bool]int{}
	for seed := range uint64(500) {
		w, r := &world{Rand: rand.New(rand.NewPCG(seed, 0)), now: at(0)}, &lease.Reader{Skew: skew}
		var h history
		for range 40 {
			w.pass()
			observed := w.next()
			h = append(h, observed)
			p, kept := feed(r, observed), h.believed()
			for _, now := range w.probes(h) {
				want := kept.remaining(now)
				holds := want > 0
				cases[holds]++
				if p.Holds(now) != holds || p.Remaining(now) != want {
					t.Fatalf("seed %d: Holds(%v) = %v for %v, want %v", seed, now, p.Holds(now), p.Remaining(now), want)
				}
				if holds && p.Epoch != kept[len(kept)-1].copy.Epoch {
					t.Fatalf("seed %d: permitted in epoch %d, want %d", seed, p.Epoch, kept[len(kept)-1].copy.Epoch)
				}
			}
		}
	}
	if cases[true] < 10_000 || cases[false] < 10_000 {
		t.Errorf("too few cases: %v", cases)
	}
}
