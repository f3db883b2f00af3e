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
	s.Now()
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
