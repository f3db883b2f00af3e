package member

import (
	"errors"
	"testing"
	"time"
)

func TestWhoDoesNotLeadHasStoppedOrNot(t *testing.T) {
	for _, stopped := range []bool{true, false} {
		err := error(&NotLeaderError{stopped: stopped})
		if !errors.Is(err, ErrNotLeader) || errors.Is(err, ErrStopped) != stopped || errors.Is(err, ErrNotWatched) {
			t.Errorf("stopped = %v: it is ErrNotLeader: %v, ErrStopped: %v, ErrNotWatched: %v", stopped,
				errors.Is(err, ErrNotLeader), errors.Is(err, ErrStopped), errors.Is(err, ErrNotWatched))
		}
	}
}

func TestATermWaitsForAWholeDurationIfLessThanHalfOfItIsLeft(t *testing.T) {
	const d = 15 * time.Second
	for name, tc := range map[string]struct {
		lapsed      int64
		since, left time.Duration
		want        bool
	}{
		"less is left":                      {7, 0, d/2 - 1, true},
		"half is left":                      {7, 0, d / 2, false},
		"more is left":                      {7, 0, d, false},
		"the duration has nearly passed":    {7, d - 1, d/2 - 1, true},
		"the duration has passed":           {7, d, d/2 - 1, false},
		"a term of another epoch has ended": {6, 0, d/2 - 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newHandClock()
			terms := NewTerms(clock, time.Second)
			terms.Observe(clock.leaseOf(t, "shop", "us", 7, d))
			n := terms.lookup("shop")
			clock.Advance(d - tc.left)
			now := clock.Now()
			n.lapsed, n.began = tc.lapsed, now.Boot-tc.since
			if got := n.waits(n.reader.Current(), now); got != tc.want {
				t.Errorf("waits = %v", got)
			}
		})
	}
}

func TestALeaseIsLateIfMoreThanHalfOfItsTimeHasPassed(t *testing.T) {
	for age, want := range map[time.Duration]bool{5 * time.Second: false, 5*time.Second + 1: true, 0: false} {
		if got := (arrival{age: age, lasts: 10 * time.Second}).late(); got != want {
			t.Errorf("%v of 10s: late = %v", age, got)
		}
	}
}

func TestWhatSomebodyHasSetIsShownInFull(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Nanosecond: "0.000000001 s", 1500 * time.Millisecond: "1.5 s", time.Second / 3: "0.333333333 s", time.Hour: "3600 s",
	} {
		if got := exactly(d); got != want {
			t.Errorf("%v is shown as %s, want %s", d, got, want)
		}
	}
}
