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
)

// Whoever decides who leads has to know where Leases cannot be written, and where they can be again.
func TestFailedWrites(t *testing.T) {
	play(t, `
unanswered: failing until a write succeeds, whatever is read
	assign follow west 20; read; ok; create west 20 renewTime 0s; unanswered;
	status Failing=Unreachable Problem=Unreachable; read; ok; status Failing=Unreachable Problem=Unreachable;
	create west 20 renewTime 0s; ok; status Problem=Unreachable; wait; status InPlace
unanswered, but done: failing until it is read
	assign follow west 20; read; ok; create west 20 renewTime 0s; unanswered but done; read; ok; wait; status InPlace
a read unanswered: not failing
	assign follow west 20; read; unanswered; status Problem=Unreachable
a conflict: not failing
	follows; edited; touched; update west 20 renewTime 0s; ok; status InPlace
unanswered, then no Lease is assigned: not failing
	assign follow west 20; read; ok; create west 20 renewTime 0s; unanswered; assign absent; read; ok; wait;
	status InPlace
`)
	run(t, map[string]func(*rig){
		"are tried again at once, and once a second when that has not helped for long": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			for range fastRetries {
				r.next("read").answered().next("create west 20 renewTime 0s").failed(errTimeout, pauseSilent)
			}
			r.next("read").answered().next("create west 20 renewTime 0s").failed(errTimeout, pauseRefused)
			r.next("read").answered().next("create west 20 renewTime 0s").answered().next("wait")
			edited(r)
			r.next("update west 20 renewTime 0s").failed(errTimeout, pauseSilent)
		},
	})
}

// Where a term is lost although the member answers, what is written is what stands already: it promises nothing.
func TestLostLeaseIsReportedAfterAWriteWasTried(t *testing.T) {
	play(t, `
unanswered, then the next term is assigned: tried again
	leads; at 14; update east 20 renewTime 14s promise 29s; unanswered; at 29; read; ok; update east 20 renewTime 0s;
	unanswered; assign lead east 21; read; ok; update east 20 renewTime 0s
another hub's Lease: lost without a write
	leads; at 14; update east 20 renewTime 14s promise 29s; unanswered; at 29; read; ok; lease west 20 at 0 unsealed;
	shown; read; ok; wait; status Lost Failing=Unreachable
no Lease: lost without a write
	leads; at 14; update east 20 renewTime 14s promise 29s; unanswered; at 29; read; ok; deleted; read; ok; wait;
	status Lost Failing=Unreachable
unanswered: lost, and tried again every 2 s
	leads; at 14; update east 20 renewTime 14s promise 29s; unanswered; at 29; read; ok; update east 20 renewTime 0s;
	unanswered; read; ok; wait 2s; status Lost Failing=Unreachable; at 31; read; ok; update east 20 renewTime 0s;
	forbidden; wait 2s; status Lost Failing=Forbidden; at 33; read; ok; update east 20 renewTime 0s; ok; wait;
	status Lost
written: the outage is over
	leads; at 14; update east 20 renewTime 14s promise 29s; unanswered; at 29; read; ok; update east 20 renewTime 0s;
	status Failing=Unreachable Problem=Unreachable; ok; wait; status Lost
`)
}

// altered carries the pending write out, as in a member where something changes it on its way, and hands its
// answer over, after which the syncer must pause.
func (r *rig) altered(pause time.Duration, changes ...func(*coordinationv1.Lease)) *rig {
	r.t.Helper()
	if _, err := r.carry(); err != nil {
		r.t.Fatal(err)
	}
	for _, change := range changes {
		change(r.there)
	}
	if got := r.syncer.handleAnswer(r.pending, r.there.DeepCopy(), nil); got != pause {
		r.t.Fatalf("the syncer pauses for %v, want %v", got, pause)
	}
	return r
}

func TestWritesThatTheMemberChanges(t *testing.T) {
	unwritable := SyncStatus{Failing: reason.Unwritable, Problem: reason.Unwritable}
	strip := func(l *coordinationv1.Lease) { l.Labels = nil }
	unseal := func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.ClusterUIDAnnotation] = "" }
	play(t, `
no Lease is assigned any more: removed at once
	assign follow west 20; read; ok; create west 20 renewTime 0s; stored uid=; assign absent; remove
stored as sent: the pauses begin again
	assign follow west 20; read; ok; create west 20 renewTime 0s; stored uid=; at 0.1; update west 20 renewTime 100ms;
	ok; wait; status InPlace; edited; update west 20 renewTime 100ms; stored uid=
`)
	run(t, map[string]func(*rig){
		"the old Lease is stored: it is sealed, but not what was sent": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			old := r.there.DeepCopy()
			r.at(10).next("update west 20 renewTime 10s").altered(pauseSilent, func(l *coordinationv1.Lease) {
				l.Spec, l.Annotations = old.Spec, old.Annotations
			})
		},
		"changed when stored: reported, with what to do": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s").altered(100*time.Millisecond, unseal).facts(unwritable)
			r.next("wait 100ms").facts(unwritable)
			for _, words := range []string{"Lease ns/leasecast", "admission webhook", v1alpha1.ManagedLabel} {
				if !strings.Contains(r.syncer.status.Message, words) {
					r.t.Errorf("%q does not name %q", r.syncer.status.Message, words)
				}
			}
		},
		"changed again and again: the pauses double up to 2 s, whatever a watch shows": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s").altered(100*time.Millisecond, strip)
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
		"an informative label is changed: stored as sent": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s")
			r.altered(0, func(l *coordinationv1.Lease) { l.Labels[v1alpha1.ManagedByLabel] = "somebody" })
			r.next("wait").facts(SyncStatus{InPlace: true})
		},
	})
}
