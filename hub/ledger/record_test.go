package ledger

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
)

// A record is the same before and after it was stored.
func TestRecordIsStoredAndReadAsItWas(t *testing.T) {
	at := start.Wall.Add(123456 * time.Microsecond)
	want := election.Record{
		Leader: "east", Epoch: 20, Revoked: 19, State: election.Ending, Reason: reason.Unreachable,
		Since: at, AcquireTime: at.Add(1e9), Duration: 15 * time.Second, Skew: time.Second, Stop: 7 * time.Second,
		OpenLocks: []string{"a/b"}, UnfencedLeader: "west", LeaseName: "leasecast",
		NotBefore: at.Add(2e9), Next: "west", Observed: map[string]int32{"east": 9}, Rebalanced: at.Add(3e9),
		Fence: election.Acceptance{UID: "uid of east", At: at.Add(4e9), Voided: true},
	}
	s := v1alpha1.NamespaceLeaderSpec{
		ObservedPriorities: []v1alpha1.ObservedPriority{{Name: "east", Priority: 8}, {Name: "west"}},
	}
	odd := want // a record holds microseconds, and whole seconds of a stop time
	odd.Since, odd.AcquireTime, odd.Stop = at.Add(789), want.AcquireTime.Add(789), 6*time.Second+1
	for _, r := range []election.Record{odd, want} {
		Store(r, &s)
		if diff := cmp.Diff(want, RecordOf(&s)); diff != "" {
			t.Error(diff)
		}
	}
	Store(election.Record{}, &s)
	if s.Since != nil || s.AcquireTime != nil || s.NotBefore != nil || s.Fence != (v1alpha1.FenceRecord{}) {
		t.Errorf("times and fence of an empty record: %+v", s)
	}
}

// Of names of one length the first in order count.
func TestPrioritiesAreCountedUpToABound(t *testing.T) {
	long := strings.Repeat("x", maxCounted/2-3*ofCounted/2-len("a")-len("b"))
	for name, test := range map[string]struct {
		leader string
		names  []string
		want   []string
	}{
		"as much as it takes":           {"", []string{"a", "b", long}, []string{"a", "b", long}},
		"one byte more":                 {"", []string{"a", "b", long + "x"}, []string{"a", "b"}},
		"a long name of the leader":     {long + "x", []string{"b", long + "x", "a"}, []string{"a", long + "x"}},
		"room for one of two long ones": {"", []string{long + "b", long + "a", "a"}, []string{"a", long + "a"}},
		"room for one of three long ones": {"", []string{long + "b", long + "c", long + "a", "a"},
			[]string{"a", long + "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := election.Record{Leader: test.leader, Observed: map[string]int32{}}
			for _, n := range test.names {
				r.Observed[n] = 7
			}
			if got := countable(r); !slices.Equal(got, test.want) {
				t.Errorf("%d names are counted, want %d", len(got), len(test.want))
			}
		})
	}
}
