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

func lasting(seconds int32) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To(seconds) }
}

func ofEpoch(epoch int32) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = ptr.To(epoch) }
}

func annotated(key, value string) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) { l.Annotations[key] = value }
}

var otherKey = seal.Key("another key for tests of 32 byte")

// An edit extends a Lease if readers may act by it for longer than by what was sent.
func TestWhatAnEditExtends(t *testing.T) {
	const asItWas = "update east 20 renewTime 0s for 15s"
	run(t, map[string]func(*rig){
		"not one that leaves the deadline where it was": func(r *rig) {
			r.leads().edit(annotated(v1alpha1.ClusterUIDAnnotation, "another"))
			r.show()
			r.at(1).next(asItWas)
		},
		"not one of a Lease without a label, which no reader sees": func(r *rig) {
			r.leads().edit(lasting(3600), func(l *coordinationv1.Lease) { l.Labels = nil })
			r.syncer.observeGone()
			r.at(1).next("read").answered().next(asItWas)
		},
		"not one of a Lease that has run out": func(r *rig) {
			r.put(contentOf(renewedAt(-20, term("east", 20))), otherKey)
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered().next("wait").facts(SyncStatus{Lost: true})
		},
		"one of another epoch, whatever its deadline: nobody sent it": func(r *rig) {
			r.leads().edit(ofEpoch(19), lasting(10))
			r.show()
			r.at(1).next("update nobody 20 renewTime 1s for 15s promise 16s")
		},
		"one that outlasts the renewTime that was sent, which has run out": func(r *rig) {
			r.leads().edit(lasting(3600))
			r.show()
			r.at(16).next("update nobody 20 renewTime 16s for 15s promise 31s")
		},
		"on hold, too, it is put right": func(r *rig) {
			r.leads()
			r.assign(assign.Hold, term("east", 20))
			r.edit(lasting(3600))
			r.show()
			r.at(1).next("update east 20 renewTime 0s for 15s promise 16s")
		},
		"but on hold not without the right to write": func(r *rig) {
			r.leads()
			r.assign(assign.Hold, term("east", 20))
			r.edit(lasting(3600))
			r.show()
			r.may = false
			r.at(1).next("wait")
		},
	})
}

// Only a seal makes a higher epoch one that the record has to rise above.
func TestWhatIsNewerThanTheRecord(t *testing.T) {
	run(t, map[string]func(*rig){
		"not an edit": func(r *rig) {
			r.follows().edit(ofEpoch(27))
			r.show()
			r.next("remove").facts(SyncStatus{InPlace: true, PoisonedEpoch: 27})
		},
		"nor a sealed Lease of an epoch that no hub can have given": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("south", 2000000000))), testKey)
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("remove")
		},
	})
}

// What stands in the way is never overwritten; what was ours until somebody edited it is.
func TestWhoseALeaseIs(t *testing.T) {
	const repaired = "update west 20 renewTime 0s for 15s"
	run(t, map[string]func(*rig){
		"another cluster's, once it is sealed so, though it is the object that we made": func(r *rig) {
			r.follows()
			uid := r.there.UID
			r.put(contentOf(renewedAt(0, term("west", 20)), func(c *lease.Content) { c.Cluster = "west.fleet" }), testKey,
				func(l *coordinationv1.Lease) { l.UID = uid })
			r.show()
			r.next("wait").facts(SyncStatus{Problem: reason.WrongCluster})
		},
		"ours, if somebody put another cluster's name, and more, into the object that we made": func(r *rig) {
			r.follows().edit(annotated(v1alpha1.ClusterAnnotation, "west.fleet"), lasting(10))
			r.show()
			r.next(repaired)
		},
		"nobody's, if it names no cluster": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("west", 20))), otherKey, annotated(v1alpha1.ClusterAnnotation, ""))
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next(repaired)
		},
		"not this syncer's, if it is sealed for another cluster of that name": func(r *rig) {
			r.leads().at(14).next("update east 20 renewTime 14s for 15s promise 29s").failed(errTimeout, pauseSilent)
			r.at(29).next("read").answered()
			r.put(contentOf(renewedAt(0, term("west", 20)), func(c *lease.Content) { c.ClusterUID = "another" }), testKey)
			r.show()
			r.next("read").answered().next("wait").facts(SyncStatus{Lost: true, Failing: reason.Unreachable})
		},
		"what another hub's says is told of in words that name the hub": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("west", 20)), by("another")), otherKey)
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("wait")
			if want := "Lease ns/leasecast was written by the hub another: stop that hub, or delete the Lease if it is gone"; r.syncer.status.Message != want {
				r.t.Errorf("the message is %q, want %q", r.syncer.status.Message, want)
			}
		},
	})
}

