package publish

import (
	"testing"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
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

// marks fails the test unless the status has this of the mark.
func (r *rig) marks(ours, none bool) *rig {
	r.t.Helper()
	if f := r.syncer.status; f.Marked != ours || f.Unmarked != none {
		r.t.Fatalf("marked %v, unmarked %v, want %v, %v", f.Marked, f.Unmarked, ours, none)
	}
	return r
}

// Rule 11: the hub that its Clusters leave says on the Leases that it has stopped, and leaves the terms as they are.
func TestRelinquishedLease(t *testing.T) {
	play(t, `
a leader's: its mark is removed, its term and renewTime stay
	leads; mark unknown; relinquish; at 4; update east 20 renewTime 0s; ok; wait; mark none; hub none
a leader's, assigned again: not renewed any more
	leads; relinquish; at 4; update east 20 renewTime 0s; ok; assign lead east 20 first; at 9; wait
a follower's: its mark is removed
	follows; mark ours; relinquish; at 4; update west 20 renewTime 0s; ok; wait; mark none; hub none
in doubt: read first
	follows; relinquish; in doubt; read; ok; update west 20 renewTime 0s
taken by the other hub: left alone
	follows; lease west 20 at 0 by=another; relinquish; update west 20 renewTime 0s; ok; read; ok; wait; hub another
not sealed: left alone
	lease west 20 at 0 unsealed; relinquish; read; ok; wait
missing: not created
	assign lead east 20 first; relinquish; read; ok; wait
no right to write: not written
	follows; relinquish; may not; wait 100ms
`)
}

// Rule 8: what carries no mark is taken by compare-and-swap; what carries another's is not.
func TestLeaseOfAnotherHub(t *testing.T) {
	play(t, `
a leader's without a mark: renewed at once, with the own mark
	lease east 20 at 0 by=; assign lead east 20; read; ok; update east 20 renewTime 0s promise 15s; mark none; ok;
	wait firstRenewal; mark ours; hub hub
a leader's without a mark, expired: lost
	lease east 20 at -15 by=; assign lead east 20; read; ok; wait; status Lost
a leader's without a mark, taken by another hub first: left alone
	lease east 20 at -1 by=; assign lead east 20; read; ok; update east 20 renewTime 0s promise 15s;
	lease east 20 at 0 by=another; ok; read; ok; wait; status Problem=OtherHub
a follower's without a mark: updated
	lease west 20 at -1 by=; assign follow west 20; read; ok; update west 20 renewTime 0s; ok; wait; mark ours; hub hub
edited to have no mark: updated
	follows; edit hub=; shown; update west 20 renewTime 0s; ok; hub hub
the mark of another hub with the same key: left alone
	lease east 20 at -1 by=another; assign lead east 20; read; ok; wait; status Problem=OtherHub
`)
}
