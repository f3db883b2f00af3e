package publish

import (
	"testing"

	"github.com/leasecast/leasecast/api/lease"
)

// Rule 5: each promise counts with the ε and the stop time that it was sent under. A changed policy shortens none.
func TestPromises(t *testing.T) {
	// A promise: when it is sent, on both clocks, and D, ε and the stop time.
	for name, test := range map[string]struct {
		sent       [][5]float64
		wall, boot float64 // when all that was sent has ended
	}{
		"one promise":                     {[][5]float64{{0, 0, 15, 2, 0}}, 17, 17},
		"a shorter D":                     {[][5]float64{{0, 0, 60, 1, 0}, {10, 10, 15, 1, 0}}, 61, 61},
		"a smaller ε, a wall clock ahead": {[][5]float64{{0, 0, 15, 5, 0}, {5, 3, 15, 1, 0}}, 21, 20},
		"locks are no longer fenced":      {[][5]float64{{0, 0, 15, 1, 17}, {16, 16, 15, 1, 0}}, 33, 33},
	} {
		t.Run(name, func(t *testing.T) {
			l, key := NewPromises(), keyOf("a")
			for i, s := range test.sent {
				l.add(key, 20+int64(i), lease.Reading{Wall: wall(s[0]), Boot: at(s[1]).Boot},
					inSeconds(s[2]), inSeconds(s[3]), inSeconds(s[4]))
			}
			p := l.Get(key)
			ends := latest(p.EarlierEnd, p.Until.Add(p.Skew+p.Stop))
			bootEnds := max(p.BootEarlierEnd, p.BootUntil+p.Skew+p.Stop)
			if ends != wall(test.wall) || bootEnds != at(test.boot).Boot || p.Epoch != 19+int64(len(test.sent)) {
				t.Errorf("all ends at %v and %v, in epoch %d", ends.Sub(zero), bootEnds-at(0).Boot, p.Epoch)
			}
			if other := l.Get(keyOf("b")); other != (Promise{}) {
				t.Errorf("of another namespace: %+v", other)
			}
			if l.Forget(key); l.Get(key) != (Promise{}) {
				t.Errorf("after it was forgotten: %+v", l.Get(key))
			}
		})
	}
}
