package publish

import (
	"testing"
	"time"
)

// Rule 3: only a live Lease is renewed.
func TestLeadersLeaseIsRenewed(t *testing.T) {
	play(t, `
no Lease, granted by this tenure: created
	assign lead east 20 first; read; ok; create east 20 renewTime 0s promise 15s; ok; status none; wait firstRenewal;
	status InPlace
r after its renewTime: renewed
	leads; at 5; update east 20 renewTime 5s promise 20s; ok; wait 5s; at 9.999; wait 1ms; at 10;
	update east 20 renewTime 10s promise 25s
expired, granted by this tenure: lost
	leads; at 15; wait; status Lost
expired and unsealed, granted by another tenure: lost
	lease east 20 at -20 unsealed; assign lead east 20; read; ok; wait; status Lost
not sealed: lost, and replaced by one without a holder
	lease east 20 at -2 unsealed; assign lead east 20; read; ok; update nobody 20 renewTime 0s promise 15s; ok; wait;
	status Lost PoisonedEpoch=20
of another epoch: lost
	lease east 19 at -2; assign lead east 20; read; ok; wait; status Lost
`)
}

// A hub that has lost the right to write promises nothing, and neither does a syncer on hold.
func TestNothingIsPromised(t *testing.T) {
	play(t, `
on hold: not renewed
	leads; assign hold east 20; at 5; wait; status none
on hold, not read yet: not read
	assign hold east 20; wait
on hold, the own Lease deleted: not read
	follows; assign hold west 20; deleted; wait
on hold without the right to write, another hub's Lease gone: read soon
	lease west 20 at -2 by=another unsealed; shown; assign hold; wait; gone; may not; wait 100ms
`)
}

// An assignment that comes from a record read too early is ignored.
func TestAssignmentOfAnOlderEpochIsIgnored(t *testing.T) {
	play(t, `
a leader is to follow in an older epoch: ignored
	leads; assign follow west 19; at 5; update east 20 renewTime 5s promise 20s
a follower is to hold in its term: its status is cleared
	follows; assign hold west 20; status none
an answer to the assignment before comes late
	leads; at 5; update east 20 renewTime 5s promise 20s; assign follow west 21; ok; update west 21 renewTime 5s
`)
}

// An edited or deleted Lease is repaired with the renewTime that was sent last. This promises nothing new.
func TestRepairOfALeadersLease(t *testing.T) {
	play(t, `
not labelled, so that no reader sees it: renewed at once
	leads; edit unlabelled; gone; at 1; read; ok; update east 20 renewTime 1s promise 16s; ok; shown;
	wait firstRenewal-1; status InPlace
deleted: created as it was sent
	leads; deleted; at 1; read; ok; create east 20 renewTime 0s; ok; wait firstRenewal-1
edited to an absurd epoch, and written again before it is removed: read
	leads; edit epoch=2147483647; shown; at 1; remove; touched; ok; read; ok; remove
deleted in the next term: lost
	leads; assign hold east 20; wait; assign lead east 21; deleted; at 1; read; ok; wait; status Lost
edited to an absurd epoch: removed first, because no epoch may fall
	leads; edit epoch=2147483647; shown; at 1; remove; status none; ok; create east 20 renewTime 0s; ok
`)
}

// Whoever may publish can edit a live Lease so that it promises more. The edit ends with its repair, and no other
// cluster gets the namespace before readers had D to see that. The next term gets an epoch above the edit's.
func TestEditThatPromisesMore(t *testing.T) {
	play(t, `
a later renewTime: repaired, counts like a promise
	leads; edit renewed=3; shown; at 3; update east 20 renewTime 0s promise 18s; ok; wait firstRenewal-3;
	status InPlace PoisonedEpoch=20
a longer duration, the term expired: replaced by one without a holder
	leads; edit duration=3600; shown; at 16; update nobody 20 renewTime 16s promise 31s
a longer duration, on hold: repaired
	leads; assign hold east 20; edit duration=600; shown; at 2; update east 20 renewTime 0s promise 17s; ok; wait
a longer duration, on hold, the term expired: replaced by one without a holder
	leads; assign hold east 20; edit duration=600; shown; at 15; update nobody 20 renewTime 15s promise 30s
a longer duration, on hold without the right to write: left alone
	leads; assign hold east 20; edit duration=600; shown; may not; at 2; wait
a longer duration, before any assignment: left alone
	lease east 20 at -2 duration=600; shown; wait
a longer duration, not labelled, so that no reader sees it: repaired, no promise
	leads; edit duration=3600 unlabelled; gone; at 1; read; ok; update east 20 renewTime 0s
the same deadline, another cluster UID: repaired, no promise
	leads; edit uid=another; shown; at 1; update east 20 renewTime 0s
a lower epoch, a shorter duration: replaced by one without a holder, poisons no epoch
	leads; edit epoch=19 duration=10; shown; at 1; update nobody 20 renewTime 1s promise 16s; status none
a higher epoch, not labelled: removed first, poisons no epoch
	leads; edit epoch=27 unlabelled; shown; remove; status none
a higher epoch in a follower: removed first, poisons that epoch
	follows; edit epoch=27; shown; remove; status InPlace PoisonedEpoch=27
`)
}

