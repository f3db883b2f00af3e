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

// The monotonic clock stands still in a suspend. The wall clock shows that, however short the suspend was, and even if
// it was set back in the meantime.
func TestBootIsReadAgainWhenTheClocksMoveApart(t *testing.T) {
	for name, test := range map[string]struct{ slept, stepped time.Duration }{
		"by a suspend of a minute":                        {time.Minute, 0},
		"by a suspend of half a second":                   {500 * time.Millisecond, 0},
		"by a suspend of a millisecond":                   {time.Millisecond, 0},
		"by a suspend, and a step ahead after it":         {time.Minute, time.Hour},
		"by a suspend, and a step back by more than it":   {time.Minute, -time.Hour},
		"by a short suspend, and a step back by a second": {500 * time.Millisecond, -time.Second},
		"by a step alone":                                 {0, -time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var s System
			for s.cal.Load() == nil { // a pause between the readings keeps none
				s.Now()
			}
			cal := *s.cal.Load()
			cal.wall = cal.wall.Add(-test.slept - test.stepped)
			cal.boot -= test.slept
			s.cal.Store(&cal)
			before := boottime()
			got := s.Now().Boot
			if after := boottime(); got < before || got > after {
				t.Fatalf("Boot = %v, want between %v and %v", got, before, after)
			}
		})
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
