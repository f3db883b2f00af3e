package member

import (
	"testing"
	"time"
)

func TestATroubleIsKnownAsItWasToldLast(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(s *trouble)
		known   bool
	}{
		"nothing was told": {func(*trouble) {}, false},
		"it was told":      {func(s *trouble) { s.begins("it", 0) }, true},
		"another was told": {func(s *trouble) { s.begins("another", 0) }, false},
		"it was told before another": {func(s *trouble) {
			s.begins("it", 0)
			s.begins("another", 1)
		}, false},
		"it was told, and is over": {func(s *trouble) {
			s.begins("it", 0)
			s.over()
		}, false},
		"it has come back too often to be told": {func(s *trouble) {
			for range mostTellings {
				s.begins("it", 0)
				s.over()
			}
			s.begins("it", 0)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var s trouble
			tc.happens(&s)
			if known := s.known("it"); known != tc.known {
				t.Errorf("known = %v", known)
			}
		})
	}
}

// asked says when a trouble is due, of the times at which somebody asks.
func asked(s *trouble, what string, times ...time.Duration) (due []time.Duration) {
	for _, now := range times {
		if s.due(what, now) {
			due = append(due, now)
		}
	}
	return due
}

func expectTimes(t *testing.T, when string, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: told at %v, want %v", when, got, want)
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: told at %v, want %v", when, got, want)
		}
	}
}

func TestATroubleThatGoesOnIsToldWhenAMinuteIsOver(t *testing.T) {
	var s trouble
	const began = 10 * tellEvery
	again := began + tellEvery
	expectTimes(t, "it goes on", asked(&s, "it", began, began+1, again-1, again, again+1, again+tellEvery-1, again+tellEvery),
		began, again, again+tellEvery)
}

func TestATroubleThatGoesOnIsNewToNobodyForAMinute(t *testing.T) {
	var s trouble
	if !s.begins("it", 0) || s.begins("it", tellEvery) || s.begins("it", time.Hour) {
		t.Error("it begins more than once")
	}
}

func TestNothingIsNoTrouble(t *testing.T) {
	var s trouble
	if s.begins("", 0) || s.known("it") {
		t.Error("nothing is told")
	}
	if !s.begins("it", 0) || s.begins("", 0) || !s.begins("it", 0) {
		t.Error("what comes back after nothing is new")
	}
}

func TestATroubleThatChangesIsToldFiveTimesAMinuteFromTheFirst(t *testing.T) {
	var s trouble
	const began = 10 * tellEvery
	var told []time.Duration
	ask := func(now time.Duration) {
		if s.due(now.String(), now) { // always another
			told = append(told, now)
		}
	}
	for i := range time.Duration(10) {
		ask(began + i*time.Second)
	}
	ask(began + tellEvery - 1)
	expectTimes(t, "within a minute", told, began, began+time.Second, began+2*time.Second, began+3*time.Second, began+4*time.Second)
	told = nil
	for i := range time.Duration(10) {
		ask(began + tellEvery + i*time.Second)
	}
	expectTimes(t, "within the next", told, began+tellEvery, began+tellEvery+time.Second, began+tellEvery+2*time.Second,
		began+tellEvery+3*time.Second, began+tellEvery+4*time.Second)
}

func TestATroubleThatWasNotToldForItsNumberIsToldWhenItMayBe(t *testing.T) {
	var s trouble
	for range mostTellings {
		s.begins("it", 0)
		s.over()
	}
	expectTimes(t, "it goes on", asked(&s, "it", 1, tellEvery-1, tellEvery, tellEvery+1), tellEvery)
}
