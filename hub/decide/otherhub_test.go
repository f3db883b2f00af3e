package decide

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/publish"
)

// Rule 8: a record is this hub's once the leader's Lease is or, where nobody leads, every Lease.
func TestTaken(t *testing.T) {
	member := func(name string, changes ...func(*Member)) Member {
		m := Member{
			Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}}, TakesPart: true, IsRead: true,
			Publisher: publish.New(publish.Options{}), Namespace: &corev1.Namespace{},
			Sync: publish.SyncStatus{Marked: true, InPlace: true},
		}
		for _, change := range changes {
			change(&m)
		}
		return m
	}
	unmarked := func(m *Member) { m.Sync.Marked = false }
	misplaced := func(m *Member) { m.Sync.InPlace = false }
	unread := func(m *Member) { m.IsRead = false }
	outside := func(m *Member) { m.TakesPart = false }
	bare := func(m *Member) { m.Namespace = nil }
	going := func(m *Member) { m.Namespace.Status.Phase = corev1.NamespaceTerminating }
	leading := election.Record{Leader: "east", State: election.Leading, Epoch: 20}
	vacant := election.Record{State: election.Vacant, Reason: reason.Moved, Epoch: 20}
	for name, test := range map[string]struct {
		record  election.Record
		members []Member
		want    bool
	}{
		"the leader's Lease is, whatever the others are": {
			leading, []Member{member("east"), member("west", unmarked), member("south", unread)}, true,
		},
		"the leader's Lease is not": {
			leading, []Member{member("east", unmarked), member("west")}, false,
		},
		"the leader's Lease is of another term": {
			leading, []Member{member("east", misplaced), member("west")}, false,
		},
		"the leader is not there":          {leading, []Member{member("west")}, false},
		"nobody leads, and all Leases are": {vacant, []Member{member("east"), member("west")}, true},
		"nobody leads, and one is not": {
			vacant, []Member{member("east"), member("west", unmarked)}, false,
		},
		"nobody leads, and one Lease is of another term": {
			vacant, []Member{member("east"), member("west", misplaced)}, false,
		},
		"nobody leads, and one was not read": {
			vacant, []Member{member("east"), member("west", unread)}, false,
		},
		"one that takes no part does not count": {
			vacant, []Member{member("east"), member("west", unread, outside)}, true,
		},
		"nor one without the namespace": {
			vacant, []Member{member("east"), member("west", bare, unmarked)}, true,
		},
		"nor one where it is going away": {
			vacant, []Member{member("east"), member("west", going, unmarked)}, true,
		},
		"nobody ever led, and there are no Leases": {
			election.Record{State: election.Vacant, Reason: reason.Moved}, []Member{member("east", unmarked)}, true,
		},
		"nobody leads for another reason: then nothing was taken": {
			election.Record{State: election.Vacant, Reason: reason.NoCandidate, Epoch: 20}, []Member{member("east")},
			false,
		},
		"a lost record": {election.Record{}, []Member{member("east")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &Snapshot{Members: test.members, State: election.State{Record: test.record}}
			if got := v.LeasesAreOurs(v.State.Record); got != test.want {
				t.Errorf("taken: %v, want %v", got, test.want)
			}
		})
	}
}