// A tenure whose clock was ahead leaves renewTimes in the future behind.
func TestRenewTimeInTheFuture(t *testing.T) {
	play(t, `
by less than ε: kept
	lease east 20 at 0.9 acquired=-100; assign lead east 20; read; ok; wait 5s; status InPlace; ε 1; boot 3600; wait 5s;
	wait 5s
replaced by a later one: D from then on
	lease east 20 at 3600 acquired=-100; assign lead east 20; read; ok; wait 5s; status InPlace;
	lease east 20 at 3605 acquired=-100 sameObject; shown; at 14; wait 5s; at 15; wait 5s; at 29;
	update east 20 renewTime 29s promise 44s
the wall clock was behind for a moment only: kept
	lease east 20 at 3600 acquired=-100; assign lead east 20; read; ok; wait 5s; status InPlace; at 14; wall 3600;
	wait 5s; at 15; wait 5s; at 29; wait 5s
by an hour: renewed with the present time after D
	lease east 20 at 3600 acquired=-100; assign lead east 20; read; ok; wait 5s; status InPlace; at 14.999; wait 5s;
	at 15; update east 20 renewTime 15s promise 30s; ok; wait 5s; status InPlace
`)
}

// A term may be lost although the member answers. Then the Lease is written as it is, which promises nothing.
func TestLostLeaseIsReportedAfterAWriteWasTried(t *testing.T) {
	const lost = "\tleads; at 14; update east 20 renewTime 14s promise 29s; unanswered; at 29; read; ok;"
	play(t, `
unanswered, then the next term is assigned: tried again
`+lost+`
	update east 20 renewTime 0s; unanswered; assign lead east 21; read; ok; update east 20 renewTime 0s
sealed for another cluster of that name: lost without a write
`+lost+`
	lease west 20 at 0 ofUID=another; shown; read; ok; wait; status Lost Failing=Unreachable
unanswered: lost, and tried again every 2 s
`+lost+`
	update east 20 renewTime 0s; unanswered; read; ok; wait 2s; status Lost Failing=Unreachable; at 31; read; ok;
	update east 20 renewTime 0s; forbidden; wait 2s; status Lost Failing=Forbidden; at 33; read; ok;
	update east 20 renewTime 0s; ok; wait; status Lost
unanswered, then in place as a follower's: not read again
`+lost+`
	update east 20 renewTime 0s; unanswered; read; ok; wait 2s; assign follow east 20; wait; at 31; wait
`)
}

// An API server may answer reads and fail writes, as while a webhook on Leases is down. If each try promised more, the
// next leader would wait longer.
func TestRenewalThatFailsIsSentAgainAsItWas(t *testing.T) {
	const fails = "\tleads; at 5; update east 20 renewTime 5s promise 20s; unanswered; at 14; read; ok;"
	play(t, `
writes fail and reads are answered: lost at the deadline of the first renewal that failed
`+fails+` update east 20 renewTime 5s promise 20s; unanswered;
	at 19; read; ok; update east 20 renewTime 5s; unanswered; at 20; read; ok; update east 20 renewTime 0s; unanswered;
	read; ok; wait 2s; status Lost Failing=Unreachable
it succeeds within the term: renewed at once, without a gap
`+fails+` update east 20 renewTime 5s promise 20s; ok;
	update east 20 renewTime 14s promise 29s; ok; wait 1s; status InPlace
the one after it fails too: that one is sent again
`+fails+` update east 20 renewTime 5s promise 20s; ok; update east 20 renewTime 14s promise 29s; forbidden;
	at 16; update east 20 renewTime 14s promise 29s; ok; update east 20 renewTime 16s promise 31s
it arrived late: the next one is due
	leads; at 5; update east 20 renewTime 5s promise 20s; unanswered but done; at 12; read; ok;
	update east 20 renewTime 12s promise 27s
the wall clock was ahead when it was sent: renewed with the present time
	leads; wall 14; update east 20 renewTime 14s promise 29s; forbidden; at 6; update east 20 renewTime 6s promise 21s
`)
}

// Terms that began together spread out. Renewals do not drift, and are never more than r apart.
func TestRenewalsAreSpread(t *testing.T) {
	const tenth = 500 * time.Millisecond
	buckets, shared := map[time.Duration]int{}, map[time.Time]bool{}
	for _, ns := range namespaces(1000) {
		first := due(ns, 5*second, zero)
		shared[first] = true
		if due := first.Sub(zero); due <= 0 || due > 5*second {
			t.Fatalf("%s is due after %v", ns, due)
		}
		buckets[first.Sub(zero)/tenth]++
		for late, want := range map[time.Duration]time.Duration{
			0: 5 * second, time.Microsecond: 5*second - time.Microsecond, 4 * second: second, 7 * second: 3 * second,
		} {
			renewed := first.Add(late)
			if next := due(ns, 5*second, renewed).Sub(renewed); next != want {
				t.Fatalf("%s, renewed %v late, is due again after %v, want %v", ns, late, next, want)
			}
		}
	}
	for b := range time.Duration(10) {
		if n := buckets[b]; n < 50 || n > 150 {
			t.Errorf("%d of 1000 are due in one tenth, from %v on", n, b*tenth)
		}
	}
	if len(shared) != instants {
		t.Errorf("1000 namespaces are due at %d instants, want %d, which share wake-ups", len(shared), instants)
	}
	rare := map[time.Time]bool{}
	for _, ns := range namespaces(1000) {
		rare[due(ns, 60*second, zero)] = true
	}
	if len(rare) <= 3*instants { // so that most find that the member has just answered
		t.Errorf("1000 namespaces are due at %d instants of a minute", len(rare))
	}
}
