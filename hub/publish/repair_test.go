package publish

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// A Lease that somebody edits or deletes is put right with what was sent last: nothing new is promised.
func TestRepairOfALeadersLease(t *testing.T) {
	longer := term("east", 20)
	longer.Duration = 60 * second
	run(t, map[string]func(*rig){
		"deleted": func(r *rig) {
			r.leads()
			deleted(r)
			r.at(1).next("read").answered().next("create east 20 renewTime 0s for 15s").answered().next("wait " + (firstRenewal(r) - second).String())
		},
		"edited": func(r *rig) {
			r.leads()
			edited(r)
			r.at(1).next("update east 20 renewTime 0s for 15s").answered()
		},
		"long after its last renewal": func(r *rig) {
			r.leads()
			deleted(r)
			r.at(14.999).next("read").answered().next("create east 20 renewTime 0s for 15s")
		},
		"not after its deadline: then it is lost": func(r *rig) {
			r.leads()
			deleted(r)
			r.at(15).next("read").answered().next("wait").facts(SyncStatus{Lost: true})
		},
		"also when a longer D is due: what was sent is put back, no more": func(r *rig) {
			r.leads()
			r.assign(assign.Lead, longer, first)
			edited(r)
			r.at(1).next("update east 20 renewTime 0s for 15s")
		},
		"also where the member has been silent, for it promises nothing": func(r *rig) {
			r.leads()
			edited(r)
			r.heard = false
			r.at(1).next("update east 20 renewTime 0s for 15s")
		},
		"not by a tenure that has sent nothing: it knows not what": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("east", 20))), testKey)
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered()
			edited(r)
			r.next("wait").facts(SyncStatus{Lost: true})
		},
		"nor with the renewTime of an earlier term": func(r *rig) {
			r.leads()
			r.assign(assign.Hold, term("east", 20))
			r.next("wait")
			r.assign(assign.Lead, term("east", 21))
			deleted(r)
			r.at(1).next("read").answered().next("wait").facts(SyncStatus{Lost: true})
		},
		"a Lease without its labels is seen by no reader, so it is renewed at once": func(r *rig) {
			r.leads()
			r.edit(func(l *coordinationv1.Lease) { delete(l.Labels, v1alpha1.ManagedLabel) })
			r.syncer.observeGone()
			r.at(1).next("read").answered().next("update east 20 renewTime 1s for 15s promise 16s").answered()
			if r.there.Labels[v1alpha1.ManagedLabel] != "true" {
				r.t.Errorf("the labels are %v", r.there.Labels)
			}
		},
		"a poisoned epoch is removed first, for no epoch may fall": func(r *rig) {
			r.leads()
			r.edit(func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = ptr.To[int32](2147483647) })
			r.show()
			r.at(1).next("remove").answered().next("create east 20 renewTime 0s for 15s").answered()
		},
	})
}

// Nobody acts by what a follower's Lease says of another leader. So it waits for the Leases of leaders, and nothing else does.
func TestWhichLeasesOfFollowersWait(t *testing.T) {
	next := func(r *rig) { r.assign(assign.Follow, term("south", 21)) }
	run(t, map[string]func(*rig){
		"one that names the leader before this one": func(r *rig) {
			r.follows()
			next(r)
			r.next("wait 500ms").at(0.4).next("wait 100ms").at(0.5).next("update south 21 renewTime 500ms for 15s")
		},
		"one that is to name a third leader before that, anew": func(r *rig) {
			r.follows()
			next(r)
			r.next("wait 500ms").at(0.4)
			r.assign(assign.Follow, term("west", 22))
			r.next("wait 500ms").at(0.9).next("update west 22 renewTime 900ms for 15s")
		},
		"none that lets this cluster lead": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("east", 19))), testKey)
			next(r)
			r.next("read").answered().next("update south 21 renewTime 0s for 15s")
		},
		"none that is missing": func(r *rig) {
			next(r)
			r.next("read").answered().next("create south 21 renewTime 0s for 15s")
		},
		"none that somebody edited": func(r *rig) {
			r.follows()
			edited(r)
			next(r)
			r.next("update south 21 renewTime 0s for 15s")
		},
		"none that shows whether the next leader can be written to": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("south", 21), func(a *assign.Assignment) { a.MinRenewTime = zero })
			r.next("update south 21 renewTime 0s for 15s")
		},
		"none of another hub": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("west", 20)), func(c *lease.Content) { c.Hub = "" }), testKey)
			next(r)
			r.next("read").answered().next("update south 21 renewTime 0s for 15s")
		},
	})
}

