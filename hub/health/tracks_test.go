package health

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

func TestARequestIsJudgedUnderEachTimeout(t *testing.T) {
	const short, long = 50 * time.Millisecond, 3 * time.Second
	at := lease.Reading{Boot: time.Hour}
	for name, test := range map[string]struct {
		o                   Observation
		underShort, forLong bool // it counts as answered
		silentForLong       bool // it says nothing under the long one
	}{
		"an answer at once is one under both":                  {Observation{OK: true}, true, true, false},
		"an answer within the short timeout is one under both": {Observation{OK: true, Took: short}, true, true, false},
		"an answer after the short timeout is one under the long": {
			o:       Observation{OK: true, Took: short + 1},
			forLong: true,
		},
		"an answer after the long timeout says nothing": {
			o:             Observation{OK: true, Took: long + 1},
			silentForLong: true,
		},
		"silence for the short timeout says nothing under the long": {
			o:             Observation{Silent: true, Took: short},
			silentForLong: true,
		},
		"silence for the long timeout is a failure under both": {
			o: Observation{Silent: true, Took: long},
		},
		"an error that came at once is a failure under both": {
			o: Observation{Took: time.Millisecond},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, k := range []Kind{Read, Write} {
				o := test.o
				o.Kind, o.At = k, at
				ts := Tracks{}.Under([]time.Duration{short, long}).Observe(o)
				under, patient := ts.Of(short), ts.Of(long)
				if got := under.Reached(k); got != test.underShort {
					t.Errorf("answered under the short one: %v", got)
				}
				if failed := under.Failure() != (Observation{}); failed == o.OK {
					t.Errorf("failed under the short one: %v", failed)
				}
				if got := patient.Reached(k); got != test.forLong {
					t.Errorf("answered under the long one: %v", got)
				}
				if silent := patient.Failure() == (Observation{}) && !patient.Reached(k); silent != test.silentForLong {
					t.Errorf("nothing is known under the long one: %v", silent)
				}
			}
		})
	}
}

func TestWhichFactsAPolicyIsJudgedBy(t *testing.T) {
	ts := Tracks{}.Under([]time.Duration{time.Second, 3 * time.Second})
	ts[0].Track.Observe(Observation{Kind: Read, OK: true, At: lease.Reading{Boot: 1}})
	ts[1].Track.Observe(Observation{Kind: Read, OK: true, At: lease.Reading{Boot: 3}})
	for name, test := range map[string]struct {
		timeout, want time.Duration
	}{
		"those under its own timeout":                {time.Second, 1},
		"those under the next longer one":            {2 * time.Second, 3},
		"those under the longest if none is longer":  {9 * time.Second, 3},
		"those under the shortest if all are longer": {time.Millisecond, 1},
	} {
		track := ts.Of(test.timeout)
		if at, _ := track.Last(Read); at.Boot != test.want {
			t.Errorf("%s: %v", name, at.Boot)
		}
	}
	edited := ts.Under([]time.Duration{2 * time.Second, 9 * time.Second})
	for _, timed := range edited {
		if at, _ := timed.Track.Last(Read); at.Boot != 3 {
			t.Errorf("a new timeout of %v begins with what was known at %v", timed.Timeout, at.Boot)
		}
	}
}

func TestTracksThatWereHandedOutStayAsTheyWere(t *testing.T) {
	at := func(s int) lease.Reading { return lease.Reading{Boot: time.Duration(s) * time.Second} }
	ts := Tracks{}.Under([]time.Duration{time.Second})
	for s := range 2 * maxLapses {
		ts = ts.Observe(Observation{Kind: Read, OK: s%2 == 0, At: at(s)})
	}
	before := ts.MostPatient()
	lapse := before.facts[Read].lapses[0]
	ts.Observe(Observation{Kind: Read, OK: true, At: at(1000)}).Excuse(Read, at(1000), at(2000))
	if last, _ := before.Last(Read); before.facts[Read].lapses[0] != lapse || last.Boot > at(200).Boot {
		t.Error("they changed")
	}
	if gone := ts.Forgotten().MostPatient(); gone.Reached(Read) {
		t.Error("what is forgotten is known")
	}
}
