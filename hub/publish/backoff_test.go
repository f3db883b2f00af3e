package publish

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// Whoever decides who leads has to know where Leases cannot be written, and where they can be again.
func TestWritesThatFail(t *testing.T) {
	unreachable := SyncStatus{Failing: reason.Unreachable, Problem: reason.Unreachable}
	run(t, map[string]func(*rig){
		"are told of until one succeeds, whatever is read in between": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").unanswered(false).facts(unreachable)
			r.next("read").answered().facts(unreachable)
			r.next("create west 20 renewTime 0s for 15s").answered().facts(SyncStatus{Problem: reason.Unreachable})
			r.next("wait").facts(SyncStatus{InPlace: true})
		},
		"or until a read shows that one was carried out": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").unanswered(true)
			r.next("read").answered().next("wait").facts(SyncStatus{InPlace: true})
		},
		"reads that fail are none": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").unanswered(false).facts(SyncStatus{Problem: reason.Unreachable})
		},
		"nor are conflicts": func(r *rig) {
			r.follows()
			edited(r)
			r.edit()
			r.next("update west 20 renewTime 0s for 15s").answered().facts(SyncStatus{InPlace: true})
		},
		"are forgotten where nothing is to be written any more": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").unanswered(false)
			r.assign(assign.Absent, lease.Term{})
			r.next("read").answered().next("wait").facts(SyncStatus{InPlace: true})
		},
		"are tried again at once, and once a second when that has not helped for long": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			for range fastRetries {
				r.next("read").answered().next("create west 20 renewTime 0s for 15s").failed(errTimeout, pauseSilent)
			}
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").failed(errTimeout, pauseRefused)
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").answered().next("wait")
			edited(r)
			r.next("update west 20 renewTime 0s for 15s").failed(errTimeout, pauseSilent)
		},
	})
}

// Where a term is lost although the member answers, what is written is what stands already: it promises nothing.
func TestALostLeaseIsReportedOnceItIsKnownWhetherItCanBeWritten(t *testing.T) {
	const again = "update east 20 renewTime 0s for 15s"
	fails := func(r *rig) {
		r.leads().at(14).next("update east 20 renewTime 14s for 15s promise 29s").failed(errTimeout, pauseSilent)
		r.at(29).next("read").answered()
	}
	lost := SyncStatus{Lost: true, Failing: reason.Unreachable}
	run(t, map[string]func(*rig){
		"it can: what failed was an outage that is over": func(r *rig) {
			fails(r)
			r.next(again).facts(SyncStatus{Failing: reason.Unreachable, Problem: reason.Unreachable}).answered()
			r.next("wait").facts(SyncStatus{Lost: true})
		},
		"it cannot, and that is found out again and again": func(r *rig) {
			fails(r)
			r.next(again).failed(errTimeout, pauseSilent).next("read").answered()
			r.next("wait 2s").facts(lost)
			r.at(31).next("read").answered().next(again).failed(errForbidden, pauseRefused)
			r.next("wait 2s").facts(SyncStatus{Lost: true, Failing: reason.Forbidden})
			r.at(33).next("read").answered().next(again).answered().next("wait").facts(SyncStatus{Lost: true})
		},
		"where there is no Lease there is nothing to try": func(r *rig) {
			fails(r)
			deleted(r)
			r.next("read").answered().next("wait").facts(lost)
		},
		"nor where it is not this syncer's own any more": func(r *rig) {
			fails(r)
			r.put(contentOf(renewedAt(0, term("west", 20))), seal.Key("another key"))
			r.show()
			r.next("read").answered().next("wait").facts(lost)
		},
		"in the next term it is found out anew": func(r *rig) {
			fails(r)
			r.next(again).failed(errTimeout, pauseSilent)
			r.assign(assign.Lead, term("east", 21))
			r.next("read").answered().next(again)
		},
	})
}

// altered carries the pending write out, as in a member where something changes it on its way, and hands its
// answer over, after which the syncer must pause.
func (r *rig) altered(pause time.Duration, change func(*coordinationv1.Lease)) *rig {
	r.t.Helper()
	if _, err := r.carry(); err != nil {
		r.t.Fatal(err)
	}
	change(r.there)
	if got := r.syncer.handleAnswer(r.pending, r.there.DeepCopy(), nil); got != pause {
		r.t.Fatalf("the syncer pauses for %v, want %v", got, pause)
	}
	return r
}

func TestWritesThatAreChangedOnTheirWay(t *testing.T) {
	unwritable := SyncStatus{Failing: reason.Unwritable, Problem: reason.Unwritable}
	strip := func(l *coordinationv1.Lease) { l.Labels = nil }
	unseal := func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.ClusterUIDAnnotation] = "" }
	run(t, map[string]func(*rig){
		"are told of, with what to do": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").altered(100*time.Millisecond, unseal).facts(unwritable)
			r.next("wait 100ms").facts(unwritable)
			for _, words := range []string{"Lease ns/leasecast", "admission webhook", v1alpha1.ManagedLabel} {
				if !strings.Contains(r.syncer.status.Message, words) {
					r.t.Errorf("%q does not name %q", r.syncer.status.Message, words)
				}
			}
		},
		"are repeated less and less often, whatever a watch tells meanwhile": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").altered(100*time.Millisecond, strip)
			const ms = time.Millisecond
			pauses := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 2 * second, 2 * second}
			for i, pause := range pauses[:len(pauses)-1] {
				r.show()
				r.now = lease.Reading{Wall: r.now.Wall.Add(pause / 2), Boot: r.now.Boot + pause/2}
				r.next("wait " + (pause / 2).String())
				r.now = lease.Reading{Wall: r.now.Wall.Add(pause / 2), Boot: r.now.Boot + pause/2}
				r.pending = r.syncer.next(r.now, true, true)
				r.altered(pauses[i+1], strip)
			}
		},
		"until one is stored as it is": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").altered(100*time.Millisecond, unseal)
			r.at(0.1).next("update west 20 renewTime 100ms for 15s").answered().next("wait").facts(SyncStatus{InPlace: true})
			edited(r)
			r.next("update west 20 renewTime 100ms for 15s").altered(100*time.Millisecond, unseal)
		},
		"are removed at once if nothing asks for them any more": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").altered(100*time.Millisecond, unseal)
			r.assign(assign.Absent, lease.Term{})
			r.next("remove")
		},
		"also where the old Lease is what is stored": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			old := r.there.DeepCopy()
			r.at(10).next("update west 20 renewTime 10s for 15s").altered(100*time.Millisecond, func(l *coordinationv1.Lease) { l.Spec = old.Spec; l.Annotations = old.Annotations })
		},
		"a label that only people read is no matter": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").altered(0, func(l *coordinationv1.Lease) { l.Labels[v1alpha1.ManagedByLabel] = "somebody" })
			r.next("wait").facts(SyncStatus{InPlace: true})
		},
	})
}
