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
		"among others":         {[]string{"ledger", "shop", "tools"}, true},
		"others only":          {[]string{"ledger", "tools"}, false},
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
		"another namespace": {map[string]int64{"ledger": 7}, false},
		"and both":          {map[string]int64{"ledger": 7, "shop": 6}, false},
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
