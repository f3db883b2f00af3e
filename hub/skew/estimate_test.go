package skew_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/skew"
)

// Whatever the offset, the drift within its bound, the delays and the steps of the hub's
// own clock: the truth lies in the interval, at once and later.
func TestTheTruthLiesInTheInterval(t *testing.T) {
	for seed := range uint64(3000) {
		w := newWorld(seed)
		w.offset = w.between(-10*second, 10*second)
		w.rate = (2*w.Float64() - 1) * 500e-6
		e := skew.Estimate{}
		for range 60 {
			w.pass(w.between(0, 3*second))
			if w.IntN(10) == 0 {
				w.stepH += w.between(-5*second, 5*second)
			}
			sent, answered, date := w.ask(w.between(0, 400*ms), w.between(0, 400*ms))
			e.Observe(skew.Dated(sent, answered, date))
			if w.IntN(10) == 0 {
				w.pass(w.between(0, 1000*second))
			}
			if i := e.Offset(w.hub()); w.truth() < i.Lo || w.truth() > i.Hi {
				t.Fatalf("seed %d: the offset is %v, the interval %+v", seed, w.truth(), i)
			}
		}
	}
}

func TestSamplesInAnyOrderProveTheSame(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(seed)
		w.offset = w.between(-3*second, 3*second)
		var samples []skew.Sample
		for range 8 {
			w.pass(w.between(0, second))
			sent, answered, date := w.ask(w.between(0, 50*ms), w.between(0, 50*ms))
			samples = append(samples, skew.Dated(sent, answered, date))
		}
		var forth, mixed skew.Estimate
		for _, s := range samples {
			forth.Observe(s)
		}
		for _, i := range w.Perm(len(samples)) {
			mixed.Observe(samples[i])
		}
		a, b := forth.Offset(w.hub()), mixed.Offset(w.hub())
		// The drift of a bound is rounded each time.
		if (a.Lo-b.Lo).Abs() > time.Microsecond || (a.Hi-b.Hi).Abs() > time.Microsecond {
			t.Fatalf("seed %d: %+v, mixed %+v", seed, a, b)
		}
	}
}

func TestWhatASampleProves(t *testing.T) {
	at := func(d time.Duration) lease.Reading { return lease.Reading{Wall: noon.Add(d), Boot: d} }
	const slack = ms
	for name, tc := range map[string]struct {
		samples []skew.Sample
		now     lease.Reading
		want    skew.Interval
	}{
		"a Date: the second, and the round trip": {
			[]skew.Sample{skew.Dated(at(10*second), at(10*second+100*ms), noon.Add(10*second))}, at(10*second + 100*ms),
			skew.Interval{Lo: -100*ms - slack, Hi: second + slack},
		},
		"two Dates on both sides of an edge: the round trips": {
			[]skew.Sample{
				skew.Dated(at(10*second+980*ms), at(10*second+990*ms), noon.Add(10*second)),
				skew.Dated(at(11*second+10*ms), at(11*second+20*ms), noon.Add(11*second)),
			}, at(11*second + 20*ms),
			// Of the 30 ms between the two, 15 µs of drift.
			skew.Interval{Lo: -20*ms - slack, Hi: 20*ms + slack + 15*time.Microsecond},
		},
		"a renewTime that was seen: it is not further behind": {
			[]skew.Sample{{Open: true, Before: 10 * second, Shown: noon.Add(12 * second), Grain: time.Microsecond}}, at(10 * second),
			skew.Interval{Lo: 2*second - slack, Hi: century},
		},
		"and it was not there before: nor further ahead": {
			[]skew.Sample{{After: 9 * second, Before: 10 * second, Shown: noon.Add(12 * second), Grain: time.Microsecond}}, at(10 * second),
			skew.Interval{Lo: 2*second - slack, Hi: 3*second + slack + time.Microsecond},
		},
		"what is old proves less: 500 µs for each second": {
			[]skew.Sample{skew.Dated(at(10*second), at(10*second), noon.Add(10*second))}, at(1010 * second),
			skew.Interval{Lo: -500*ms - slack, Hi: 1500*ms + slack},
		},
		"the hub's own clock was stepped since": {
			[]skew.Sample{skew.Dated(at(10*second), at(10*second), noon.Add(10*second))},
			lease.Reading{Wall: noon.Add(40 * second), Boot: 10 * second},
			skew.Interval{Lo: -30*second - slack, Hi: -29*second + slack},
		},
		"what contradicts all before counts alone": {
			[]skew.Sample{
				skew.Dated(at(10*second), at(10*second), noon.Add(10*second)),
				skew.Dated(at(10*second+500*ms), at(10*second+500*ms), noon.Add(10*second)),
				skew.Dated(at(20*second), at(20*second), noon.Add(3620*second)),
			}, at(20 * second),
			skew.Interval{Lo: 3600*second - slack, Hi: 3601*second + slack},
		},
		"a clock of another age": {
			[]skew.Sample{skew.Dated(at(0), at(0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC))}, at(0),
			skew.Interval{Lo: century, Hi: century},
		},
		"a clock of the year 0": {
			[]skew.Sample{skew.Dated(at(0), at(0), time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC))}, at(0),
			skew.Interval{Lo: -century, Hi: -century},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var e skew.Estimate
			for _, s := range tc.samples {
				e.Observe(s)
			}
			if got := e.Offset(tc.now); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

const century = 100 * 365 * 24 * time.Hour

func TestLeastAndMost(t *testing.T) {
	for name, tc := range map[string]struct {
		i           skew.Interval
		least, most time.Duration
	}{
		"it may be right":     {skew.Interval{Lo: -2, Hi: 1}, 0, 2},
		"it is ahead":         {skew.Interval{Lo: 2, Hi: 5}, 2, 5},
		"it is behind":        {skew.Interval{Lo: -5, Hi: -2}, 2, 5},
		"it is exactly right": {skew.Interval{}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.i.Least() != tc.least || tc.i.Most() != tc.most {
				t.Errorf("least %v, most %v; want %v, %v", tc.i.Least(), tc.i.Most(), tc.least, tc.most)
			}
		})
	}
}

// A probe that aims at the flip of the second halves what is not known, whatever the offset.
func TestAimingHalvesTheInterval(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(seed)
		w.offset = w.between(-10*second, 10*second)
		var e skew.Estimate
		trip := w.between(2*ms, 20*ms)
		ask := func() {
			sent, answered, date := w.ask(trip/2, trip/2)
			e.Observe(skew.Dated(sent, answered, date))
		}
		ask()
		n := 0
		for {
			at, ok := e.Aim(w.boot)
			if !ok {
				break
			}
			if n++; n > 7 {
				t.Fatalf("seed %d: after %d aimed requests still %+v", seed, n, e.Offset(w.hub()))
			}
			if at < w.boot || at-w.boot >= second {
				t.Fatalf("seed %d: aims %v from now", seed, at-w.boot)
			}
			w.pass(at - w.boot)
			ask()
		}
		if i := e.Offset(w.hub()); i.Hi-i.Lo > skew.Fine {
			t.Errorf("seed %d: %+v is enough", seed, i)
		}
	}
}

