package publish

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// Rule 10: a successor's Lease is written again, to show that it can be.
func TestLeaseWithAMinRenewTime(t *testing.T) {
	play(t, `
an equal, older Lease: written again
	follows; assign follow west 20 fresh=10; status MinRenewTime=10; at 10; update west 20 renewTime 10s;
	status MinRenewTime=10; ok; wait; status InPlace MinRenewTime=10
not written: refused
	follows; assign follow west 20 fresh=10; at 10; update west 20 renewTime 10s; unanswered;
	status MinRenewTime=10 Refused Failing=Unreachable Problem=Unreachable
written, but not answered: refused until it is read
	follows; assign follow west 20 fresh=10; at 10; update west 20 renewTime 10s; unanswered but done; read; ok; wait;
	status InPlace MinRenewTime=10
not read before: refused until it is written
	follows; in doubt; assign follow west 20 fresh=10; at 10; read; unanswered;
	status MinRenewTime=10 Refused Failing=Unreachable Problem=Unreachable; assign follow west 20 fresh=11; at 11; read;
	ok; update west 20 renewTime 11s; ok; wait; status InPlace MinRenewTime=11
forbidden: refused
	follows; assign follow west 20 fresh=10; at 10; update west 20 renewTime 10s; forbidden;
	status MinRenewTime=10 Refused Failing=Forbidden Problem=Forbidden
forbidden, then no MinRenewTime is assigned: still refused
	follows; assign follow west 20 fresh=10; at 10; update west 20 renewTime 10s; forbidden; assign follow west 20;
	status MinRenewTime=10 Refused Failing=Forbidden Problem=Forbidden; at 11; update west 20 renewTime 11s; ok; wait;
	status InPlace MinRenewTime=10
written, then no MinRenewTime is assigned: still in place
	follows; assign follow west 20 fresh=10; at 10; update west 20 renewTime 10s; ok; wait; assign follow west 20;
	status InPlace MinRenewTime=10; wait; status InPlace MinRenewTime=10
forbidden, then a later MinRenewTime is assigned: not refused yet
	follows; assign follow west 20 fresh=10; at 10; update west 20 renewTime 10s; forbidden;
	assign follow west 20 fresh=20; status MinRenewTime=20 Failing=Forbidden Problem=Forbidden
not written, then the next term is assigned: cleared
	follows; assign follow west 20 fresh=10; assign follow south 21; status none
a write from before the assignment is unanswered: not refused
	follows; edited; update west 20 renewTime 0s; assign follow west 20 fresh=10; unanswered;
	status MinRenewTime=10 Failing=Unreachable Problem=Unreachable
a write for an earlier MinRenewTime is unanswered: not refused
	follows; assign follow west 20 fresh=10; at 10; update west 20 renewTime 10s; assign follow west 20 fresh=20;
	unanswered; status MinRenewTime=20 Failing=Unreachable Problem=Unreachable
`)
	run(t, map[string]func(*rig){
		"is one of that very instant, as a Lease stores it": func(r *rig) {
			r.assign(assign.Follow, term("west", 20), func(a *assign.Assignment) { a.MinRenewTime = wall(0).Add(999) })
			r.next("read").answered().next("create west 20 renewTime 0s").answered().next("wait")
			r.facts(SyncStatus{InPlace: true, MinRenewTime: wall(0).Add(999)})
		},
	})
}

