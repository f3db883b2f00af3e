package publish

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
)

// Whoever may publish can edit a live Lease so that it promises more. The edit ends with its repair, and nobody else
// gets the namespace before readers had D to see that. Then its epoch is outbid.
func TestAnEditThatPromisesMore(t *testing.T) {
	longer := func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = 600 }
	fresher := func(l *coordinationv1.Lease) { l.Spec.RenewTime = &metav1.MicroTime{Time: wall(3)} }
	const burnt = 20
	run(t, map[string]func(*rig){
		"by its duration": func(r *rig) {
			r.leads().edit(longer)
			r.show()
			r.at(2).next("update east 20 renewTime 0s for 15s promise 17s").answered()
			r.next("wait " + (firstRenewal(r) - 2*second).String()).facts(SyncStatus{InPlace: true, PoisonedEpoch: burnt})
		},
		"by its renewTime": func(r *rig) {
			r.leads().edit(fresher)
			r.show()
			r.at(3).next("update east 20 renewTime 0s for 15s promise 18s").answered()
			r.next("wait " + (firstRenewal(r) - 3*second).String()).facts(SyncStatus{InPlace: true, PoisonedEpoch: burnt})
		},
		"is put right also while its term is being replaced": func(r *rig) {
			r.leads()
			r.assign(assign.Hold, term("east", 20))
			r.edit(longer)
			r.show()
			r.at(2).next("update east 20 renewTime 0s for 15s promise 17s").answered()
			r.next("wait")
		},
		"after the deadline of what was sent gives way to nobody": func(r *rig) {
			r.leads()
			r.assign(assign.Hold, term("east", 20))
			r.edit(longer)
			r.show()
			r.at(15).next("update nobody 20 renewTime 15s for 15s promise 30s")
		},
		"of a term that an earlier tenure sent gives way to nobody": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("east", 20))), testKey, longer)
			r.show()
			r.assign(assign.Hold, term("east", 20))
			r.next("update nobody 20 renewTime 0s for 15s promise 15s")
		},
		"is left alone by a replica without the right to write": func(r *rig) {
			r.leads()
			r.assign(assign.Hold, term("east", 20))
			r.edit(longer)
			r.show()
			r.may = false
			r.at(2).next("wait")
		},
		"is left alone until something is decided": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("east", 20))), testKey, longer)
			r.show()
			r.next("wait")
		},
		"and has run out promises nothing": func(r *rig) {
			r.leads()
			r.assign(assign.Hold, term("east", 20))
			r.edit(longer, func(l *coordinationv1.Lease) { l.Spec.RenewTime = &metav1.MicroTime{Time: wall(-600)} })
			r.show()
			r.at(2).next("wait")
		},
		"that promises less is no reason for a new term": func(r *rig) {
			r.leads().edit(func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = 5 })
			r.show()
			r.at(2).next("update east 20 renewTime 0s for 15s").answered()
			r.next("wait " + (firstRenewal(r) - 2*second).String()).facts(SyncStatus{InPlace: true})
		},
	})
}

// Two tenures that overlap must not undo each other's work: what is sealed and newer than the record is news for the
// record, whatever the Lease has to be.
func TestASealedNewerLeaseIsNeverOverwritten(t *testing.T) {
	for name, role := range map[string]assign.Role{"a leader's": assign.Lead, "a follower's": assign.Follow, "one that is revoked": assign.Revoke} {
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
