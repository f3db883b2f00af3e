package publish

import (
	"testing"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
)

// Whoever may publish can edit a live Lease so that it promises more. The edit ends with its repair, and nobody else
// gets the namespace before readers had D to see that. Then its epoch is outbid.
func TestEditThatPromisesMore(t *testing.T) {
	play(t, `
a longer duration: repaired, counts like a promise
	leads; edit duration=600; shown; at 2; update east 20 renewTime 0s promise 17s; ok; wait firstRenewal-2;
	status InPlace PoisonedEpoch=20
a later renewTime: repaired, counts like a promise
	leads; edit renewed=3; shown; at 3; update east 20 renewTime 0s promise 18s; ok; wait firstRenewal-3;
	status InPlace PoisonedEpoch=20
a longer duration, while the term is replaced: repaired
	leads; assign hold east 20; edit duration=600; shown; at 2; update east 20 renewTime 0s promise 17s; ok; wait
a longer duration, what was sent has expired: replaced by one without a holder
	leads; assign hold east 20; edit duration=600; shown; at 15; update nobody 20 renewTime 15s promise 30s
a longer duration, sent by an earlier tenure: replaced by one without a holder
	lease east 20 at -2 duration=600; shown; assign hold east 20; update nobody 20 renewTime 0s promise 15s
a longer duration, no right to write: left alone
	leads; assign hold east 20; edit duration=600; shown; may not; at 2; wait
a longer duration, before any assignment: left alone
	lease east 20 at -2 duration=600; shown; wait
a longer duration, but expired: left alone
	leads; assign hold east 20; edit duration=600 renewed=-600; shown; at 2; wait
a shorter duration: repaired, poisons no epoch
	leads; edit duration=5; shown; at 2; update east 20 renewTime 0s; ok; wait firstRenewal-2; status InPlace
`)
}

// Two tenures that overlap must not undo each other's work: what is sealed and newer than the record is news for the
// record, whatever the Lease has to be.
func TestSealedNewerLeaseIsNeverOverwritten(t *testing.T) {
	for name, role := range map[string]assign.Role{"a leader's": assign.Lead, "a follower's": assign.Follow,
		"one that is revoked": assign.Revoke} {
		t.Run(name, func(t *testing.T) {
			run(t, map[string]func(*rig){
				"by a term that is live": func(r *rig) {
					r.leads()
					r.put(contentOf(renewedAt(1, term("", 21))), testKey)
					r.show()
					r.assign(role, term("east", 20), revoking(term("east", 20)))
					r.at(1).next("read").answered().next("wait").facts(SyncStatus{Newer: 21, Problem: reason.LeaseLost})
				},
				"unless its epoch is one that no hub can have given": func(r *rig) {
					absurd := lease.EpochFloor(wall(0)) + 1<<21
					r.leads()
					r.put(contentOf(renewedAt(1, term("", absurd))), testKey)
					r.show()
					r.assign(assign.Follow, term("west", 20))
					r.at(1).next("read").answered().next("remove")
				},
			})
		})
	}
}
