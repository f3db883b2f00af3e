package decide

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/publish"
)

// Rule 10: a successor shows that it can be written by a Lease of this draining. One that was written for an earlier
// one, or refused then, shows nothing of now.
func TestWhatAFreshLeaseShowsItShowsOfOneDrainingOnly(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	earlier, later := since.Add(-time.Minute), since.Add(time.Minute)
	for name, test := range map[string]struct {
		facts             publish.SyncStatus
		prepared, refused bool
	}{
		"nothing is known": {publish.SyncStatus{}, false, false},
		"it was written for this draining": {
			publish.SyncStatus{InPlace: true, MinRenewTime: since}, true, false,
		},
		"it is not written yet": {publish.SyncStatus{MinRenewTime: since}, false, false},
		"it was written for an earlier one": {
			publish.SyncStatus{InPlace: true, MinRenewTime: earlier}, false, false,
		},
		"it was written for nobody's draining": {publish.SyncStatus{InPlace: true}, false, false},
		"it was written for a later one, as by an older record": {
			publish.SyncStatus{InPlace: true, MinRenewTime: later}, false, false,
		},
		"it was refused in this draining": {
			publish.SyncStatus{Refused: true, MinRenewTime: since}, false, true,
		},
		"it was refused in an earlier one": {
			publish.SyncStatus{Refused: true, MinRenewTime: earlier}, false, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := measured("west", agrees)
			m.Sync = test.facts
			v := &Snapshot{Entry: takenOf(shop), Members: []Member{m},
				Policy: &Policy{Names: map[string]bool{"shop": true},
					Election: election.Policy{Timings: lease.Timings{Skew: time.Second}}}}
			v.State.Record = election.Record{State: election.Draining, Leader: "east", Epoch: 20, Since: since, Next: "west"}
			cs, _ := candidatesOf(v)
			if got := cs[0]; got.Prepared != test.prepared || got.Refused != test.refused {
				t.Errorf("prepared %v, refused %v; want %v, %v", got.Prepared, got.Refused, test.prepared, test.refused)
			}
		})
	}
}

func TestANamespaceThatThePolicyDoesNotMatchIsMissing(t *testing.T) {
	v := shopView(election.Record{Epoch: 20, Leader: "west"}, measured("east", agrees))
	v.Policy = ParsePolicy(&v1alpha1.LeadershipPolicy{})
	if cs, _ := candidatesOf(v); cs[0].Reason != reason.NamespaceMissing {
		t.Errorf("reason %s", cs[0].Reason)
	}
	v.Policy = nil
	if cs, _ := candidatesOf(v); cs[0].Reason != reason.NamespaceMissing {
		t.Errorf("without a policy: reason %s", cs[0].Reason)
	}
}

func TestCandidatesAreJudgedAgainWhenTheFirstHealthMayChange(t *testing.T) {
	next := func(name string, d time.Duration) Member {
		return changed(measured(name, agrees), func(m *Member) { m.Verdict.Next = d })
	}
	for name, test := range map[string]struct {
		members []Member
		want    time.Duration
	}{
		"none by time alone": {[]Member{next("east", 0), next("west", 0)}, 0},
		"the first": {
			[]Member{next("east", 2*time.Second), next("west", 5*time.Second)}, 2 * time.Second,
		},
		"the last": {
			[]Member{next("east", 5*time.Second), next("west", 2*time.Second)}, 2 * time.Second,
		},
		"one in the next instant": {[]Member{next("east", 1), next("west", 0)}, 1},
		"one that takes no part": {
			[]Member{changed(next("east", 1), func(m *Member) { m.TakesPart = false }), next("west", time.Second)},
			time.Second,
		},
		"all that can, and another": {[]Member{next("east", 0), next("west", 3*time.Second)}, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			cs, after := candidatesOf(shopView(election.Record{}, test.members...))
			if after != test.want {
				t.Errorf("again after %v, want %v", after, test.want)
			}
			for _, c := range cs {
				if !c.Answering {
					t.Errorf("%s does not answer", c.Name)
				}
			}
		})
	}
}
