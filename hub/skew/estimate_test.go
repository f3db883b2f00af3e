package skew_test

import (
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
			e.Observe(w.ask(w.between(0, 400*ms), w.between(0, 400*ms)))
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
			samples = append(samples, w.ask(w.between(0, 50*ms), w.between(0, 50*ms)))
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
			[]skew.Sample{{Sent: 10 * second, Answered: 10*second + 100*ms, Date: noon.Add(10 * second)}},
			at(10*second + 100*ms),
			skew.Interval{Lo: -100*ms - slack, Hi: second + slack},
		},
		"two Dates on both sides of an edge: the round trips": {
			[]skew.Sample{
				{Sent: 10*second + 980*ms, Answered: 10*second + 990*ms, Date: noon.Add(10 * second)},
				{Sent: 11*second + 10*ms, Answered: 11*second + 20*ms, Date: noon.Add(11 * second)},
			}, at(11*second + 20*ms),
			// Of the 30 ms between the two, 15 µs of drift.
			skew.Interval{Lo: -20*ms - slack, Hi: 20*ms + slack + 15*time.Microsecond},
		},
		"what is old proves less: 500 µs for each second": {
			[]skew.Sample{{Sent: 10 * second, Answered: 10 * second, Date: noon.Add(10 * second)}}, at(1010 * second),
			skew.Interval{Lo: -500*ms - slack, Hi: 1500*ms + slack},
		},
		"the hub's own clock was stepped since": {
			[]skew.Sample{{Sent: 10 * second, Answered: 10 * second, Date: noon.Add(10 * second)}},
			lease.Reading{Wall: noon.Add(40 * second), Boot: 10 * second},
			skew.Interval{Lo: -30*second - slack, Hi: -29*second + slack},
		},
		"what contradicts all before counts alone": {
			[]skew.Sample{
				{Sent: 10 * second, Answered: 10 * second, Date: noon.Add(10 * second)},
				{Sent: 10*second + 500*ms, Answered: 10*second + 500*ms, Date: noon.Add(10 * second)},
				{Sent: 20 * second, Answered: 20 * second, Date: noon.Add(3620 * second)},
			}, at(20 * second),
			skew.Interval{Lo: 3600*second - slack, Hi: 3601*second + slack},
		},
		"a clock of another age": {
			[]skew.Sample{{Sent: 0, Answered: 0, Date: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}}, at(0),
			skew.Interval{Lo: century, Hi: century},
		},
		"a clock of the year 0": {[]skew.Sample{{Sent: 0, Answered: 0, Date: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)}},
			at(0), skew.Interval{Lo: -century, Hi: -century}},
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

func TestSampleOf(t *testing.T) {
	const date = "Sun, 01 Mar 2026 12:00:07 GMT"
	for name, tc := range map[string]struct {
		status int
		header http.Header
		want   bool
	}{
		"an answer with a Date":       {http.StatusOK, http.Header{"Date": {date}}, true},
		"a refusal":                   {http.StatusForbidden, http.Header{"Date": {date}}, true},
		"an error, as of a gateway":   {http.StatusBadGateway, http.Header{"Date": {date}}, false},
		"an answer from a cache":      {http.StatusOK, http.Header{"Date": {date}, "Age": {"0"}}, false},
		"no Date":                     {http.StatusOK, nil, false},
		"two Dates":                   {http.StatusOK, http.Header{"Date": {date, date}}, false},
		"an obsolete form of a Date":  {http.StatusOK, http.Header{"Date": {"Sunday, 01-Mar-26 12:00:07 GMT"}}, false},
		"a Date in another time zone": {http.StatusOK, http.Header{"Date": {"Sun, 01 Mar 2026 12:00:07 CET"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			want := skew.Sample{Sent: second, Answered: 2 * second, Date: noon.Add(7 * second)}
			s, ok := skew.SampleOf(lease.Reading{Boot: second}, lease.Reading{Boot: 2 * second}, tc.status, tc.header)
			if ok != tc.want || ok && s != want {
				t.Errorf("%+v, %v; want %v", s, ok, tc.want)
			}
		})
	}
}
