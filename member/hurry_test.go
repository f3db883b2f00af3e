package member

import (
	"cmp"
	"testing"
	"testing/synctest"
	"time"
)

// hurried is a watch of all namespaces by which a term of 15 s is led, of which so much is left.
func hurried(t *testing.T, left, staleAfter time.Duration, h hurry) (*watched, *handClock) {
	t.Helper()
	clock := newHandClock()
	m := &Member{terms: NewTerms(clock, time.Second), clock: clock, stale: staleAfter}
	m.terms.Observe(clock.leaseOf(t, "shop", "us", 7, 15*time.Second))
	clock.Advance(15*time.Second - left)
	return &watched{member: m, alarm: m.terms.alarm(allNamespaces), hurry: h}, clock
}

func TestAnAnswerMayTakeHalfOfWhatIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		left     time.Duration
		failures int
		calm     bool
		most     time.Duration // without a hurry; 0: 10 s
		want     time.Duration
	}{
		"nothing is urgent":                  {left: 15 * time.Second, calm: true, want: 10 * time.Second},
		"nor is it while a turn is no hurry": {left: 4 * time.Second, calm: true, failures: 1, want: 10 * time.Second},
		"half of what is left":               {left: 4 * time.Second, want: 2 * time.Second},
		"a quarter of a second at least":     {left: 400 * time.Millisecond, want: 250 * time.Millisecond},
		"also when nothing is left":          {left: 0, want: 250 * time.Millisecond},
		"twice as long after a failure":      {left: 0, failures: 1, want: 500 * time.Millisecond},
		"and again":                          {left: 0, failures: 2, want: time.Second},
		"but no longer than without a hurry": {left: 0, failures: 9, want: 10 * time.Second},
		"it may be 256 s":                    {left: 0, failures: 10, most: time.Hour, want: 256 * time.Second},
		"that is twice 128 s":                {left: 0, failures: 9, most: time.Hour, want: 128 * time.Second},
		"and the longest ever":               {left: 0, failures: 1000, most: time.Hour, want: 256 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := hurried(t, tc.left, 4*cmp.Or(tc.most, 10*time.Second), hurry{on: !tc.calm, failures: tc.failures})
				if got := w.requestTimeout(); got != tc.want {
					t.Errorf("%v, want %v", got, tc.want)
				}
			})
		})
	}
}

func TestHurriedTurnsComeEverLessOftenWhileTheHubIsSilent(t *testing.T) {
	const quarter = 10 * time.Second
	for name, tc := range map[string]struct {
		left      time.Duration
		calm      bool
		gap, want time.Duration
	}{
		"the first one: half of what is left of a third": {left: 4 * time.Second, want: 2500 * time.Millisecond},
		"the next one: twice as much":                    {left: 4 * time.Second, gap: 2500 * time.Millisecond, want: 5 * time.Second},
		"it stays at the longest":                        {left: 4 * time.Second, gap: 9 * time.Second, want: quarter},
		"no less than the first one":                     {left: 4 * time.Second, gap: time.Second, want: 2500 * time.Millisecond},
		"news have come":                                 {left: 15 * time.Second, gap: 5 * time.Second, want: 0},
		"the turn was no hurry":                          {left: 4 * time.Second, calm: true, gap: 5 * time.Second, want: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, clock := hurried(t, tc.left, 4*quarter, hurry{on: !tc.calm, failures: 3, gap: tc.gap, until: 1})
				until := clock.Now().Boot + tc.want
				if tc.calm {
					until = 1
				} else if tc.want == 0 {
					until = 0
				}
				if w.calm(); w.hurry.gap != tc.want || w.hurry.until != until || w.hurry.on || w.hurry.failures != 0 {
					t.Errorf("%+v, want %v between two, and none before %v", w.hurry, tc.want, until)
				}
			})
		})
	}
}

func TestAHurriedTurnWaitsForItsTimeAndForAPartOfWhatIsLeft(t *testing.T) {
	const staleAfter, draws = 40 * time.Second, 1000
	for name, tc := range map[string]struct {
		left, until time.Duration // until: from now on
		gap         time.Duration // afterwards, of a second before
		least, most time.Duration
	}{
		"nothing is left":               {left: 0, gap: time.Second},
		"up to a quarter of it":         {left: 4 * time.Second, gap: time.Second, most: time.Second},
		"after what it waits for":       {left: 4 * time.Second, until: 5 * time.Second, gap: time.Second, least: 5 * time.Second, most: 6 * time.Second},
		"which has passed just now":     {left: 0, until: -1, gap: time.Second},
		"the last one was a while ago":  {left: 0, until: -staleAfter, gap: time.Second},
		"the last one was too long ago": {left: 0, until: -staleAfter - 1, gap: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, clock := hurried(t, tc.left, staleAfter, hurry{gap: time.Second})
				w.hurry.until = clock.Now().Boot + tc.until
				least, most := w.delay(), w.delay()
				for range draws {
					d := w.delay()
					least, most = min(least, d), max(most, d)
				}
				spread := (tc.most - tc.least) / 10
				if tc.most == 0 {
					tc.most = tc.least
				}
				if least < tc.least || most > tc.most || least > tc.least+spread || most < tc.most-spread {
					t.Errorf("between %v and %v, want all from %v to %v", least, most, tc.least, tc.most)
				}
				if w.hurry.gap != tc.gap {
					t.Errorf("%v between two, want %v", w.hurry.gap, tc.gap)
				}
			})
		})
	}
}

func TestATurnIsWantedWhileNewsAreMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		left    time.Duration
		unheard bool
		want    bool
	}{
		"a term has been renewed":                {left: 15 * time.Second},
		"one has not":                            {left: time.Second, want: true},
		"it is over, and nothing was heard":      {left: 0, unheard: true, want: true},
		"it is over, and the API server says so": {left: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, clock := hurried(t, tc.left, time.Minute, hurry{})
				if tc.unheard {
					w.alarm.ring(clock.Now().Boot, clock.Now().Boot)
				}
				if got := w.wanted(); got != tc.want {
					t.Errorf("wanted = %v, want %v", got, tc.want)
				}
			})
		})
	}
}
