package publish

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

func run(t *testing.T, tests map[string]func(*rig)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.t = t
			test(r)
		})
	}
}

func deleted(r *rig) {
	r.there = nil
	r.syncer.observeGone()
}

func edited(r *rig) {
	r.edit(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("somebody.else") })
	r.show()
}

// firstRenewal is when the first renewal of a term is due that began at zero.
func firstRenewal(r *rig) time.Duration {
	return r.syncer.due(contentOf(renewedAt(0, term("east", 20)))).Sub(zero)
}

// Rule 3: renew only what stands.
func TestRenewal(t *testing.T) {
	run(t, map[string]func(*rig){
		"the first Lease of a term is written by the tenure that persisted the grant": func(r *rig) {
			r.assign(assign.Lead, term("east", 20), first)
			r.next("read").answered().next("create east 20 renewTime 0s for 15s promise 15s").answered()
			r.facts(SyncStatus{}).next("wait " + firstRenewal(r).String()).facts(SyncStatus{InPlace: true})
		},
		"also in the place of an older one": func(r *rig) {
			r.put(contentOf(renewedAt(-100, term("west", 19))), testKey)
			r.assign(assign.Lead, term("east", 20), first)
			r.next("read").answered().next("update east 20 renewTime 0s for 15s promise 15s").answered()
		},
		"by no other: without a Lease that stands there is nothing to renew": func(r *rig) {
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered().next("wait").facts(SyncStatus{Lost: true})
		},
		"a tenure that takes over renews at once what stands": func(r *rig) {
			r.put(contentOf(renewedAt(-6, term("east", 20)), func(c *lease.Content) { c.AcquireTime = wall(-100) }), testKey)
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered().next("update east 20 renewTime 0s for 15s promise 15s").answered()
			r.next("wait " + firstRenewal(r).String())
		},
		"and leaves what is not due yet": func(r *rig) {
			r.put(contentOf(renewedAt(0, term("east", 20)), func(c *lease.Content) { c.AcquireTime = wall(-100) }), testKey)
			r.assign(assign.Lead, term("east", 20))
			r.at(2).next("read").answered().next("wait 3s").facts(SyncStatus{InPlace: true})
		},
		"one that was renewed late is renewed again when it would have been": func(r *rig) {
			r.leads().at(7).next("update east 20 renewTime 7s for 15s promise 22s").answered().next("wait 3s")
		},
		"r after its renewTime a Lease is renewed": func(r *rig) {
			r.leads().at(5).next("update east 20 renewTime 5s for 15s promise 20s").answered()
			r.next("wait 5s").at(9.999).next("wait 1ms").at(10).next("update east 20 renewTime 10s for 15s promise 25s")
		},
		"the last instant to renew is before the deadline": func(r *rig) {
			r.leads().at(14.999).next("update east 20 renewTime 14.999s for 15s promise 29.999s")
		},
		"an expired Lease is lost, even to the tenure that granted it": func(r *rig) {
			r.leads().at(15).next("wait").facts(SyncStatus{Lost: true})
		},
		"or that took it over": func(r *rig) {
			r.put(contentOf(renewedAt(-15, term("east", 20))), testKey)
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered().next("wait").facts(SyncStatus{Lost: true})
		},
		"a Lease that is not sealed does not stand": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("east", 20))), seal.Key("another key"))
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered().next("update nobody 20 renewTime 0s for 15s promise 15s").answered()
			r.next("wait").facts(SyncStatus{Lost: true, PoisonedEpoch: 20})
		},
		"a Lease of another epoch does not": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("east", 19))), testKey)
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered().next("wait").facts(SyncStatus{Lost: true})
		},
		"a Lease of another holder does not": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("west", 20))), testKey)
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered().next("wait").facts(SyncStatus{Lost: true})
		},
		"a longer D goes with the next renewal": func(r *rig) {
			r.leads()
			longer := term("east", 20)
			longer.Duration = 60 * second
			r.assign(assign.Lead, longer, first)
			r.at(5).next("update east 20 renewTime 5s for 1m0s promise 1m5s")
		},
		"a clock that stands back does not stop renewals for longer than r": func(r *rig) {
			r.leads()
			r.now.Wall = wall(-1000)
			r.next("wait 5s")
		},
	})
}

