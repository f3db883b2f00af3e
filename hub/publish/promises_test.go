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

// Rule 5: a changed policy never shortens what was promised, by D, by ε or by the stop time.
func TestPromisesRememberAnEpsilonUntilAllThatWasSentUnderItIsOutlasted(t *testing.T) {
	type sent struct {
		at      lease.Reading
		d, skew time.Duration
		stop    time.Duration
	}
	backwards := func(seconds, boot float64) lease.Reading {
		return lease.Reading{Wall: wall(seconds), Boot: at(boot).Boot}
	}
	for name, test := range map[string]struct {
		sent []sent
		want time.Duration // ε and the stop time together
	}{
		"the only one":                     {[]sent{{at(0), 15 * second, 2 * second, 0}}, 2 * second},
		"a larger one counts now":          {[]sent{{at(0), 15 * second, second, 0}, {at(0), 3 * second, 2 * second, 0}}, 2 * second},
		"a smaller one not yet":            {[]sent{{at(0), 15 * second, 5 * second, 0}, {at(3.999), 15 * second, second, 0}}, 5 * second},
		"but once it outlasts":             {[]sent{{at(0), 15 * second, 5 * second, 0}, {at(4), 15 * second, second, 0}}, second},
		"not with a shorter D":             {[]sent{{at(0), 15 * second, 5 * second, 0}, {at(4), 14 * second, second, 0}}, 5 * second},
		"nor on the wall clock only":       {[]sent{{at(0), 15 * second, 5 * second, 0}, {backwards(4, 3.9), 15 * second, second, 0}}, 5 * second},
		"locks are fenced from now on":     {[]sent{{at(0), 15 * second, second, 0}, {at(1), 15 * second, second, 17 * second}}, 18 * second},
		"locks are fenced no more":         {[]sent{{at(0), 15 * second, second, 17 * second}, {at(16.999), 15 * second, second, 0}}, 18 * second},
		"locks were fenced, some time ago": {[]sent{{at(0), 15 * second, second, 17 * second}, {at(17), 15 * second, second, 0}}, second},
		"nor on the boot clock only":       {[]sent{{at(0), 15 * second, 5 * second, 0}, {backwards(3.9, 4), 15 * second, second, 0}}, 5 * second},
	} {
		t.Run(name, func(t *testing.T) {
			l, key := NewPromises(), keyOf("a")
			for _, s := range test.sent {
				l.add(key, 20, s.at, s.d, s.skew, s.stop)
			}
			if p := l.Get(key); p.Skew+p.Stop != test.want {
				t.Errorf("ε %v and a stop time of %v, want %v together", p.Skew, p.Stop, test.want)
			}
		})
	}
}

// The renewal of one Lease without its I/O.
func BenchmarkRenewal(b *testing.B) {
	r := newRig(b)
	r.leads()
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
