package skew

import (
	"strings"
	"testing"
	"time"
)

func TestContradicted(t *testing.T) {
	const eps, d, ms = time.Second, 15 * time.Second, time.Millisecond
	around := func(off time.Duration) Interval { return Interval{off - 50*ms, off + 50*ms} }
	for name, tc := range map[string]struct {
		offsets []Interval
		eps, d  time.Duration
		words   string // empty: not contradicted
	}{
		"clocks that agree": {[]Interval{around(0), around(0)}, eps, d, ""},
		"an hour behind all": {[]Interval{around(time.Hour), around(time.Hour)},
			eps, d, "59m59.95s behind those of all 2 clusters"},
		"an hour ahead of all": {[]Interval{around(-time.Hour), around(-time.Hour), around(-time.Hour)},
			eps, d, "59m59.95s ahead of those of all 3 clusters"},
		"the least that all prove counts": {[]Interval{around(time.Hour), around(time.Minute)}, eps, d, "59.95s behind"},
		"behind by D for certain":         {[]Interval{{d, d + ms}, {d, d}}, eps, d, "15s behind"},
		"behind by less than D for one":   {[]Interval{{d, d + ms}, {d - 1, d + ms}}, eps, d, ""},
		"behind by D perhaps":             {[]Interval{{d - ms, d + ms}, {d - ms, d + ms}}, eps, d, ""},
		"ahead by more than ε for certain": {[]Interval{{-2 * eps, -eps - ms}, {-2 * eps, -eps - ms}},
			eps, d, "1s ahead of"},
		"ahead by ε":                   {[]Interval{{-2 * eps, -eps}, {-2 * eps, -eps}}, eps, d, ""},
		"ahead by more than ε perhaps": {[]Interval{{-2 * eps, -eps + ms}, {-2 * eps, -eps - ms}}, eps, d, ""},
		"one cluster alone":            {[]Interval{around(time.Hour)}, eps, d, ""},
		"nobody was measured":          {nil, eps, d, ""},
		"one agrees":                   {[]Interval{around(time.Hour), around(time.Hour), around(0)}, eps, d, ""},
		"they contradict each other":   {[]Interval{around(time.Hour), around(-time.Hour)}, eps, d, ""},
		"no policy":                    {[]Interval{around(time.Hour), around(time.Hour)}, 0, 0, ""},
		"a policy with so long a D":    {[]Interval{around(time.Minute), around(time.Minute)}, eps, time.Hour, ""},
		"a policy with so large an ε":  {[]Interval{around(-time.Minute), around(-time.Minute)}, time.Hour, time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Contradicted(tc.offsets, tc.eps, tc.d)
			if (got != "") != (tc.words != "") || !strings.Contains(got, tc.words) {
				t.Error(got)
			}
		})
	}
}
