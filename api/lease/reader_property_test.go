package lease_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// So many histories of so many observations each.
const seeds, steps = 500, 40

// A history is what a reader has seen, in its order. What it permits by the rule is told here from the whole history,
// without the state that a Reader keeps.
type history []seen

// believed drops what the rule refuses, and numbers what is left.
func (h history) believed() (kept history) {
	highest := int64(0)
	for _, s := range h {
		if !s.gone {
			if s.copy.Epoch < highest || !lease.PlausibleEpoch(s.at.Wall, s.copy.Epoch) || s.copy.RenewTime.Sub(s.at.Wall) > skew {
				continue
			}
			highest = s.copy.Epoch
		}
		kept = append(kept, s)
	}
	return kept
}

// permits says, of a history that is believed, whether the holder may act at now: the last that was believed leads
// here, and has time left, counted on both clocks from the first time that the Lease was seen which promised most of all
// in that term. Where the last one promises less, it counts from when it was seen too.
func (h history) permits(now lease.Reading) bool {
	if len(h) == 0 {
		return false
	}
	last := h[len(h)-1]
	if last.gone || !last.copy.LeadsHere() {
		return false
	}
	var best *seen
	for _, s := range h {
		if s.gone || !s.copy.LeadsHere() || s.copy.Epoch != last.copy.Epoch {
			continue
		}
		if best == nil || s.copy.Deadline().After(best.copy.Deadline()) {
			best = &s
		}
	}
	deadline := last.copy.Deadline()
	end := best.at.Boot + deadline.Sub(best.at.Wall)
	if deadline.Before(best.copy.Deadline()) {
		end = min(end, last.at.Boot+deadline.Sub(last.at.Wall))
	}
	return now.Wall.Before(deadline) && now.Boot < end
}

// world draws histories: Leases of rising and falling epochs, delivered in any order and again, pauses, suspends and steps
// of the wall clock.
type world struct {
	*rand.Rand
	now  lease.Reading
	sent []lease.Content
}

func newWorld(seed uint64) *world { return &world{Rand: rand.New(rand.NewPCG(seed, 0)), now: at(0)} }

func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.Int64N(int64(high-low)+1))
}

// pass lets time pass, and sometimes steps the wall clock.
func (w *world) pass() {
	d := w.between(0, 4*time.Second)
	w.now.Boot += d
	w.now.Wall = w.now.Wall.Add(d)
	if w.IntN(5) == 0 {
		w.now.Wall = w.now.Wall.Add(w.between(-10*time.Second, 10*time.Second))
	}
}

// next draws what the reader sees next.
func (w *world) next() seen {
	switch n := w.IntN(10); {
	case n == 0:
		return missing()
	case n < 4 && len(w.sent) > 0:
		return observe(w.now, w.sent[w.IntN(len(w.sent))])
	}
	holder := []string{here, here, there, ""}[w.IntN(4)]
	c := leaseAt(w.now.Wall.Sub(noon)+w.between(-20*time.Second, 2*time.Second), holder, int64(3+len(w.sent)/4+w.IntN(2)))
	c.Duration = time.Duration(1+w.IntN(15)) * time.Second
	if w.IntN(20) == 0 {
		c.Epoch = lease.EpochFloor(w.now.Wall) + 1<<21 // poisoned
	}
	w.sent = append(w.sent, c)
	return observe(w.now, c)
}

// probes are readings at which a permit is asked: now, near each end that the history knows, and at random.
func (w *world) probes(h history) (all []lease.Reading) {
	all = append(all, w.now)
	for range 4 {
		d := w.between(0, 20*time.Second)
		all = append(all, lease.Reading{
			Boot: w.now.Boot + d, Wall: w.now.Wall.Add(d + w.between(-5*time.Second, 5*time.Second)),
		})
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

// eachStep runs many histories and calls check after each observation.
func eachStep(t *testing.T, check func(w *world, h history, p lease.Permit) error) {
	t.Helper()
	for seed := range uint64(seeds) {
		w, r := newWorld(seed), &lease.Reader{Skew: skew}
		var h history
		for step := range steps {
			w.pass()
			s := w.next()
			h = append(h, s)
			if err := check(w, h, feed(r, s)); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
	}
}

func TestReaderPermitsExactlyWhatItsHistoryPermits(t *testing.T) {
	permitted, refused := 0, 0
	eachStep(t, func(w *world, h history, p lease.Permit) error {
		kept := h.believed()
		for _, now := range w.probes(h) {
			want := kept.permits(now)
			if want {
				permitted++
			} else {
				refused++
			}
			if p.Holds(now) != want {
				return fmt.Errorf("Holds(%v) = %v, want %v", now, !want, want)
			}
			if (p.Remaining(now) > 0) != want {
				return fmt.Errorf("Remaining(%v) = %v, but Holds is %v", now, p.Remaining(now), want)
			}
		}
		return nil
	})
	if permitted < 10_000 || refused < 10_000 {
		t.Errorf("too few cases to tell: %d permitted, %d refused", permitted, refused)
	}
}

func TestPermitNeverOutlivesTheLatestDeadlineThatNamedThisCluster(t *testing.T) {
	eachStep(t, func(w *world, h history, p lease.Permit) error {
		var latest time.Time
		for _, s := range h {
			if !s.gone && s.copy.LeadsHere() && s.copy.Deadline().After(latest) {
				latest = s.copy.Deadline()
			}
		}
		for _, now := range w.probes(h) {
			if p.Holds(now) && !now.Wall.Before(latest) {
				return fmt.Errorf("permitted at %v, the latest deadline was %v", now.Wall, latest)
			}
		}
		return nil
	})
}

func TestPermittedEpochsNeverFall(t *testing.T) {
	for seed := range uint64(seeds) {
		w, r := newWorld(seed), &lease.Reader{Skew: skew}
		highest := int64(0)
		for range steps {
			w.pass()
			p := feed(r, w.next())
			if !p.Holds(w.now) {
				continue
			}
			if p.Epoch < highest {
				t.Fatalf("seed %d: epoch %d permitted after %d", seed, p.Epoch, highest)
			}
			highest = p.Epoch
		}
	}
}

func TestDeliveringAgainNeverExtends(t *testing.T) {
	for seed := range uint64(seeds) {
		w, r := newWorld(seed), &lease.Reader{Skew: skew}
		permits := map[int64][]lease.Permit{} // so far, of each epoch
		var h history
		for range steps {
			w.pass()
			s := w.next()
			h = append(h, s)
			if p := feed(r, s); p != (lease.Permit{}) {
				permits[p.Epoch] = append(permits[p.Epoch], p)
			}
			kept := h.believed()
			if len(kept) == 0 {
				continue
			}
			again := kept[w.IntN(len(kept))]
			if again.gone {
				continue
			}
			w.pass()
			again.at = w.now
			h = append(h, again)
			p := feed(r, again)
			for _, now := range w.probes(h) {
				held := func(p lease.Permit) bool { return p.Holds(now) }
				if p.Holds(now) && !slices.ContainsFunc(permits[p.Epoch], held) {
					t.Fatalf("seed %d: epoch %d is permitted at %v only since its Lease was delivered again", seed, p.Epoch, now)
				}
			}
		}
	}
}