func TestAnswers(t *testing.T) {
	play(t, `
unanswered, then an old event: read
	leads; remember; at 5; update east 20 renewTime 5s promise 20s; unanswered but done; shown old; read
renewals forbidden for the patience: held against the leader
	leads; at 5; update east 20 renewTime 5s promise 20s; forbidden; at 9.9; update east 20 renewTime 9.9s promise 24.9s;
	forbidden; problem Unreachable; at 10; update east 20 renewTime 10s promise 25s; forbidden; problem Forbidden
renewals forbidden for a moment, as when an API server starts: no problem of the leader
	leads; at 5; update east 20 renewTime 5s promise 20s; forbidden; at 6; update east 20 renewTime 6s promise 21s;
	forbidden; problem Unreachable; at 7; update east 20 renewTime 7s promise 22s; ok; at 12;
	update east 20 renewTime 12s promise 27s; forbidden; problem Unreachable
a renewal unauthorized: the member's health judges that
	leads; at 5; update east 20 renewTime 5s promise 20s; unauthorized; problem Unreachable
unanswered, but done: read
	leads; at 5; update east 20 renewTime 5s promise 20s; unanswered but done; at 8; read; ok; wait 2s; status InPlace
unanswered, not done: read, and renewed
	leads; at 5; update east 20 renewTime 5s promise 20s; unanswered; at 8; read; ok;
	update east 20 renewTime 8s promise 23s
a first Lease unanswered, not done: created with its first renewTime
	assign lead east 20 first; read; ok; create east 20 renewTime 0s promise 15s; unanswered; at 3; read; ok;
	create east 20 renewTime 0s; ok
a first Lease unanswered until its deadline: lost
	assign lead east 20 first; read; ok; create east 20 renewTime 0s promise 15s; unanswered; at 15; read; ok; wait;
	status Lost Failing=Unreachable
a conflict: read at once
	leads; touched; at 5; update east 20 renewTime 5s promise 20s; ok; read; ok; update east 20 renewTime 5s promise 20s;
	ok
no namespace: tried again after a pause
	assign follow west 20; read; ok; create west 20 renewTime 0s; no namespace;
	status Failing=NamespaceMissing Problem=NamespaceMissing; create west 20 renewTime 0s
a repair forbidden: in place, but failing, and tried again
	follows; edited; update west 20 renewTime 0s; forbidden; status InPlace Failing=Forbidden Problem=Forbidden;
	update west 20 renewTime 0s; ok; wait; status InPlace
a read forbidden: tried again
	assign follow west 20; read; forbidden; status Problem=Forbidden; read
drained because a renewal was forbidden: tried by a write that changes nothing
	leads; at 10; update east 20 renewTime 10s promise 25s; forbidden; assign hold east 20; update east 20 renewTime 0s;
	forbidden; at 11; update east 20 renewTime 0s; ok; wait; status none
a renewal was forbidden, held in another term: not tried
	leads; at 10; update east 20 renewTime 10s promise 25s; forbidden; assign hold east 21; wait
a renewal was forbidden, held until the deadline: not tried
	leads; at 10; update east 20 renewTime 10s promise 25s; forbidden; assign hold east 20; at 25; wait
a renewal forbidden: the next one has its own renewTime
	leads; at 5; update east 20 renewTime 5s promise 20s; forbidden; at 6; update east 20 renewTime 6s promise 21s
`)
	run(t, map[string]func(*rig){
		"or it still will be: then the next compare-and-swap fails": func(r *rig) {
			r.leads().at(5).next("update east 20 renewTime 5s promise 20s")
			late := r.pending
			r.unanswered(false).at(8).next("read").answered().next("update east 20 renewTime 8s promise 23s")
			now := r.pending
			r.pending = late
			if _, err := r.carry(); err != nil {
				r.t.Fatal(err)
			}
			r.pending = now
			r.answered().next("read").answered().at(9).next("wait 1s")
		},
		"a second one in a row a little later: whoever else writes may do so in a loop": func(r *rig) {
			r.follows()
			edited(r)
			for range 2 {
				r.edit()
				r.next("update west 20 renewTime 0s")
				_, err := r.carry()
				if r.syncer.conflicts == 0 {
					r.handed(nil, err).next("read").answered()
				} else {
					r.failed(err, pauseSilent)
				}
			}
			r.next("read").answered().next("update west 20 renewTime 0s").answered()
			edited(r)
			r.edit()
			r.next("update west 20 renewTime 0s").answered().next("read")
		},
		"a Lease that cannot be deleted does not make it spin": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("west", 2000000000))), seal.Key("no key"))
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered()
			stubborn := r.there
			r.next("remove").answered().next("create west 20 renewTime 0s")
			r.there = stubborn // a finalizer keeps it
			r.answered().next("read").answered().next("remove").answered().next("create west 20 renewTime 0s")
			r.there = stubborn
			_, err := r.carry()
			r.failed(err, pauseSilent)
		},
	})
}

