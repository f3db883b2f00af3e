package publish

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
)

// A tenure whose clock was ahead leaves renewTimes in the future behind.
func TestARenewTimeInTheFuture(t *testing.T) {
	const renewed = "update east 20 renewTime 15s for 15s promise 30s"
	ahead := func(r *rig, seconds float64) {
		r.put(contentOf(renewedAt(seconds, term("east", 20)), func(c *lease.Content) { c.AcquireTime = wall(-100) }), testKey)
		r.assign(assign.Lead, term("east", 20))
		r.next("read").answered().next("wait 5s").facts(SyncStatus{InPlace: true})
	}
	run(t, map[string]func(*rig){
		"are renewed by one of now once nobody can hold on to what they have promised": func(r *rig) {
			ahead(r, 3600)
			r.at(14.999).next("wait 5s").at(15).next(renewed).answered().next("wait 5s").facts(SyncStatus{InPlace: true})
		},
		"which is counted from when they were first found to be of the future": func(r *rig) {
			ahead(r, 2) // this much ahead is what renewTimes are that are put at instants r apart
			r.now.Wall = wall(-3600)
			r.next("wait 5s")
			r.now.Boot = at(14.999).Boot
			r.next("wait 5s")
			r.now.Boot = at(15).Boot
			r.next("update east 20 renewTime -1h0m0s for 15s promise -59m45s")
		},
		"not if the clock was set back for a moment only": func(r *rig) {
			ahead(r, 3600)
			r.at(14)
			r.now.Wall = wall(3600)
			r.next("wait 5s")
			r.at(15).next("wait 5s").at(29).next("wait 5s")
		},
		"a later one is counted anew": func(r *rig) {
			ahead(r, 3600)
			r.put(contentOf(renewedAt(3605, term("east", 20)), func(c *lease.Content) { c.AcquireTime = wall(-100) }), testKey,
				func(l *coordinationv1.Lease) { l.UID = r.syncer.known.lease.UID })
			r.show()
			r.at(14).next("wait 5s").at(15).next("wait 5s").at(29).next("update east 20 renewTime 29s for 15s promise 44s")
		},
		"ahead by no more than ε they are as good as any": func(r *rig) {
			ahead(r, 0.9)
			r.syncer.timings.Skew = second
			r.now.Boot += time.Hour
			r.next("wait 5s").next("wait 5s")
		},
	})
}

// No Lease of now is as fresh as one that is asked for from later on.
func TestALeaseWithAMinRenewTimeInTheFutureWaits(t *testing.T) {
	run(t, map[string]func(*rig){
		"until then": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(0.5))
			r.next("wait 500ms").facts(SyncStatus{MinRenewTime: wall(0.5)})
			r.at(0.5).next("update west 20 renewTime 500ms for 15s").answered().next("wait").facts(SyncStatus{InPlace: true, MinRenewTime: wall(0.5)})
		},
		"but looks again soon: either clock may be put right": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(86400))
			r.next("wait 1s").at(1).next("wait 1s")
			r.assign(assign.Follow, term("west", 20), minRenewTime(1))
			r.next("update west 20 renewTime 1s for 15s")
		},
		"what stands in the way is told of meanwhile": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("south", 21))), testKey)
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			r.next("read").answered().next("wait").facts(SyncStatus{Newer: 21, Problem: reason.LeaseLost, MinRenewTime: wall(10)})
		},
	})
}