func TestNobodyAimsAtWhatIsNotKnown(t *testing.T) {
	var e skew.Estimate
	if at, ok := e.Aim(0); ok {
		t.Errorf("aims at %v", at)
	}
}

// A long way to the member sets the limit; aiming must not go on for ever.
func TestAimingEndsWhereTheWayIsLong(t *testing.T) {
	w := newWorld(1)
	var e skew.Estimate
	for range 20 {
		sent, answered, date := w.ask(200*ms, 200*ms)
		e.Observe(skew.Dated(sent, answered, date))
		at, ok := e.Aim(w.boot)
		if !ok {
			return
		}
		w.pass(at - w.boot)
	}
	t.Errorf("still aims at %+v", e.Offset(w.hub()))
}

func TestParseDate(t *testing.T) {
	for name, tc := range map[string]struct {
		header string
		want   time.Time
		ok     bool
	}{
		"as servers write it": {"Sun, 06 Nov 1994 08:49:37 GMT", time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC), true},
		"another weekday":     {"Mon, 06 Nov 1994 08:49:37 GMT", time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC), true},
		"nothing":             {"", time.Time{}, false},
		"another zone":        {"Sun, 06 Nov 1994 08:49:37 CET", time.Time{}, false},
		"an obsolete form":    {"Sunday, 06-Nov-94 08:49:37 GMT", time.Time{}, false},
		"asctime":             {"Sun Nov  6 08:49:37 1994", time.Time{}, false},
		"no such day":         {"Sun, 31 Feb 1994 08:49:37 GMT", time.Time{}, false},
		"a fraction":          {"Sun, 06 Nov 1994 08:49:37.5 GMT", time.Time{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := skew.ParseDate(tc.header); ok != tc.ok || !got.Equal(tc.want) {
				t.Errorf("got %v, %v", got, ok)
			}
		})
	}
}

// FuzzDate: what is taken for a Date is one, and no Date makes an estimate overflow.
func FuzzDate(f *testing.F) {
	f.Add("Sun, 06 Nov 1994 08:49:37 GMT", int64(0), int64(ms))
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", int64(math.MaxInt64/2), int64(second))
	f.Add("Sat, 01 Jan 0000 00:00:00 GMT", int64(0), int64(math.MaxInt64/4))
	f.Add("Fri, 01 DeC 0000  0:00:00 GMT", int64(0), int64(second))
	f.Fuzz(func(t *testing.T, header string, sent, took int64) {
		date, ok := skew.ParseDate(header)
		if !ok {
			return
		}
		// The weekday is not checked against the day, letters may be small, and a zero may be a space.
		usual := date.Format(http.TimeFormat)
		if again, ok := skew.ParseDate(usual); !ok || !again.Equal(date) {
			t.Fatalf("%q was read as %q, and that as %v, %v", header, usual, again, ok)
		}
		if sent < 0 || took < 0 || sent > math.MaxInt64/2 || took > math.MaxInt64/4 {
			return
		}
		from := lease.Reading{Wall: noon, Boot: time.Duration(sent)}
		now := lease.Reading{Wall: noon.Add(time.Duration(took)), Boot: time.Duration(sent + took)}
		var track skew.Track
		track.Judge(now, []time.Duration{second})
		track.Answer(skew.Dated(from, now, date), now)
		track.Answer(skew.Dated(from, now, date), now)
		i, ok := track.Server(now)
		if !ok || i.Lo > i.Hi || i.Least() < 0 || i.Least() > century || i.Most() < i.Least() || i.Most() > century {
			t.Fatalf("%q: %+v", header, i)
		}
		if at, ok := track.Aim(now.Boot); ok && (at < now.Boot-time.Duration(took) || at-now.Boot >= second) {
			t.Fatalf("%q: aims %v from now", header, at-now.Boot)
		}
	})
}
