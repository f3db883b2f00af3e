package publish

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// An edited or deleted Lease is repaired with what was sent last. This promises nothing new.
func TestRepairOfALeadersLease(t *testing.T) {
	longer := term("east", 20)
	longer.Duration = 60 * second
	play(t, `
not labelled, so that no reader sees it: renewed at once
	leads; edit unlabelled; gone; at 1; read; ok; update east 20 renewTime 1s promise 16s; ok; shown;
	wait firstRenewal-1; status InPlace
edited, a longer D is assigned: what was sent
	leads; assign lead east 20 first for=60; edited; at 1; update east 20 renewTime 0s
deleted: created as it was sent
	leads; deleted; at 1; read; ok; create east 20 renewTime 0s; ok; wait firstRenewal-1
edited: updated to what was sent
	leads; edited; at 1; update east 20 renewTime 0s; ok
deleted 1 ms before its deadline: created
	leads; deleted; at 14.999; read; ok; create east 20 renewTime 0s
deleted at its deadline: lost
	leads; deleted; at 15; read; ok; wait; status Lost
edited, the member has not just answered: updated
	leads; edited; silent; at 1; update east 20 renewTime 0s
edited, this tenure has sent nothing: lost
	lease east 20 at -2; assign lead east 20; read; ok; edited; wait; status Lost
deleted in the next term: lost
	leads; assign hold east 20; wait; assign lead east 21; deleted; at 1; read; ok; wait; status Lost
edited to an absurd epoch: removed first, because no epoch may fall
	leads; edit epoch=2147483647; shown; at 1; remove; ok; create east 20 renewTime 0s; ok
`)
}

// Nobody acts by what a follower's Lease says of another leader. So it waits for the Leases of leaders, and nothing
// else does.
func TestFollowersLeaseWaitsForLeaders(t *testing.T) {
	play(t, `
a Lease without a mark: no
	lease west 20 at -2 by=; assign follow south 21; read; ok; update south 21 renewTime 0s
an edited Lease: no
	follows; edited; assign follow south 21; update south 21 renewTime 0s
no Lease: no
	assign follow south 21; read; ok; create south 21 renewTime 0s
a Lease that lets this cluster lead: no
	lease east 19 at -2; assign follow south 21; read; ok; update south 21 renewTime 0s
a third leader is assigned in the meantime: again 500 ms
	follows; assign follow south 21; wait 500ms; at 0.4; assign follow west 22; wait 500ms; at 0.9;
	update west 22 renewTime 900ms
a Lease that names the earlier leader: 500 ms
	follows; assign follow south 21; wait 500ms; at 0.4; wait 100ms; at 0.5; update south 21 renewTime 500ms
a MinRenewTime is assigned: no
	follows; assign follow south 21 fresh=0; update south 21 renewTime 0s
`)
}

func TestRepairOfAFollowersLease(t *testing.T) {
	play(t, `
of another D: updated
	follows; assign follow west 20 for=60; update west 20 renewTime 0s for 1m0s
deleted: created
	follows; deleted; at 100; read; ok; create west 20 renewTime 1m40s; ok; wait; status InPlace
edited: updated
	follows; edited; at 100; update west 20 renewTime 1m40s; ok; wait; status InPlace
edited to lead here: updated
	follows; edit holder=east.fleet; shown; update west 20 renewTime 0s
sealed, of another term: updated
	lease east 19 at -2; assign follow west 20; read; ok; update west 20 renewTime 0s
sealed, of another holder: updated
	lease south 20 at -2; assign follow west 20; read; ok; update west 20 renewTime 0s
old: kept
	follows; at 100000; wait; status InPlace
not labelled: updated
	follows; edit unlabelled; gone; read; ok; update west 20 renewTime 0s; ok; wait; status InPlace
edited to an absurd epoch: removed first
	follows; edit epoch=2147483647; shown; remove; ok; create west 20 renewTime 0s
sealed, newer than the record: left until the record is above it
	lease south 21 at -2; assign follow west 20; read; ok; wait; status Newer=21 Problem=LeaseLost;
	assign follow west 22; wait 500ms; at 1; update west 22 renewTime 1s; ok; wait; status InPlace
an epoch that the API cannot store: not written
	assign follow west 2147483648; read; ok; wait; status Problem=Unwritable
`)
}

