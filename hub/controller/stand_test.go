package controller

import (
	"testing"

	"github.com/leasecast/leasecast/api/lease"
)

// A follower's copy is written on change and promises nothing, whoever it names: a tenure
// that took one for the standing term would change the leader.
func TestOnlyTheLeadersOwnCopyIsTheStandingTerm(t *testing.T) {
	var east memberView
	east.Name, east.Fleet = "east", "fleet"
	us, them := lease.Identity("east", "fleet"), lease.Identity("west", "fleet")
	for name, tc := range map[string]struct {
		holder, cluster string
		stands          bool
	}{
		"the leader's own":                   {us, us, true},
		"a follower's":                       {them, us, false},
		"of nobody":                          {"", us, false},
		"of a cluster that has another name": {them, them, false},
	} {
		t.Run(name, func(t *testing.T) {
			var v view
			v.stand(&east, lease.Copy{Cluster: tc.cluster, Term: lease.Term{Holder: tc.holder, Epoch: 7}})
			if stands := v.state.Standing != nil; stands != tc.stands {
				t.Errorf("standing %+v, want one: %t", v.state.Standing, tc.stands)
			}
		})
	}
	var v view
	for _, epoch := range []int64{7, 9, 8} {
		v.stand(&east, lease.Copy{Cluster: us, Term: lease.Term{Holder: us, Epoch: epoch}})
	}
	if v.state.Standing.Term.Epoch != 9 {
		t.Errorf("standing %+v, want the highest epoch", v.state.Standing)
	}
}
