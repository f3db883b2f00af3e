package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/publish"
)

// Rule 10: a successor shows that it can be written by a Lease of this draining. One that was written for an earlier one, or
// refused then, shows nothing of now.
func TestWhatAFreshLeaseShowsItShowsOfOneDrainingOnly(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	earlier, later := since.Add(-time.Minute), since.Add(time.Minute)
	for name, test := range map[string]struct {
		facts             publish.SyncStatus
		prepared, refused bool
	}{
		"nothing is known":                                      {publish.SyncStatus{}, false, false},
		"it was written for this draining":                      {publish.SyncStatus{InPlace: true, MinRenewTime: since}, true, false},
		"it is not written yet":                                 {publish.SyncStatus{MinRenewTime: since}, false, false},
		"it was written for an earlier one":                     {publish.SyncStatus{InPlace: true, MinRenewTime: earlier}, false, false},
		"it was written for nobody's draining":                  {publish.SyncStatus{InPlace: true}, false, false},
		"it was written for a later one, as by an older record": {publish.SyncStatus{InPlace: true, MinRenewTime: later}, false, false},
		"it was refused in this draining":                       {publish.SyncStatus{Refused: true, MinRenewTime: since}, false, true},
		"it was refused in an earlier one":                      {publish.SyncStatus{Refused: true, MinRenewTime: earlier}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := measured("west", agrees)
			m.facts = test.facts
			v := &view{
				key: types.NamespacedName{Namespace: "fleet", Name: "shop"}, members: []memberView{m},
				policy: &policy{names: map[string]bool{"shop": true}, election: election.Policy{Timings: lease.Timings{Skew: time.Second}}},
			}
			v.state.Record = election.Record{State: election.Draining, Leader: "east", Epoch: 20, Since: since, Next: "west"}
			cs, _ := v.candidates()
			if got := cs[0]; got.Prepared != test.prepared || got.Refused != test.refused {
				t.Errorf("prepared %v, refused %v; want %v, %v", got.Prepared, got.Refused, test.prepared, test.refused)
			}
		})
	}
}