// Closed syncers draw no renewTimes, and neither does a hub that has lost the right to.
func TestNothingIsPromised(t *testing.T) {
	run(t, map[string]func(*rig){
		"on hold": func(r *rig) {
			r.leads()
			r.assign(assign.Hold, term("east", 20))
			r.at(5).next("wait").facts(SyncStatus{})
		},
		"on hold not even what was edited is put right": func(r *rig) {
			r.leads()
			r.assign(assign.Hold, term("east", 20))
			edited(r)
			r.at(5).next("wait")
		},
		"and nothing is read": func(r *rig) {
			r.assign(assign.Hold, term("east", 20))
			r.next("wait")
		},
		"after a hold the term goes on, if its Lease still stands": func(r *rig) {
			r.leads()
			r.assign(assign.Hold, term("east", 20))
			r.at(5).next("wait")
			r.assign(assign.Lead, term("east", 20), first)
			r.at(6).next("update east 20 renewTime 6s for 15s promise 21s")
		},
		"and not otherwise, although this tenure granted it": func(r *rig) {
			r.leads()
			r.assign(assign.Hold, term("east", 20))
			r.at(15).next("wait")
			r.assign(assign.Lead, term("east", 20), first)
			r.next("wait").facts(SyncStatus{Lost: true})
		},
		"without the right to write nothing is sent, and the syncer looks again soon": func(r *rig) {
			r.leads()
			r.may = false
			r.at(5).next("wait 100ms")
			r.may = true
			r.at(5.1).next("update east 20 renewTime 5.1s for 15s promise 20.1s")
		},
		"not even a follower's Lease": func(r *rig) {
			r.follows()
			edited(r)
			r.may = false
			r.next("wait 100ms")
		},
		"nor a read": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.may = false
			r.next("wait 100ms")
		},
		"a member that has not just answered is read first": func(r *rig) {
			r.leads()
			r.heard = false
			r.at(5).next("read").unanswered(false).facts(SyncStatus{Problem: reason.Unreachable})
			r.at(8).next("read").answered()
			r.heard = true
			r.next("update east 20 renewTime 8s for 15s promise 23s")
		},
		"a first Lease, too": func(r *rig) {
			r.heard = false
			r.assign(assign.Lead, term("east", 20), first)
			r.next("read").answered().next("read")
		},
	})
}

// An assignment that comes from a record read too early is ignored.
func TestAssignments(t *testing.T) {
	run(t, map[string]func(*rig){
		"of an older epoch changes nothing": func(r *rig) {
			r.leads()
			r.assign(assign.Follow, term("west", 19))
			r.at(5).next("update east 20 renewTime 5s for 15s promise 20s")
		},
		"nor does a leader's": func(r *rig) {
			r.follows()
			r.assign(assign.Lead, term("east", 19), first)
			r.next("wait").facts(SyncStatus{InPlace: true})
		},
		"of the same epoch counts": func(r *rig) {
			r.leads()
			r.assign(assign.Hold, term("east", 20))
			r.at(5).next("wait")
		},
		"absent counts in any": func(r *rig) {
			r.leads()
			r.assign(assign.Absent, lease.Term{})
			r.next("remove").answered().next("wait").facts(SyncStatus{InPlace: true})
		},
		"and after it any counts": func(r *rig) {
			r.leads()
			r.assign(assign.Absent, lease.Term{})
			r.next("remove").answered()
			r.assign(assign.Follow, term("west", 3))
			r.next("create west 3 renewTime 0s for 15s")
		},
		"a term that ends here is overwritten by the next one": func(r *rig) {
			r.leads()
			r.assign(assign.Follow, term("west", 21))
			r.at(31).next("update west 21 renewTime 31s for 15s").answered().next("wait").facts(SyncStatus{InPlace: true})
		},
		"what is no longer asked for says nothing of what is": func(r *rig) {
			r.follows()
			r.assign(assign.Lead, term("east", 21), first)
			r.facts(SyncStatus{})
		},
		"an answer to the assignment before does not settle the next": func(r *rig) {
			r.leads().at(5).next("update east 20 renewTime 5s for 15s promise 20s")
			r.assign(assign.Follow, term("west", 21))
			r.answered().next("update west 21 renewTime 5s for 15s")
		},
	})
}
