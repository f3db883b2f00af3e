package lease_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// The clocks of two readers and of a hub are wrong by up to ε/2, each in its own way and changing all the time. The
// hub renews, or closes the term, waits until the latest renewTime + D + ε by its own clock and grants to the other
// cluster. What it sends arrives late, again and out of order, or never. Only the test reads the true time.
func TestTwoClustersNeverLeadTogetherWhileClocksAreGood(t *testing.T) {
	const d = 3 * time.Second
	led := 0
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		within := func(limit time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(limit) + 1)) }
		wrong := func() time.Duration { // often as wrong as can be
			return []time.Duration{-skew / 2, skew / 2, within(skew) - skew/2}[rnd.IntN(3)]
		}
		delay := func() time.Duration { return []time.Duration{0, within(4 * time.Second)}[rnd.IntN(2)] }
		type letter struct {
			at   time.Duration
			copy lease.Content
		}
		clusters := []string{here, there}
		readers := []*lease.Reader{{Skew: skew}, {Skew: skew}}
		permits := make([]lease.Permit, 2)
		offset := []time.Duration{time.Hour, 5 * time.Hour} // of the boot clocks
		mail := make([][]letter, 2)
		leader, epoch := 0, int64(1)
		var latest time.Time

		pause := func() time.Duration { return within([]time.Duration{0, 300 * time.Millisecond}[rnd.IntN(2)]) + 1 }
		for now := time.Duration(0); now < time.Minute; now += pause() {
			// The hub.
			clock := noon.Add(now + wrong())
			switch {
			case rnd.IntN(8) != 0:
				c := leaseAt(clock.Sub(noon), clusters[leader], epoch)
				c.Duration, c.Cluster = d, clusters[leader]
				if c.RenewTime.After(latest) {
					latest = c.RenewTime
				}
				for range rnd.IntN(3) { // never, once or twice
					mail[leader] = append(mail[leader], letter{now + delay(), c})
				}
			default:
				// It closes the term, and waits until the bound has passed.
				for clock = noon.Add(now + wrong()); clock.Before(latest.Add(d + skew)); clock = noon.Add(now + wrong()) {
					now += 10 * time.Millisecond
					led += mustNotOverlap(t, seed, now, permits, offset, wrong)
				}
				leader, epoch = 1-leader, epoch+1
			}
			// The readers, each with one letter that is due.
			for i, r := range readers {
				due := slices.IndexFunc(mail[i], func(l letter) bool { return l.at <= now })
				if due < 0 {
					continue
				}
				permits[i] = r.Observe(mail[i][due].copy, lease.Reading{Wall: noon.Add(now + wrong()), Boot: offset[i] + now})
				if rnd.IntN(3) > 0 { // else it comes again
					mail[i] = slices.Delete(mail[i], due, due+1)
				}
			}
			led += mustNotOverlap(t, seed, now, permits, offset, wrong)
		}
	}
	if led < 1000 {
		t.Errorf("a cluster led at %d instants: too few", led)
	}
}

// mustNotOverlap returns how many lead at the true time now.
func mustNotOverlap(
	t *testing.T, seed uint64, now time.Duration, permits []lease.Permit, offset []time.Duration,
	wrong func() time.Duration,
) (led int) {
	t.Helper()
	for i, p := range permits {
		if p.Holds(lease.Reading{Wall: noon.Add(now + wrong()), Boot: offset[i] + now}) {
			led++
		}
	}
	if led > 1 {
		t.Fatalf("seed %d: two clusters lead %v after noon: %+v", seed, now, permits)
	}
	return led
}
