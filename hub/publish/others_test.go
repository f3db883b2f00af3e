package publish

import (
	"testing"

	"github.com/leasecast/leasecast/api/reason"
)

// Some Leases are never overwritten, whatever the Lease has to be.
func TestLeaseThatIsNeverOverwritten(t *testing.T) {
	for name, test := range map[string]struct {
		lease   string
		problem reason.Reason
	}{
		"another client's":              {"lease west 20 at -2 stripped", reason.ForeignLease},
		"another hub's":                 {"lease west 20 at -2 by=another unsealed", reason.OtherHub},
		"another hub's of the same key": {"lease west 20 at -2 by=another", reason.OtherHub},
		"another member's":              {"lease west 20 at -2 of=west.fleet", reason.WrongCluster},
		"another member's, unsealed":    {"lease west 20 at -2 of=west.fleet unsealed", reason.WrongCluster},
	} {
		problem := "status Problem=" + string(test.problem)
		for role, then := range map[string]string{
			"lead east 21 first": "create east 21 renewTime 2s promise 17s",
			"follow west 21":     "create west 21 renewTime 2s",
			"absent":             "wait; status InPlace",
		} {
			play(t, name+", "+role+": read again every 2 s until it is gone\n\tunwatched; "+test.lease+"; assign "+role+
				"; read; ok; wait 2s; "+problem+"; at 1; wait 1s; at 2; read; "+problem+"; vanishes; ok; "+then)
		}
		if test.problem != reason.ForeignLease { // a watch never shows a Lease without the hub's label
			play(t, name+", shown by a watch: read when it is gone\n\t"+test.lease+"; assign follow west 21; read; ok; wait; "+
				"at 100; wait; "+problem+"; deleted; read; ok; create west 21 renewTime 1m40s")
		}
		play(t, name+", on hold: reported\n\t"+test.lease+"; shown; assign hold; wait; "+problem)
	}
}

// The own Lease is repaired, also if an edit of its marks makes it look like another's.
func TestWhoseALeaseIs(t *testing.T) {
	play(t, `
edited to name another hub: repaired
	follows; edit hub=another; shown; update west 20 renewTime 0s
edited to name another hub, read at the start: repaired
	lease west 20 at -2 hub=another; assign follow west 20; read; ok; update west 20 renewTime 0s
edited to name another cluster, with another duration: repaired
	follows; edit cluster=west.fleet duration=10; shown; update west 20 renewTime 0s
an object once seen sealed, without labels and annotations: repaired
	lease west 20 at -2; assign follow west 20; read; ok; wait; edit stripped; gone; read; ok;
	update west 20 renewTime 0s
another object without labels and annotations: left alone
	follows; lease west 20 at -2 stripped; gone; unwatched; read; ok; wait 2s; status Problem=ForeignLease
the own object, sealed for another cluster: left alone
	follows; lease west 20 at 0 of=west.fleet sameObject; shown; wait; status Problem=WrongCluster
`)
}

// Rule 8: a Lease without a mark is taken by compare-and-swap. One with another hub's mark is not.
func TestLeaseOfAnotherHub(t *testing.T) {
	play(t, `
a leader's without a mark: renewed at once, with the own mark
	lease east 20 at 0 by=; assign lead east 20; read; ok; update east 20 renewTime 0s promise 15s; mark none; ok;
	wait firstRenewal; mark ours; hub hub
a leader's without a mark, taken by another hub first: left alone
	lease east 20 at -1 by=; assign lead east 20; read; ok; update east 20 renewTime 0s promise 15s;
	lease east 20 at 0 by=another; ok; read; ok; wait; status Problem=OtherHub
`)
}

// Two tenures that overlap must not undo each other's work. The record rises above a sealed Lease that is newer.
func TestSealedNewerLeaseIsNeverOverwritten(t *testing.T) {
	const newer = "\tleads; lease nobody 21 at 1; shown; at 1;"
	play(t, `
a leader's
`+newer+` assign lead east 20; read; ok; wait; status Newer=21 Problem=LeaseLost
a follower's: until the record is above it
`+newer+` assign follow west 20; read; ok; wait; status Newer=21 Problem=LeaseLost;
	assign follow west 22; wait 500ms; at 2; update west 22 renewTime 2s; ok; wait; status InPlace
one that is revoked
`+newer+` assign revoke east 20 revokes=20; read; ok; wait; status Newer=21 Problem=LeaseLost
a sealed Lease of an absurd epoch: replaced
	lease south 2000000000 at -2; assign follow west 20; read; ok; remove
`)
}

// Rule 11: the hub that its Clusters leave removes its mark from the Leases, and leaves the terms as they are.
func TestRelinquishedLease(t *testing.T) {
	play(t, `
a leader's: its mark is removed, its term and renewTime stay
	leads; mark none; relinquish; at 4; update east 20 renewTime 0s; ok; wait; mark none; hub none
a leader's, assigned again: not renewed any more
	leads; relinquish; at 4; update east 20 renewTime 0s; ok; assign lead east 20 first; at 9; wait
a follower's: its mark is removed
	follows; mark ours; relinquish; at 4; update west 20 renewTime 0s; ok; wait; mark none; hub none
in doubt: read first
	follows; relinquish; in doubt; read; ok; update west 20 renewTime 0s
taken by the other hub: left alone
	follows; lease west 20 at 0 by=another; relinquish; update west 20 renewTime 0s; ok; read; ok; wait; hub another
no right to write: not written
	follows; relinquish; may not; wait 100ms
`)
}

// A term is revoked by a Lease without a holder. The last renewTime is zero.
func TestRevokedLease(t *testing.T) {
	const revoke = "assign revoke nobody 21 revokes=20"
	play(t, `
live: replaced by one without a holder, which promises nothing
	leads; at 2; `+revoke+`; update nobody 21 renewTime 2s revokes 20; ok; wait; status InPlace
expired: left alone
	leads; at 15; `+revoke+`; wait; status none
of an earlier term: left alone
	leads; at 2; assign revoke nobody 23 revokes=22; wait
edited to promise no more: left alone
	leads; at 2; edit duration=10; shown; `+revoke+`; wait
edited to promise more: repaired first
	leads; at 2; edit duration=60; shown; `+revoke+`; update east 20 renewTime 0s promise 17s;
	ok; update nobody 21 renewTime 2s revokes 20
missing: not created
	leads; at 2; deleted; `+revoke+`; read; ok; wait
renewed in the meantime: read and revoked
	leads; at 2; touched; `+revoke+`; update nobody 21 renewTime 2s revokes 20; ok; read; ok;
	update nobody 21 renewTime 2s revokes 20; ok
no right to write: not revoked
	leads; at 2; `+revoke+`; may not; wait 100ms
replaced by one without a seal: not revoked
	leads; at 2; `+revoke+`; lease nobody 21 at 2 unsealed; shown; read; ok; wait; status none
`)
}