// An event during a request may be newer than the request's answer.
func TestWatchWhileARequestIsInFlight(t *testing.T) {
	play(t, `
a new one is shown before the answer to the removal
	follows; assign absent; remove; carried; lease west 20 at 0; shown; answered; read; ok; remove
the marks are removed right after the first write: it is still ours
	assign follow west 20; read; ok; create west 20 renewTime 0s; carried; edit stripped; gone; answered; read; ok;
	update west 20 renewTime 0s
a deletion is shown before the answer to a read
	follows; gone; read; carried; deleted; answered; read; ok; create west 20 renewTime 0s
a deletion right after the own write is shown before its answer
	follows; edited; update west 20 renewTime 0s; carried; deleted; answered; read; ok; create west 20 renewTime 0s
an edit right after the own write is shown before its answer
	follows; edited; update west 20 renewTime 0s; carried; edited; answered; read; ok; update west 20 renewTime 0s
the event of the own write comes before its answer
	follows; edited; update west 20 renewTime 0s; carried; shown; answered; wait; status InPlace
an event of an older version: read, because the member may have been restored
	follows; remember; touched; shown; shown old; read; status InPlace; ok; wait; status InPlace
an event of the version that is known: ignored
	follows; shown; wait; status InPlace
another object of that name: read
	follows; lease west 20 at -2 unsealed; shown; read; ok; update west 20 renewTime 0s
`)
	run(t, map[string]func(*rig){
		"and what the read says counts, though its version went back": func(r *rig) {
			r.follows()
			uid := r.there.UID
			r.version = 5
			r.put(contentOf(renewedAt(-100, term("east", 19))), testKey, func(l *coordinationv1.Lease) { l.UID = uid })
			r.show()
			r.next("read").answered().next("update west 20 renewTime 0s")
		},
		"unless it says something else: the member was restored, and gives versions a second time": func(r *rig) {
			r.follows()
			uid, version := r.there.UID, r.there.ResourceVersion
			r.put(contentOf(renewedAt(-100, term("east", 19))), testKey, func(l *coordinationv1.Lease) { l.UID = uid })
			r.there.ResourceVersion = version
			r.show()
			r.next("read").answered().next("update west 20 renewTime 0s")
		},
	})
}

// The controller is called once for each change of the status.
func TestWhenTheStatusHasChanged(t *testing.T) {
	play(t, `
refused, for each MinRenewTime
	follows; changed; assign follow west 20 fresh=10; at 10; update west 20 renewTime 10s; forbidden; changed;
	assign follow west 20 fresh=20; at 20; update west 20 renewTime 20s; forbidden; changed
renewed: no
	leads; wait firstRenewal; changed; at 5; update east 20 renewTime 5s promise 20s; ok; wait 5s; unchanged
in place again in the next term
	follows; changed; assign follow south 21; wait 500ms; at 1; update south 21 renewTime 1s; ok; wait; status InPlace;
	changed
lost, in each term
	leads; at 15; wait; changed; assign lead east 21; wait; status Lost; changed
another message for the same problem: no
	follows; edited; update west 20 renewTime 0s; unanswered; changed; read; unanswered; unchanged
`)
}

func (r *rig) statusChanges(want bool) {
	r.t.Helper()
	if got := r.syncer.statusChanged(); got != want {
		r.t.Fatalf("the status has changed: %v, want %v; it is %+v", got, want, r.syncer.status)
	}
}

// Terms that began together do not stay together, and renewals neither drift nor are ever further apart than r.
func TestRenewalsAreSpread(t *testing.T) {
	const tenth = 500 * time.Millisecond
	buckets := map[time.Duration]int{}
	for _, ns := range namespaces(1000) {
		l := &leaseSyncer{namespace: ns, timings: Timings{Renew: 5 * second}}
		first := l.due(contentOf(renewedAt(0, term("east", 20))))
		if due := first.Sub(zero); due <= 0 || due > 5*second {
			t.Fatalf("%s is due after %v", ns, due)
		}
		buckets[first.Sub(zero)/tenth]++
		for late, want := range map[time.Duration]time.Duration{
			0: 5 * second, time.Microsecond: 5*second - time.Microsecond, 4 * second: second, 7 * second: 3 * second,
		} {
			renewed := contentOf(term("east", 20))
			renewed.RenewTime = first.Add(late)
			if next := l.due(renewed).Sub(renewed.RenewTime); next != want {
				t.Fatalf("%s, renewed %v late, is due again after %v, want %v", ns, late, next, want)
			}
		}
	}
	for b := range time.Duration(10) {
		if n := buckets[b]; n < 50 || n > 150 {
			t.Errorf("%d of 1000 are due in one tenth, from %v on", n, b*tenth)
		}
	}
}
