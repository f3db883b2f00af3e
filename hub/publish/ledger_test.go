package publish

import (
	"testing"

	"github.com/leasecast/leasecast/api/lease"
)

func TestLedger(t *testing.T) {
	l, key, other := NewLedger(), keyOf("a"), keyOf("b")
	l.enter(key, 20, at(0), 60*second)
	l.enter(key, 20, at(10), 15*second)
	if p := l.Promise(key); p.Until != wall(60) || p.BootUntil != 1060*second || p.Settled {
		t.Errorf("after a shorter promise: %+v", p)
	}
	l.enter(key, 21, lease.Reading{Wall: wall(-100), Boot: 2000 * second}, 15*second)
	if p := l.Promise(key); p.Until != wall(60) || p.BootUntil != 2015*second || p.Epoch != 21 {
		t.Errorf("after a step back of the wall clock: %+v", p)
	}
	l.enter(key, 21, at(50), 15*second)
	if p := l.Promise(key); p.Until != wall(65) || !p.Settled {
		t.Errorf("after a longer promise: %+v", p)
	}
	if p := l.Promise(other); p != (Promise{}) {
		t.Errorf("of another namespace: %+v", p)
	}
	l.Forget(key)
	if p := l.Promise(key); p != (Promise{}) {
		t.Errorf("after it was forgotten: %+v", p)
	}
}

// The renewal of one copy without its I/O.
func BenchmarkRenewal(b *testing.B) {
	r := newRig(b)
	r.leads()
	now := 0.0
	b.ReportAllocs()
	for b.Loop() {
		now += 5
		s := r.lane.next(at(now), true, true)
		if s.action != update {
			b.Fatalf("at %v: %s", now, describe(s))
		}
		if r.lane.settle(s, s.lease, nil) != 0 {
			b.Fatal("not settled")
		}
	}
}
