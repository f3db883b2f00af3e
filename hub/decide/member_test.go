package decide

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/health"
)

// Those that were lost within one window of the last one count, of those that take part.
func TestWhichLostClustersCountTogether(t *testing.T) {
	const window = 10 * time.Second
	at := func(state health.State, since time.Duration) Member {
		return Member{
			TakesPart: true, Verdict: health.Verdict{State: state, Since: lease.Reading{Boot: time.Hour + since}},
		}
	}
	outside := func(m Member) Member {
		m.TakesPart = false
		return m
	}
	for name, test := range map[string]struct {
		members []Member
		want    bool
	}{
		"one that came back since is no end of the window": {
			[]Member{at(health.Unhealthy, 0), at(health.Unhealthy, 0), at(health.Healthy, time.Hour)}, true,
		},
		"the only one that takes part": {
			[]Member{at(health.Unhealthy, 0), outside(at(health.Healthy, 0))}, true,
		},
		"the last one comes first": {
			[]Member{at(health.Unhealthy, window+1), at(health.Unhealthy, 0), at(health.Healthy, 0)}, false,
		},
		"one that takes no part was lost last": {
			[]Member{at(health.Unhealthy, 0), outside(at(health.Unhealthy, time.Hour))}, true,
		},
	} {
		if got := MostUnreachable(test.members, window); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// If most clusters are lost at once, it may well be the hub that is. Half are no more than the other half.
func TestMostClustersAreMoreThanHalfOfThoseThatWereReached(t *testing.T) {
	const window = 10 * time.Second
	at := func(since time.Duration) lease.Reading { return lease.Reading{Boot: time.Hour + since} }
	fine := Member{TakesPart: true, Verdict: health.Verdict{State: health.Healthy}}
	never := Member{TakesPart: true, Verdict: health.Verdict{State: health.Unknown}}
	lost := func(since time.Duration) Member {
		return Member{TakesPart: true, Verdict: health.Verdict{State: health.Unhealthy, Since: at(since)}}
	}
	outside := changed(lost(0), func(m *Member) { m.TakesPart = false })
	for name, test := range map[string]struct {
		members []Member
		want    bool
	}{
		"none":                                {[]Member{fine, fine}, false},
		"there are none":                      {nil, false},
		"one of two":                          {[]Member{lost(0), fine}, false},
		"two of four":                         {[]Member{lost(0), fine, lost(0), fine}, false},
		"two of three":                        {[]Member{lost(0), lost(0), fine}, true},
		"the only one":                        {[]Member{lost(0)}, true},
		"one of two, and one takes no part":   {[]Member{lost(0), fine, outside}, false},
		"one of one, and one was not reached": {[]Member{lost(0), never}, true},
		"two of three, within one window":     {[]Member{lost(0), lost(window), fine}, true},
		"two of three, one after the other":   {[]Member{lost(0), lost(window + 1), fine}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := MostUnreachable(test.members, window); got != test.want {
				t.Errorf("most are unreachable: %v, want %v", got, test.want)
			}
		})
	}
}
