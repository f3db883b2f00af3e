package publish

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

func TestPromises(t *testing.T) {
	l, key, other := NewPromises(), keyOf("a"), keyOf("b")
	l.add(key, 20, at(0), 60*second, second, 0)
	l.add(key, 20, at(10), 15*second, second, 0)
	if p := l.Get(key); p.Until != wall(60) || p.BootUntil != 1060*second {
		t.Errorf("after a shorter promise: %+v", p)
	}
	l.add(key, 21, lease.Reading{Wall: wall(-100), Boot: 2000 * second}, 15*second, second, 0)
	if p := l.Get(key); p.Until != wall(60) || p.BootUntil != 2015*second || p.Epoch != 21 {
		t.Errorf("after a step back of the wall clock: %+v", p)
	}
	l.add(key, 21, at(50), 15*second, second, 0)
	if p := l.Get(key); p.Until != wall(65) {
		t.Errorf("after a longer promise: %+v", p)
	}
	if p := l.Get(other); p != (Promise{}) {
		t.Errorf("of another namespace: %+v", p)
	}
	l.Forget(key)
	if p := l.Get(key); p != (Promise{}) {
		t.Errorf("after it was forgotten: %+v", p)
	}
}

// Rule 5: each promise counts with the ε and the stop time that it was sent under. A changed policy shortens none.
func TestEachPromiseCountsWithItsOwnSkewAndStopTime(t *testing.T) {
	type sent struct {
		at      lease.Reading
		d, skew time.Duration
		stop    time.Duration
	}
	backwards := func(seconds, boot float64) lease.Reading {
		return lease.Reading{Wall: wall(seconds), Boot: at(boot).Boot}
	}
	long := sent{at(0), 15 * second, 5 * second, 0}
	fenced := sent{at(0), 15 * second, second, 17 * second}
	for name, test := range map[string]struct {
		sent       []sent
		wall, boot float64 // when all that was sent has ended
	}{
		"one promise": {[]sent{{at(0), 15 * second, 2 * second, 0}}, 17, 17},
		"a larger ε after a longer D": {[]sent{{at(0), 15 * second, second, 0},
			{at(0), 3 * second, 2 * second, 0}}, 17, 17},
		"a smaller ε before the larger one ends":   {[]sent{long, {at(3), 15 * second, second, 0}}, 20, 20},
		"a smaller ε that outlasts the larger one": {[]sent{long, {at(5), 15 * second, second, 0}}, 21, 21},
		"a smaller ε that is renewed again": {[]sent{long, {at(1), 15 * second, second, 0},
			{at(9), 15 * second, second, 0}}, 25, 25},
		"a smaller ε on a wall clock that is ahead": {[]sent{long, {backwards(5, 3), 15 * second, second, 0}}, 21, 20},
		"a smaller ε on a wall clock that is late":  {[]sent{long, {backwards(3, 5), 15 * second, second, 0}}, 20, 21},
		"locks are fenced from the second one on": {[]sent{{at(0), 15 * second, second, 0},
			{at(1), 15 * second, second, 17 * second}}, 34, 34},
		"locks are fenced no more": {[]sent{fenced, {at(16), 15 * second, second, 0}}, 33, 33},
		"locks were fenced long ago": {[]sent{fenced, {at(10), 15 * second, second, 0},
			{at(40), 15 * second, second, 0}}, 56, 56},
		"a smaller ε with a larger stop time": {[]sent{long, {at(1), 15 * second, second, 2 * second}}, 20, 20},
	} {
		t.Run(name, func(t *testing.T) {
			l, key := NewPromises(), keyOf("a")
			for _, s := range test.sent {
				l.add(key, 20, s.at, s.d, s.skew, s.stop)
			}
			p := l.Get(key)
			ends := latest(p.EarlierEnd, p.Until.Add(p.Skew+p.Stop))
			bootEnds := max(p.BootEarlierEnd, p.BootUntil+p.Skew+p.Stop)
			if ends != wall(test.wall) || bootEnds != at(test.boot).Boot {
				t.Errorf("all ends at %v and %v, want %v and %v", ends, bootEnds, wall(test.wall), at(test.boot).Boot)
			}
		})
	}
}

// The renewal of one Lease without its I/O.
func BenchmarkRenewal(b *testing.B) {
	r := newSyncerTest(b)
	r.play("leads")
	now := 0.0
	b.ReportAllocs()
	for b.Loop() {
		now += 5
		s := r.syncer.next(at(now), true, true)
		if s.action != update {
			b.Fatalf("at %v: %s", now, describe(s))
		}
		if r.syncer.handleAnswer(s, s.lease, nil) != 0 {
			b.Fatal("not settled")
		}
	}
}