// Leases that are never overwritten.
func TestLeaseThatIsNeverOverwritten(t *testing.T) {
	ours := contentOf(renewedAt(-2, term("west", 20)))
	tests := map[string]struct {
		put     func(r *rig)
		problem reason.Reason
	}{
		"another client's Lease": {problem: reason.ForeignLease, put: func(r *rig) {
			r.put(ours, testKey, func(l *coordinationv1.Lease) { l.Labels, l.Annotations = nil, nil })
		}},
		"a Lease of another hub with another key": {problem: reason.OtherHub, put: func(r *rig) {
			r.put(contentOf(ours.Term, func(c *lease.Content) { c.Hub = "another" }), seal.Key("another key"))
		}},
		"a Lease of another hub with the same key, as after a move": {problem: reason.OtherHub, put: func(r *rig) {
			r.put(contentOf(ours.Term, func(c *lease.Content) { c.Hub = "another" }), testKey)
		}},
		"a Lease that belongs to another member": {problem: reason.WrongCluster, put: func(r *rig) {
			r.put(contentOf(ours.Term, func(c *lease.Content) { c.Cluster = "west.fleet" }), testKey)
		}},
		"also one whose seal cannot be checked any more": {problem: reason.WrongCluster, put: func(r *rig) {
			r.put(contentOf(ours.Term, func(c *lease.Content) { c.Cluster = "west.fleet" }), seal.Key("a lost key"))
		}},
	}
	for name, test := range tests {
		for role, want := range map[assign.Role]lease.Term{assign.Lead: term("east", 21), assign.Follow: term("west", 21),
			assign.Absent: {}} {
			t.Run(name+", "+map[assign.Role]string{assign.Lead: "leader", assign.Follow: "follower",
				assign.Absent: "leaver"}[role], func(t *testing.T) {
				r := newRig(t)
				r.blind = true
				test.put(r)
				r.assign(role, want, first)
				r.next("read").answered().next("wait 2s").facts(SyncStatus{Problem: test.problem})
				r.at(1).next("wait 1s").at(2).next("read").facts(SyncStatus{Problem: test.problem})
				// No watch has shown it, so none shows its deletion.
				r.there = nil
				r.answered()
				if role != assign.Absent {
					r.next(describeWrite(role))
				} else {
					r.next("wait").facts(SyncStatus{InPlace: true})
				}
			})
		}
		if test.problem != reason.ForeignLease { // a Lease without the hub's label is never shown
			t.Run(name+", where the watch shows it", func(t *testing.T) {
				r := newRig(t)
				test.put(r)
				r.assign(assign.Follow, term("west", 21))
				r.next("read").answered().next("wait").at(100).next("wait").facts(SyncStatus{Problem: test.problem})
				r.there = nil
				r.syncer.observeGone()
				r.next("read").answered().next("create west 21 renewTime 1m40s")
			})
		}
		t.Run(name+", on hold", func(t *testing.T) {
			r := newRig(t)
			test.put(r)
			r.show()
			r.assign(assign.Hold, lease.Term{})
			r.next("wait").facts(SyncStatus{Problem: test.problem})
		})
	}
}

func describeWrite(role assign.Role) string {
	if role == assign.Lead {
		return "create east 21 renewTime 2s promise 17s"
	}
	return "create west 21 renewTime 2s"
}

func TestEditedMarks(t *testing.T) {
	play(t, `
edited to name another hub: repaired
	follows; edit hub=another; shown; update west 20 renewTime 0s
edited to name another hub, read at the start: repaired
	lease west 20 at -2 hub=another; assign follow west 20; read; ok; update west 20 renewTime 0s
sealed by another hub: left alone
	follows; lease west 20 at -2 by=another unsealed sameObject; shown; wait; status Problem=OtherHub
edited to name another cluster: repaired
	follows; edit cluster=west.fleet; shown; update west 20 renewTime 0s
edited to name another cluster, read at the start: repaired
	lease west 20 at -2 cluster=west.fleet; assign follow west 20; read; ok; update west 20 renewTime 0s
an own object without labels and annotations: repaired
	follows; edit stripped; gone; read; ok; update west 20 renewTime 0s
an object once seen sealed, without labels and annotations: repaired
	lease west 20 at -2; assign follow west 20; read; ok; wait; edit stripped; gone; read; ok;
	update west 20 renewTime 0s
another object without labels and annotations: left alone
	follows; lease west 20 at -2 stripped; gone; unwatched; read; ok; wait 2s; status Problem=ForeignLease
edited to name another cluster UID: repaired
	follows; edit uid=another; shown; update west 20 renewTime 0s
`)
}

// Readers check no seals. The next term has to be above an edit that they may have accepted.
func TestPoisonedEpoch(t *testing.T) {
	type edit = func(*coordinationv1.Lease)
	higher := func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 27 }
	longer := func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = 3600 }
	absurd := func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 2147483647 }
	unlabelled := func(l *coordinationv1.Lease) { l.Labels = nil }
	led := func(r *rig) { r.leads() }
	followed := func(r *rig) { r.follows() }
	for name, test := range map[string]struct {
		begin func(*rig)
		edits []edit
		want  int64
	}{
		"a higher epoch, in the leader":                {begin: led, edits: []edit{higher}, want: 27},
		"in a follower":                                {begin: followed, edits: []edit{higher}, want: 27},
		"a longer D, in the leader":                    {begin: led, edits: []edit{longer}, want: 20},
		"in a follower it lets nobody act":             {begin: followed, edits: []edit{longer}},
		"an absurd epoch is believed by nobody":        {begin: led, edits: []edit{absurd}},
		"a Lease without its labels is seen by nobody": {begin: led, edits: []edit{higher, unlabelled}},
		"a lower epoch changes nothing": {begin: led,
			edits: []edit{func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 19 }}},
		"the highest of several edits": {
			begin: led, edits: []edit{higher, func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 25 }}, want: 27,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			test.begin(r)
			for i, e := range test.edits {
				r.edit(e)
				if i == len(test.edits)-1 || test.want != 0 {
					r.show()
					r.syncer.next(r.now, r.may, r.heard)
				}
			}
			if got := r.syncer.status.PoisonedEpoch; got != test.want {
				t.Errorf("burnt: %d, want %d", got, test.want)
			}
		})
	}
	t.Run("a sealed Lease is no edit", func(t *testing.T) {
		r := newRig(t)
		r.put(contentOf(renewedAt(-2, term("south", 27))), testKey)
		r.assign(assign.Follow, term("west", 20))
		r.next("read").answered().next("wait").facts(SyncStatus{Newer: 27, Problem: reason.LeaseLost})
	})
}
