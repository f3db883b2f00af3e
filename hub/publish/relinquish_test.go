package publish

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// by is a Lease with the mark of another hub, or none.
func by(hub string) func(*lease.Content) { return func(c *lease.Content) { c.Hub = hub } }

// mark fails the test unless the Lease in the member carries this mark and a seal.
func (r *rig) mark(want string) *rig {
	r.t.Helper()
	if c, seal := wire.Read(r.there); c.Hub != want || !testKey.Sealed(c, seal) {
		r.t.Fatalf("the Lease carries the mark %q, want %q, sealed", c.Hub, want)
	}
	return r
}

// marks fails the test unless the facts say so of the mark.
func (r *rig) marks(ours, none bool) *rig {
	r.t.Helper()
	if f := r.syncer.status; f.Marked != ours || f.Unmarked != none {
		r.t.Fatalf("marked %v, unmarked %v, want %v, %v", f.Marked, f.Unmarked, ours, none)
	}
	return r
}

// Rule 11: the hub that its Clusters leave says on the Leases that it has stopped, and leaves the terms as they are.
func TestRelinquish(t *testing.T) {
	run(t, map[string]func(*rig){
		"a leader's Lease keeps its term and its renewTime": func(r *rig) {
			r.leads().marks(false, false)
			r.syncer.relinquished = true
			r.at(4).next("update east 20 renewTime 0s for 15s").answered().next("wait").marks(false, true).mark("")
		},
		"and is not renewed any more": func(r *rig) {
			r.leads()
			r.syncer.relinquished = true
			r.at(4).next("update east 20 renewTime 0s for 15s").answered()
			r.assign(assign.Lead, term("east", 20), first)
			r.at(9).next("wait")
		},
		"a follower's Lease, too": func(r *rig) {
			r.follows().marks(true, false)
			r.syncer.relinquished = true
			r.at(4).next("update west 20 renewTime 0s for 15s").answered().next("wait").marks(false, true).mark("")
		},
		"one of which nothing is known is read first": func(r *rig) {
			r.follows()
			r.syncer.relinquished = true
			r.syncer.invalidate()
			r.next("read").answered().next("update west 20 renewTime 0s for 15s")
		},
		"one that the other hub has taken is left alone": func(r *rig) {
			r.follows()
			r.put(contentOf(renewedAt(0, term("west", 20)), by("another")), testKey)
			r.syncer.relinquished = true
			r.next("update west 20 renewTime 0s for 15s").handed(r.carry()).next("read").answered().next("wait").mark("another")
		},
		"one that is not sealed is no Lease of ours": func(r *rig) {
			r.put(contentOf(renewedAt(0, term("west", 20))), seal.Key("another key for tests of 32 byte"))
			r.syncer.relinquished = true
			r.next("read").answered().next("wait")
		},
		"what is not there is not made": func(r *rig) {
			r.assign(assign.Lead, term("east", 20), first)
			r.syncer.relinquished = true
			r.next("read").answered().next("wait")
		},
		"without the right to write nothing is written": func(r *rig) {
			r.follows()
			r.syncer.relinquished, r.may = true, false
			r.next("wait " + pauseSilent.String())
		},
	})
}

// Rule 8: what carries no mark is taken by compare-and-swap; what carries another's is not.
func TestTakingOver(t *testing.T) {
	run(t, map[string]func(*rig){
		"a leader's Lease is renewed at once, however new it is, with our mark": func(r *rig) {
			r.put(contentOf(renewedAt(0, term("east", 20)), by("")), testKey)
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered().next("update east 20 renewTime 0s for 15s promise 15s").marks(false, true)
			r.answered().next("wait "+firstRenewal(r).String()).marks(true, false).mark("hub")
		},
		"but not one that has lapsed": func(r *rig) {
			r.put(contentOf(renewedAt(-15, term("east", 20)), by("")), testKey)
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered().next("wait").facts(SyncStatus{Lost: true})
		},
		"nor one that somebody was faster to take": func(r *rig) {
			r.put(contentOf(renewedAt(-1, term("east", 20)), by("")), testKey)
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered().next("update east 20 renewTime 0s for 15s promise 15s")
			r.put(contentOf(renewedAt(0, term("east", 20)), by("another")), testKey)
			r.handed(r.carry()).next("read").answered().next("wait").facts(SyncStatus{Problem: reason.OtherHub})
		},
		"a follower's Lease is written anew": func(r *rig) {
			r.put(contentOf(renewedAt(-1, term("west", 20)), by("")), testKey)
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("update west 20 renewTime 0s for 15s").answered().next("wait").marks(true, false).mark("hub")
		},
		"a mark that somebody has taken off without the key is put back": func(r *rig) {
			r.follows()
			r.edit(func(l *coordinationv1.Lease) { l.Annotations["leasecast.dev/hub"] = "" })
			r.show()
			r.next("update west 20 renewTime 0s for 15s").answered().mark("hub")
		},
		"the mark of a hub with our key stops us as any other": func(r *rig) {
			r.put(contentOf(renewedAt(-1, term("east", 20)), by("another")), testKey)
			r.assign(assign.Lead, term("east", 20))
			r.next("read").answered().next("wait").facts(SyncStatus{Problem: reason.OtherHub})
		},
	})
}
