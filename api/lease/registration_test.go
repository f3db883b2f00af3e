package lease_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

func TestAReaderFollowsWhatItNamesOrAll(t *testing.T) {
	tests := map[string]struct {
		namespaces []string
		want       bool
	}{
		"all":                  {nil, true},
		"an empty list is all": {[]string{}, true},
		"this one":             {[]string{"shop"}, true},
		"among others":         {[]string{"promises", "shop", "tools"}, true},
		"others only":          {[]string{"promises", "tools"}, false},
		"a part of the name":   {[]string{"sho", "shopp"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (lease.Registration{Namespaces: test.namespaces}).Follows("shop"); got != test.want {
				t.Errorf("Follows = %v, want %v", got, test.want)
			}
		})
	}
}

func TestAReleaseIsOfItsEpochAndAllBelow(t *testing.T) {
	tests := map[string]struct {
		released map[string]int64
		want     bool
	}{
		"nothing":           {nil, false},
		"this epoch":        {map[string]int64{"shop": 7}, true},
		"a higher one":      {map[string]int64{"shop": 8}, true},
		"a lower one":       {map[string]int64{"shop": 6}, false},
		"another namespace": {map[string]int64{"promises": 7}, false},
		"and both":          {map[string]int64{"promises": 7, "shop": 6}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (lease.Registration{Released: test.released}).HasReleased("shop", 7); got != test.want {
				t.Errorf("HasReleased = %v, want %v", got, test.want)
			}
		})
	}
	if (lease.Registration{}).HasReleased("shop", 0) {
		t.Error("epoch 0 counts as released although nothing was")
	}
}

func TestARegistrationLastsFromItsConfirmation(t *testing.T) {
	r := lease.Registration{Confirmed: noon, Duration: 15 * time.Second}
	if got := r.Until(); !got.Equal(noon.Add(15 * time.Second)) {
		t.Errorf("Until = %v", got)
	}
}

// The Permit of a confirmation ends on either clock: Duration after the reading that it was taken from.
func TestAConfirmationPermitsUntilItsEndOnBothClocks(t *testing.T) {
	sent := at(0)
	p := lease.Registration{Confirmed: sent.Wall, Duration: term}.Permit(sent)
	for name, tc := range map[string]struct {
		now  lease.Reading
		want time.Duration
	}{
		"when it was sent":                       {at(0), term},
		"just before its end":                    {at(term - 1), 1},
		"at its end":                             {at(term), 0},
		"at its end, by the boot clock alone":    {stepped(term, -time.Hour), 0},
		"at its end, by the wall clock alone":    {stepped(0, term), 0},
		"the wall clock is back, the other goes": {stepped(5*time.Second, -time.Hour), term - 5*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.Holds(tc.now); got != (tc.want > 0) {
				t.Errorf("holds: %v", got)
			}
			if got := p.Remaining(tc.now); got != tc.want {
				t.Errorf("%v remain, want %v", got, tc.want)
			}
		})
	}
}

// Only a Lease that names nobody lets a reader say what is over: all that is below its epoch.
func TestWhatIsOver(t *testing.T) {
	for name, tc := range map[string]struct {
		all  []seen
		over int64
		ok   bool
	}{
		"nothing was seen":                {nil, -1, false},
		"this cluster leads":              {[]seen{observe(at(0), leaseAt(0, here, 7))}, 6, false},
		"another cluster leads":           {[]seen{observe(at(0), leaseAt(0, there, 7))}, 6, false},
		"nobody leads":                    {[]seen{observe(at(0), leaseAt(0, "", 8))}, 7, true},
		"nobody leads any more":           {[]seen{observe(at(0), leaseAt(0, here, 7)), observe(at(1), leaseAt(1, "", 8))}, 7, true},
		"somebody leads again":            {[]seen{observe(at(0), leaseAt(0, "", 8)), observe(at(1), leaseAt(1, there, 9))}, 8, false},
		"an older Lease says nothing new": {[]seen{observe(at(0), leaseAt(0, "", 8)), observe(at(1), leaseAt(1, there, 7))}, 7, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &lease.Reader{Skew: skew}
			feed(r, tc.all...)
			if over, ok := r.Over(); over != tc.over || ok != tc.ok {
				t.Errorf("Over = %d, %v, want %d, %v", over, ok, tc.over, tc.ok)
			}
		})
	}
}
