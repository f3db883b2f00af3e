package tenure_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/hub/tenure"
)

// Rule 6: until when an earlier tenure can have written, and for how long it may be at work, by clocks that differ by
// 1 s at most. This tenure begins at 5 s. An edit of the election's Lease delays it by no more than an election.
func TestInherited(t *testing.T) {
	const most = 6.6 // h, with 10 % for clocks of different speeds
	for name, test := range map[string]struct {
		before    string
		inherited float64
		overlap   float64 // from the start on
		ends      float64 // from the start on, whatever the Lease said; 0: the most
	}{
		"renewed 6 s ago":                          {"a -1", 5, 1, 0},
		"13 s ago, for 15 s":                       {"a -8 for=15", 7, 3, 16},
		"13 s ago, for no time":                    {"a -8 for=0", 11, most, 0},
		"13 s ago, for a year":                     {"a -8 for=31536000", 11, most, 0},
		"released in order":                        {"released -3", -3, 0, 0},
		"released in order in the future":          {"released 5.001", 11, most, 0},
		"released in order, and edited to be held": {"released -3 held-by=a", 3, 0, 0},
		"released, never renewed":                  {"release -3", 11, most, 0},
		"no Lease":                                 {"none", 11, most, 0},
		"no renewTime":                             {"a -8 no-renewTime", 11, most, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t, &store{}, "b")
			r.play("found " + test.before)
			r.wins(2, 3, 5)
			started, inherited := r.Started()
			if started != at(5) || !inherited.Equal(wall(test.inherited)) {
				t.Errorf("started at %+v, inherited %v, want %v", started, inherited.Sub(zero), test.inherited)
			}
			if test.ends == 0 {
				test.ends = most
			}
			seconds := func(d time.Duration) float64 { return d.Seconds() }
			for after, want := range map[float64]float64{0: test.overlap, test.overlap: 0, 3600: 0} {
				if got := r.Overlap(at(5+after), second); seconds(got) != want {
					t.Errorf("%v s after the start they overlap for %v, want %v", after, got, want)
				}
			}
			// A wall clock that was stepped ends no wait early, and lengthens none beyond an election.
			for step, want := range map[float64]float64{3600: test.overlap, -3600: test.ends} {
				if got := r.Overlap(lease.Reading{Wall: wall(5 + step), Boot: boot(5)}, second); seconds(got) != want {
					t.Errorf("with a wall clock stepped by %v s they overlap for %v, want %v", step, got, want)
				}
			}
			for after, want := range map[float64]float64{0: test.ends, test.ends - 1: 1, test.ends: 0, 3600: 0} {
				if got := r.EarlierEndIn(at(5+after), second); got.Round(time.Microsecond).Seconds() != want {
					t.Errorf("%v s after the start earlier ones end in %v, want %v", after, got, want)
				}
			}
			if test.inherited <= 13 { // a renewal may not be older than what was inherited
				r.wins(7, 7, 8)
			}
			r.play("read")
			if s, i := r.Started(); s != started || !i.Equal(inherited) {
				t.Errorf("a renewal changed them to %+v, %v", s, i)
			}
		})
	}
}

func TestInheritedByWhatWasReplaced(t *testing.T) {
	playEach(t, map[string]string{
		"the election is not won: nothing":        "found b -8; read; observe 1; not-started",
		"the Lease was deleted after it was read": "found b -8; read; found none; wins 2 3 5; inherited 11",
		"the election was won before, unanswered": "found b -8; read; unanswered; fails claims a 0; answered; wins 2 3 5; " +
			"inherited-least -2",
		// A candidate was paused between its renewTime and its claim, for longer than h. Its predecessor was released
		// after that renewTime.
		"a claim of long ago hides no predecessor": "found released 8; clock 9; read; claims a -2 never-renewed later; " +
			"never 9; successor 10; inherited-least 8",
	})
}

// Rule 6: a renewTime that is later than what was inherited shows that the election's Lease was wrong.
func TestObserveEarlier(t *testing.T) {
	playEach(t, map[string]string{
		"within what was inherited":             "found b -8; wins 2 3 5; observe -2; inherited -2",
		"after a tenure of an election of 60 s": "found b -1 for=60; wins 2 3 5; observe 60; inherited 65",
	})
	if got := tenure.New(&clocktest.Hand{}, h).ElectionDuration(); got != h {
		t.Errorf("h is %v", got)
	}
}