func TestRepairOfAFollowersLease(t *testing.T) {
	run(t, map[string]func(*rig){
		"deleted": func(r *rig) {
			r.follows()
			deleted(r)
			r.at(100).next("read").answered().next("create west 20 renewTime 1m40s for 15s").answered().next("wait").facts(SyncStatus{InPlace: true})
		},
		"edited": func(r *rig) {
			r.follows()
			edited(r)
			r.at(100).next("update west 20 renewTime 1m40s for 15s").answered().next("wait").facts(SyncStatus{InPlace: true})
		},
		"made to lead here by somebody who has no key": func(r *rig) {
			r.follows()
			r.edit(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("east.fleet") })
			r.show()
			r.next("update west 20 renewTime 0s for 15s")
		},
		"a sealed Lease of another term": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("east", 19))), testKey)
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("update west 20 renewTime 0s for 15s")
		},
		"of another holder": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("south", 20))), testKey)
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("update west 20 renewTime 0s for 15s")
		},
		"of another D": func(r *rig) {
			r.follows()
			longer := term("west", 20)
			longer.Duration = 60 * second
			r.assign(assign.Follow, longer)
			r.next("update west 20 renewTime 0s for 1m0s")
		},
		"ageing is no reason to write": func(r *rig) {
			r.follows().at(100000).next("wait").facts(SyncStatus{InPlace: true})
		},
		"without its labels": func(r *rig) {
			r.follows()
			r.edit(func(l *coordinationv1.Lease) { l.Labels = nil })
			r.syncer.observeGone()
			r.next("read").answered().next("update west 20 renewTime 0s for 15s").answered().next("wait").facts(SyncStatus{InPlace: true})
		},
		"a poisoned epoch is removed first": func(r *rig) {
			r.follows()
			r.edit(func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = ptr.To[int32](2147483647) })
			r.show()
			r.next("remove").answered().next("create west 20 renewTime 0s for 15s")
		},
		"a sealed one that is newer than the record is left for the record": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("south", 21))), testKey)
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("wait").facts(SyncStatus{Newer: 21, Problem: reason.LeaseLost})
			r.assign(assign.Follow, term("west", 22))
			r.next("wait 500ms").at(1).next("update west 22 renewTime 1s for 15s").answered().next("wait").facts(SyncStatus{InPlace: true})
		},
		"nothing to write where the API cannot store it": func(r *rig) {
			r.assign(assign.Follow, term("west", 1<<31))
			r.next("read").answered().next("wait").facts(SyncStatus{Problem: reason.Unwritable})
		},
	})
}

