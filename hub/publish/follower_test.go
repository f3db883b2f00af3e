package publish

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// No reader acts by a follower's Lease that names another leader. So it is written after the Leases of leaders.
func TestFollowersLeaseWaitsForLeaders(t *testing.T) {
	play(t, `
a Lease that names the earlier leader: 500 ms
	follows; assign follow south 21; wait 500ms; at 0.4; wait 100ms; at 0.5; update south 21 renewTime 500ms
a MinRenewTime is assigned: no wait
	follows; assign follow south 21 fresh=0; update south 21 renewTime 0s
`)
}

func TestRepairOfAFollowersLease(t *testing.T) {
	play(t, `
of another D: updated
	follows; assign follow west 20 for=60; update west 20 renewTime 0s for 1m0s
edited: updated
	follows; edited; at 100; update west 20 renewTime 1m40s; ok; wait; status InPlace
an epoch that the API cannot store: not written
	assign follow west 2147483648; read; ok; wait; status Problem=Unwritable
the policy's ε changes: updated
	follows; ε 1; update west 20 renewTime 0s; ok; wait; allows 1; ε 0.25; update west 20 renewTime 0s; ok; allows 0.25
no policy has an ε: kept
	follows; ε 1; update west 20 renewTime 0s; ok; ε 0; wait; allows 1
`)
}

// If a Lease is deleted before a watch has shown it, no event comes.
func TestFollowersLeaseIsReadAgainUntilAWatchShowsIt(t *testing.T) {
	play(t, `
created, and shown as another client has written it since: not read
	unwatched; assign follow west 7; read; ok; create west 7 renewTime 0s; ok; wait 2s; touched; shown; watched; at 2; wait
`)
}

// Rule 10: a successor's Lease is written again, to show that it can be.
func TestLeaseWithAMinRenewTime(t *testing.T) {
	const asked = "\tfollows; assign follow west 20 fresh=10; at 10; update west 20 renewTime 10s;"
	play(t, `
of that instant, rounded to microseconds: in place
	assign follow west 20 fresh=0.000000999; read; ok; create west 20 renewTime 0s; ok; wait;
	status InPlace MinRenewTime=0.000000999
written, but not answered: refused until it is read
`+asked+` unanswered but done; read; ok; wait;
	status InPlace MinRenewTime=10
not read before: refused until it is written
	follows; in doubt; assign follow west 20 fresh=10; at 10; read; unanswered;
	status MinRenewTime=10 Refused Failing=Unreachable Problem=Unreachable; assign follow west 20 fresh=11; at 11; read;
	ok; update west 20 renewTime 11s; ok; wait; status InPlace MinRenewTime=11
forbidden: refused, also if no MinRenewTime is assigned then
`+asked+` forbidden; status MinRenewTime=10 Refused Failing=Forbidden Problem=Forbidden; assign follow west 20;
	status MinRenewTime=10 Refused Failing=Forbidden Problem=Forbidden; at 11; update west 20 renewTime 11s; ok; wait;
	status InPlace MinRenewTime=10
not written, then the next term is assigned: cleared
	follows; assign follow west 20 fresh=10; assign follow south 21; status none
a write for an earlier MinRenewTime is unanswered: not refused
`+asked+` assign follow west 20 fresh=20; unanswered; status MinRenewTime=20 Failing=Unreachable Problem=Unreachable
a leader's Lease is forbidden: not refused
	assign lead east 20 first fresh=0; read; ok; create east 20 renewTime 0s promise 15s; forbidden;
	status MinRenewTime=0 Failing=Forbidden Problem=Unreachable
in the future by half a second: written then
	follows; assign follow west 20 fresh=0.5; wait 500ms; status MinRenewTime=0.5; at 0.5;
	update west 20 renewTime 500ms; ok; wait; status InPlace MinRenewTime=0.5
`)
}

// A new replica reads all Leases of a member, some of them after its watch has shown them. No event follows.
func TestALeaseThatAWatchHasShownIsNotReadAgain(t *testing.T) {
	obj := leaseOf("ns", []string{"west", "7", "at", "0"})
	later := obj.DeepCopy()
	later.ResourceVersion += "0"
	for name, test := range map[string]struct {
		watch, read *coordinationv1.Lease
		gone, want  bool
	}{
		"the state that is read":                          {watch: obj, read: obj, want: true},
		"an earlier state":                                {watch: obj, read: later},
		"its end, though it is there":                     {watch: obj, read: obj, gone: true},
		"another object of that version, after a restore": {watch: obj, read: readdressed(obj)},
	} {
		s := newSyncerTest(t)
		if test.watch != nil {
			s.syncer.observe(test.watch)
		}
		if test.gone {
			s.syncer.observe(nil)
		}
		s.syncer.setKnown(test.read)
		if got := s.syncer.known.watched; got != test.want {
			t.Errorf("the watch has shown %s: %v, want %v", name, got, test.want)
		}
	}
}

// readdressed is another object of the same name and version.
func readdressed(obj *coordinationv1.Lease) *coordinationv1.Lease {
	other := obj.DeepCopy()
	other.UID = "another"
	return other
}
