package publish

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
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
func TestLeadersLeaseIsRenewed(t *testing.T) {
	play(t, `
a longer D is assigned: with the next renewal
	leads; assign lead east 20 first for=60; at 5; update east 20 renewTime 5s for 1m0s promise 1m5s
no Lease, granted by this tenure: created
	assign lead east 20 first; read; ok; create east 20 renewTime 0s promise 15s; ok; status none; wait firstRenewal;
	status InPlace
an older Lease, granted by this tenure: replaced
	lease west 19 at -100; assign lead east 20 first; read; ok; update east 20 renewTime 0s promise 15s; ok
no Lease, granted by another tenure: lost
	assign lead east 20; read; ok; wait; status Lost
a live Lease, granted by another tenure, due: renewed at once
	lease east 20 at -6 acquired=-100; assign lead east 20; read; ok; update east 20 renewTime 0s promise 15s; ok;
	wait firstRenewal
a live Lease, granted by another tenure, not due: kept
	lease east 20 at 0 acquired=-100; assign lead east 20; at 2; read; ok; wait 3s; status InPlace
renewed late: due at the usual time
	leads; at 7; update east 20 renewTime 7s promise 22s; ok; wait 3s
r after its renewTime: renewed
	leads; at 5; update east 20 renewTime 5s promise 20s; ok; wait 5s; at 9.999; wait 1ms; at 10;
	update east 20 renewTime 10s promise 25s
1 ms before its deadline: renewed
	leads; at 14.999; update east 20 renewTime 14.999s promise 29.999s
expired, granted by this tenure: lost
	leads; at 15; wait; status Lost
expired, granted by another tenure: lost
	lease east 20 at -15; assign lead east 20; read; ok; wait; status Lost
not sealed: lost, and replaced by one without a holder
	lease east 20 at -2 unsealed; assign lead east 20; read; ok; update nobody 20 renewTime 0s promise 15s; ok; wait;
	status Lost PoisonedEpoch=20
of another epoch: lost
	lease east 19 at -2; assign lead east 20; read; ok; wait; status Lost
of another holder: lost
	lease west 20 at -2; assign lead east 20; read; ok; wait; status Lost
the wall clock is stepped back: due again after r at most
	leads; wall -1000; wait 5s
`)
}

// Closed syncers draw no renewTimes, and neither does a hub that has lost the right to.
func TestNothingIsPromised(t *testing.T) {
	play(t, `
on hold: not renewed
	leads; assign hold east 20; at 5; wait; status none
on hold, edited: not repaired
	leads; assign hold east 20; edited; at 5; wait
on hold, not read yet: not read
	assign hold east 20; wait
held, then leading, its Lease live: renewed
	leads; assign hold east 20; at 5; wait; assign lead east 20 first; at 6; update east 20 renewTime 6s promise 21s
held, then leading, its Lease expired: lost, although this tenure granted it
	leads; assign hold east 20; at 15; wait; assign lead east 20 first; wait; status Lost
a leader without the right to write: tried again soon
	leads; may not; at 5; wait 100ms; may; at 5.1; update east 20 renewTime 5.1s promise 20.1s
a follower without the right to write, edited: not repaired
	follows; edited; may not; wait 100ms
a follower without the right to write: not read
	assign follow west 20; may not; wait 100ms
the member has not just answered: read before a renewal
	leads; silent; at 5; read; unanswered; status Problem=Unreachable; at 8; read; ok; heard;
	update east 20 renewTime 8s promise 23s
the member has not just answered: read before a first Lease
	silent; assign lead east 20 first; read; ok; read
`)
}

// An assignment that comes from a record read too early is ignored.
func TestAssignmentOfAnOlderEpochIsIgnored(t *testing.T) {
	play(t, `
a leader is to follow in an older epoch: ignored
	leads; assign follow west 19; at 5; update east 20 renewTime 5s promise 20s
a follower is to lead in an older epoch: ignored
	follows; assign lead east 19 first; wait; status InPlace
a leader is to hold in its epoch
	leads; assign hold east 20; at 5; wait
no Lease is assigned, whatever the epoch
	leads; assign absent; remove; ok; wait; status InPlace
no Lease was assigned, then one of an older epoch
	leads; assign absent; remove; ok; assign follow west 3; create west 3 renewTime 0s
a leader is to follow in the next epoch
	leads; assign follow west 21; at 31; update west 21 renewTime 31s; ok; wait; status InPlace
a follower is to lead in the next epoch: its status is cleared
	follows; assign lead east 21 first; status none
an answer to the assignment before comes late
	leads; at 5; update east 20 renewTime 5s promise 20s; assign follow west 21; ok; update west 21 renewTime 5s
`)
}