// A watch may tell of what a request finds, or of something else.
func TestWhatAWatchLeavesOpen(t *testing.T) {
	shown := func(change func(*coordinationv1.Lease)) func(*rig) {
		return func(r *rig) {
			r.follows()
			obj := r.there.DeepCopy()
			change(obj)
			r.syncer.observe(obj)
			r.next("read")
		}
	}
	run(t, map[string]func(*rig){
		"another object of the same version and words is settled by a read": shown(func(l *coordinationv1.Lease) { l.UID = "another" }),
		"so are other labels under the version that is known":               shown(func(l *coordinationv1.Lease) { l.Labels["more"] = "of it" }),
		"so are other annotations":                                          shown(annotated("more", "of it")),
		"so is another object of the version that a read found": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.put(contentOf(renewedAt(0, term("west", 20))), testKey)
			found := r.next("read").there.DeepCopy()
			other := r.there.DeepCopy()
			other.UID = "another"
			r.syncer.observe(other)
			r.handed(found, nil).next("read")
		},
		"so is one that comes while none was found": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read")
			_, err := r.carry()
			r.put(contentOf(renewedAt(0, term("west", 20))), testKey)
			r.show()
			r.handed(nil, err).next("read").answered().next("wait").facts(SyncStatus{InPlace: true})
		},
	})
}

// What a watch shows, it will tell the end of: nothing needs to be read again.
func TestALeaseThatAWatchShowsIsWatched(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"as it is known": func(*rig) {},
		"or anew":        func(r *rig) { r.edit() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.follows()
			r.syncer.known.watched = false
			change(r)
			r.show()
			if s := r.syncer.next(r.now, r.may, r.heard); describe(s) != "wait" {
				t.Errorf("the syncer wants to %s", describe(s))
			}
		})
	}
}

func TestWhenABlindSyncerLooksAgain(t *testing.T) {
	run(t, map[string]func(*rig){
		"events in between do not put it off": func(r *rig) {
			r.blind = true
			r.put(contentOf(renewedAt(0, term("west", 7))), testKey)
			r.assign(assign.Follow, term("west", 7))
			r.next("read").answered().next("wait 2s").at(1).next("wait 1s").at(2).next("read")
		},
		"not at all once its Lease is in place and shown": func(r *rig) {
			r.leads().at(14).next("update east 20 renewTime 14s for 15s promise 29s").failed(errTimeout, pauseSilent)
			r.at(29).next("read").answered().next("update east 20 renewTime 0s for 15s").failed(errTimeout, pauseSilent)
			r.next("read").answered().next("wait 2s")
			r.assign(assign.Follow, term("east", 20))
			r.next("wait").at(31).next("wait")
		},
		"a lost Lease is tried again without a read by what comes before": func(r *rig) {
			r.leads().at(14).next("update east 20 renewTime 14s for 15s promise 29s").failed(errTimeout, pauseSilent)
			r.at(29).next("read").answered().next("update east 20 renewTime 0s for 15s").failed(errTimeout, pauseSilent)
			r.next("read").answered().next("wait 2s").at(30).next("update east 20 renewTime 0s for 15s")
		},
		"on hold, without the right to write, what stands in the way is looked for again soon": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("west", 20)), by("another")), otherKey)
			r.show()
			r.assign(assign.Hold, lease.Term{})
			r.next("wait")
			r.syncer.observeGone()
			r.may = false
			r.next("wait 100ms")
		},
		"on hold a Lease of ours is not looked for": func(r *rig) {
			r.follows()
			r.assign(assign.Hold, term("west", 20))
			deleted(r)
			r.next("wait")
		},
	})
}

