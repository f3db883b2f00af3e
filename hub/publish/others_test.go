package publish

import "testing"

// Some Leases are never overwritten, whatever the Lease has to be.
func TestLeaseThatIsNeverOverwritten(t *testing.T) {
	play(t, `
another client's: read again every 2 s until it is gone
	unwatched; lease west 20 at -2 stripped; assign lead east 21 first; read; ok; wait 2s; status Problem=ForeignLease;
	at 1; wait 1s; at 2; read; status Problem=ForeignLease; vanishes; ok; create east 21 renewTime 2s promise 17s
another hub's, sealed with the same key: not removed
	unwatched; lease west 20 at -2 by=another; assign absent; read; ok; wait 2s; status Problem=OtherHub; vanishes; at 2;
	read; ok; wait; status InPlace
another hub's, shown by a watch: read when it is gone
	lease west 20 at -2 by=another unsealed; assign follow west 21; read; ok; wait; at 100; wait;
	status Problem=OtherHub; deleted; read; ok; create west 21 renewTime 1m40s
another member's, on hold: reported
	lease west 20 at -2 of=west.fleet; shown; assign hold; wait; status Problem=WrongCluster
another member's, unsealed: not overwritten
	lease west 20 at -2 of=west.fleet unsealed; assign follow west 21; read; ok; wait; status Problem=WrongCluster
`)
}

// The own Lease is repaired, also if an edit of its marks makes it look like another's.
func TestWhoseALeaseIs(t *testing.T) {
	play(t, `
edited to name another hub: repaired
	follows; edit hub=another; shown; update west 20 renewTime 0s
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
a sealed Lease of an absurd epoch: replaced
	lease south 2000000000 at -2; assign follow west 20; read; ok; remove
`)
}

// Rule 11: the hub that its Clusters leave removes its mark from the Leases, and leaves the terms as they are.
func TestRelinquishedLease(t *testing.T) {
	play(t, `
a leader's: its mark is removed, its term and renewTime stay
	leads; mark none; relinquish; at 4; update east 20 renewTime 0s; ok; wait; mark none; hub none
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
no right to write: not revoked
	leads; at 2; `+revoke+`; may not; wait 100ms
replaced by one without a seal: not revoked
	leads; at 2; `+revoke+`; lease nobody 21 at 2 unsealed; shown; read; ok; wait; status none
`)
}
