package clock

import (
	"testing"
	"time"
)

func TestBootFollowsTheKernelsClock(t *testing.T) {
	var s System
	s.Now() // calibrates
	for range 1000 {
		before := boottime()
		got := s.Now().Boot
		after := boottime()
		if got < before-tight || got > after+tight {
			t.Fatalf("Boot = %v, want between %v and %v", got, before, after)
		}
	}
}

func TestBootIsAskedAgainWhenTheClocksMoveApart(t *testing.T) {
	var s System
	for s.cal.Load() == nil { // a pause between the readings keeps none
		s.Now()
	}
	cal := *s.cal.Load()
	cal.wall = cal.wall.Add(-time.Minute) // as after a suspend of a minute,
	cal.boot -= time.Minute               // which the monotonic clock slept through
	s.cal.Store(&cal)
	before := boottime()
	if got := s.Now().Boot; got < before {
		t.Fatalf("Boot = %v after a suspend, want at least %v", got, before)
	}
}

func BenchmarkNow(b *testing.B) {
	var s System
	for b.Loop() {
		s.Now()
	}
}

// A process that is paused between the two readings must believe that less time remains, never more.
func TestAPauseBetweenTheReadingsDelaysTheWallClockOnly(t *testing.T) {
	base, passed := time.Now(), time.Duration(0)
	pause := func() time.Duration {
		passed += time.Second
		return passed
	}
	var s System
	got := s.ask(pause, func() time.Time { return base.Add(pause()) })
	if wall := got.Wall.Sub(base.Round(0)); got.Boot >= wall {
		t.Errorf("Boot was read after %v, Wall after %v", got.Boot, wall)
	}
	if s.cal.Load() != nil {
		t.Error("the pair was kept")
	}
}