func TestWhatAnswersSayOfTheStatus(t *testing.T) {
	run(t, map[string]func(*rig){
		"an update of a Lease that has gone is read at once: the namespace may be there": func(r *rig) {
			r.follows()
			edited(r)
			r.there = nil
			r.next("update west 20 renewTime 0s for 15s").answered().next("read").answered().next("create west 20 renewTime 0s for 15s")
		},
		"a leader's Lease that cannot be written is no fresh one that was refused": func(r *rig) {
			r.assign(assign.Lead, term("east", 20), first, minRenewTime(0))
			r.next("read").answered().next("create east 20 renewTime 0s for 15s promise 15s").failed(errForbidden, pauseRefused)
			r.facts(SyncStatus{MinRenewTime: wall(0), Failing: reason.Forbidden, Problem: reason.Unreachable})
		},
		"a Lease that was changed on its way is removed at once if nothing has asked for it since": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s for 15s")
			r.assign(assign.Absent, lease.Term{})
			r.altered(pauseSilent, func(l *coordinationv1.Lease) { l.Labels = nil }).next("remove")
		},
		"what was in place in another role of the term says nothing of this one": func(r *rig) {
			r.follows()
			r.assign(assign.Hold, term("west", 20))
			r.facts(SyncStatus{})
		},
		"the mark of a Lease that was found, and then in doubt, is not known": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").answered()
			r.syncer.observeGone()
			r.next("read").marks(false, false)
		},
		"a Lease of somebody else is no Lease without a mark": func(r *rig) {
			r.put(contentOf(renewedAt(0, term("west", 20))), testKey, func(l *coordinationv1.Lease) { l.Labels, l.Annotations = nil, nil })
			r.assign(assign.Follow, term("west", 20))
			r.blind = true
			r.next("read").answered().next("wait 2s").marks(false, false)
		},
		"the mark is news, though something else is asked for before it was told": func(r *rig) {
			r.follows().marks(true, false)
			r.assign(assign.Follow, term("south", 21))
			r.news(true)
			r.news(false)
		},
		"also where it was found before anything was asked for": func(r *rig) {
			r.put(contentOf(renewedAt(0, term("west", 20))), testKey)
			r.show()
			r.next("wait").marks(true, false)
			r.assign(assign.Follow, term("south", 21))
			r.news(true)
		},
		"so is that there is none, found so": func(r *rig) {
			r.put(contentOf(renewedAt(0, term("west", 20)), by("")), testKey)
			r.show()
			r.next("wait").marks(false, true)
			r.assign(assign.Follow, term("south", 21))
			r.news(true)
		},
		"so is that there is none": func(r *rig) {
			r.put(contentOf(renewedAt(0, term("east", 20)), by("")), testKey)
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered().next("update east 20 renewTime 0s for 15s promise 15s").marks(false, true)
			r.assign(assign.Hold, term("east", 20))
			r.news(true)
			r.news(false)
		},
	})
}

func TestTheSamePromiseTwiceChangesNothing(t *testing.T) {
	l, key := NewPromises(), keyOf("a")
	l.add(key, 20, at(0), 15*second, second, 0)
	l.add(key, 20, at(0), 15*second, second, 0)
	if p := l.Get(key); p.Until != wall(15) {
		t.Errorf("the promise is %+v", p)
	}
}