// What is never overwritten, and what only looks like it.
func TestWhatStandsInTheWay(t *testing.T) {
	ours := contentOf(renewedAt(-2, term("west", 20)))
	tests := map[string]struct {
		put     func(r *rig)
		problem reason.Reason
	}{
		"a Lease of somebody else": {problem: reason.ForeignLease, put: func(r *rig) {
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
		for role, want := range map[assign.Role]lease.Term{assign.Lead: term("east", 21), assign.Follow: term("west", 21), assign.Absent: {}} {
			t.Run(name+", "+map[assign.Role]string{assign.Lead: "leader", assign.Follow: "follower", assign.Absent: "leaver"}[role], func(t *testing.T) {
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
				r.next("read").answered().next("create west 21 renewTime 1m40s for 15s")
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
		return "create east 21 renewTime 2s for 15s promise 17s"
	}
	return "create west 21 renewTime 2s for 15s"
}

func TestEditsOfOurMarks(t *testing.T) {
	annotate := func(key, value string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Annotations[key] = value }
	}
	strip := func(l *coordinationv1.Lease) { l.Labels, l.Annotations = nil, nil }
	const repaired = "update west 20 renewTime 0s for 15s"
	run(t, map[string]func(*rig){
		"another hub's name alone does not make it another hub's": func(r *rig) {
			r.follows().edit(annotate(v1alpha1.HubAnnotation, "another"))
			r.show()
			r.next(repaired)
		},
		"nor to a hub that has just started": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("west", 20))), testKey, annotate(v1alpha1.HubAnnotation, "another"))
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next(repaired)
		},
		"a seal of another hub does: it took the Lease by compare-and-swap": func(r *rig) {
			r.follows()
			uid := r.there.UID
			r.put(contentOf(renewedAt(-2, term("west", 20)), func(c *lease.Content) { c.Hub = "another" }), seal.Key("another key"),
				func(l *coordinationv1.Lease) { l.UID = uid })
			r.show()
			r.next("wait").facts(SyncStatus{Problem: reason.OtherHub})
		},
		"another cluster's name alone does not make it another cluster's": func(r *rig) {
			r.follows().edit(annotate(v1alpha1.ClusterAnnotation, "west.fleet"))
			r.show()
			r.next(repaired)
		},
		"nor to a hub that has just started: cluster": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("west", 20))), testKey, annotate(v1alpha1.ClusterAnnotation, "west.fleet"))
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next(repaired)
		},
		"a Lease that this syncer has written is known by its UID, whatever it has lost": func(r *rig) {
			r.follows().edit(strip)
			r.syncer.observeGone()
			r.next("read").answered().next(repaired)
		},
		"so is one that was once seen sealed": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("west", 20))), testKey)
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("wait")
			r.edit(strip)
			r.syncer.observeGone()
			r.next("read").answered().next(repaired)
		},
		"another Lease of that name is not": func(r *rig) {
			r.follows()
			r.put(contentOf(renewedAt(-2, term("west", 20))), testKey, strip)
			r.syncer.observeGone()
			r.blind = true
			r.next("read").answered().next("wait 2s").facts(SyncStatus{Problem: reason.ForeignLease})
		},
		"another cluster UID is put right": func(r *rig) {
			r.follows().edit(annotate(v1alpha1.ClusterUIDAnnotation, "another"))
			r.show()
			r.next(repaired)
		},
	})
}

// Readers know no seal. An edit that they may have believed is told of, for the next term has to be above it.
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
		"a higher epoch, in the leader":                  {begin: led, edits: []edit{higher}, want: 27},
		"in a follower":                                  {begin: followed, edits: []edit{higher}, want: 27},
		"a longer D, in the leader":                      {begin: led, edits: []edit{longer}, want: 20},
		"in a follower it lets nobody act":               {begin: followed, edits: []edit{longer}},
		"an absurd epoch is believed by nobody":          {begin: led, edits: []edit{absurd}},
		"a Lease without its labels is seen by nobody":   {begin: led, edits: []edit{higher, unlabelled}},
		"a lower epoch changes nothing":                  {begin: led, edits: []edit{func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 19 }}},
		"the highest is remembered when it is put right": {begin: led, edits: []edit{higher, func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 25 }}, want: 27},
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
	t.Run("a sealed Lease is none", func(t *testing.T) {
		r := newRig(t)
		r.put(contentOf(renewedAt(-2, term("south", 27))), testKey)
		r.assign(assign.Follow, term("west", 20))
		r.next("read").answered().next("wait").facts(SyncStatus{Newer: 27, Problem: reason.LeaseLost})
	})
}
