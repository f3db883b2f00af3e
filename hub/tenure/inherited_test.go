package tenure_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/hub/tenure"
)

// Rule 6: until when an earlier tenure can have written, and for how long it may be at work, by clocks that differ by
// 1 s at most. This tenure begins at 5 s. An edit of the election's Lease delays it by no more than an election.
func TestInherited(t *testing.T) {
	const most = 6.6 // h, with 10 % for clocks of different speeds
	late := claim("a", -8)
	for name, test := range map[string]struct {
		before    *electionRecord
		inherited float64
		overlap   float64 // from the start on
		ends      float64 // from the start on, whatever the Lease said; 0: the most
	}{
		"renewed 13 s ago":                         {&late, -2, 0, 0},
		"renewed 7 s ago":                          {stored(claim("a", -2)), 4, 0, 0},
		"renewed 6 s ago":                          {stored(claim("a", -1)), 5, 1, 0},
		"renewed 5 s ago":                          {stored(claim("a", 0)), 6, 2, 0},
		"renewed now":                              {stored(claim("a", 5)), 11, most, 0},
		"renewed in the future":                    {stored(claim("a", 5.001)), 11, most, 0},
		"13 s ago, for 15 s":                       {stored(changed(late, lasting(15))), 7, 3, 16},
		"a second ago, for 20 s":                   {stored(changed(claim("a", 4), lasting(20))), 24, 20, 21},
		"13 s ago, for 1 s":                        {stored(changed(late, lasting(1))), -2, 0, 0},
		"2 s ago, for 1 s":                         {stored(changed(claim("a", 3), lasting(1))), 9, 5, 0},
		"13 s ago, for no time":                    {stored(changed(late, lasting(0))), 11, most, 0},
		"13 s ago, for a year":                     {stored(changed(late, lasting(365*86400))), 11, most, 0},
		"an hour ago":                              {stored(claim("a", -3595)), -3589, 0, 0},
		"released in order":                        {stored(released(-3)), -3, 0, 0},
		"released in order now":                    {stored(released(5)), 5, 0, 0},
		"released in order in the future":          {stored(released(5.001)), 11, most, 0},
		"its holder was edited away":               {stored(changed(claim("a", -3), heldBy(""))), 3, 0, 0},
		"released in order, and edited to be held": {stored(changed(released(-3), heldBy("a"))), 3, 0, 0},
		"released, never renewed":                  {stored(release(-3)), 11, most, 0},
		"no Lease":                                 {nil, 11, most, 0},
		"no renewTime": {stored(changed(late,
			func(r *electionRecord) { r.RenewTime = metav1.Time{} })), 11, most, 0},
		"created and never renewed":    {stored(changed(late, neverRenewed)), 11, most, 0},
		"taken over and never renewed": {stored(changed(late, neverRenewed, oneTermLater)), 11, most, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t, &store{record: test.before}, "b").wins(2, 3, 5)
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
	before := func() *store { return &store{record: stored(claim("a", -8))} }
	for name, test := range map[string]func(*testing.T){
		"nothing before the election is won": func(t *testing.T) {
			r := newReplica(t, before(), "b")
			r.play("read")
			r.ObserveEarlierRenewTime(wall(1))
			if started, inherited := r.Started(); started != (lease.Reading{}) || !inherited.IsZero() {
				t.Errorf("started %+v, inherited %v", started, inherited)
			}
		},
		"the Lease was deleted after it was read": func(t *testing.T) {
			s := before()
			r := newReplica(t, s, "b")
			r.play("read")
			s.put(nil)
			if _, inherited := r.wins(2, 3, 5).Started(); !inherited.Equal(wall(11)) {
				t.Errorf("inherited %v", inherited.Sub(zero))
			}
		},
		"the election was won before, unanswered": func(t *testing.T) {
			r := newReplica(t, before(), "b")
			r.play("read")
			r.play("unanswered")
			if r.lock.Update(t.Context(), claim("b", 0)) == nil {
				t.Fatal("it was answered")
			}
			r.answered()
			if _, inherited := r.wins(2, 3, 5).Started(); inherited.Before(wall(-2)) {
				t.Errorf("inherited %v", inherited.Sub(zero))
			}
		},
		// A candidate was paused between its renewTime and its claim, for longer than h. Its predecessor was released
		// after that renewTime.
		"a claim of long ago hides no predecessor": func(t *testing.T) {
			s := &store{record: stored(released(8))}
			stale := newReplica(t, s, "b")
			stale.clock.Set(at(9))
			if err := stale.readsAndUpdates(changed(claim("b", -2), neverRenewed, oneTermLater)); err != nil {
				t.Fatal(err)
			}
			stale.mayNotWrite(9)
			if _, inherited := newReplica(t, s, "c").wins(10, 10, 10).Started(); inherited.Before(wall(8)) {
				t.Errorf("inherited %v, the predecessor wrote until 8 s", inherited.Sub(zero))
			}
		},
	} {
		t.Run(name, test)
	}
}

// Rule 6: a renewTime that is later than what was inherited shows that the election's Lease was wrong.
func TestObserveEarlierRenewTime(t *testing.T) {
	for name, test := range map[string]struct {
		before electionRecord
		seen   []float64
		want   float64
	}{
		"within what was inherited":             {claim("a", -8), []float64{-2}, -2},
		"after what was inherited":              {claim("a", -8), []float64{-1.999}, 11},
		"after what was inherited, then before": {claim("a", -8), []float64{-1.999, -50}, 11},
		"more than h after the start":           {claim("a", -8), []float64{500}, 11},
		"after more than h was inherited":       {claim("a", 4.999), []float64{10.9995}, 11},
		"after a tenure of an election of 60 s": {changed(claim("a", -1), lasting(60)), []float64{60}, 65},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t, &store{record: stored(test.before)}, "b").wins(2, 3, 5)
			for _, seconds := range test.seen {
				r.ObserveEarlierRenewTime(wall(seconds))
			}
			if _, inherited := r.Started(); !inherited.Equal(wall(test.want)) {
				t.Errorf("inherited %v, want %v", inherited.Sub(zero), test.want)
			}
		})
	}
	if got := tenure.New(&clocktest.Hand{}, h).ElectionDuration(); got != h {
		t.Errorf("h is %v", got)
	}
}
