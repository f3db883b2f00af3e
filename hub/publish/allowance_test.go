package publish

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease/wire"
)

// A reader takes the policy's ε from the Lease, whatever its author has set.
func TestALeaseSaysWhatThePolicyAllowsClocks(t *testing.T) {
	says := func(r *rig, want time.Duration) {
		r.t.Helper()
		if c, seal := wire.Read(r.there); c.Skew != want || !testKey.Sealed(c, seal) {
			r.t.Errorf("the Lease allows %v (sealed: %v), want %v", c.Skew, testKey.Sealed(c, seal), want)
		}
	}
	run(t, map[string]func(*rig){
		"a leader's, from the next renewal on": func(r *rig) {
			r.leads()
			r.syncer.timings.Skew = second
			r.at(5).next("update east 20 renewTime 5s for 15s promise 20s").answered()
			says(r, second)
		},
		"a follower's, which is written anew when it changes": func(r *rig) {
			r.follows()
			r.syncer.timings.Skew = second
			r.next("update west 20 renewTime 0s for 15s").answered().next("wait")
			says(r, second)
			r.syncer.timings.Skew = second / 4
			r.next("update west 20 renewTime 0s for 15s").answered()
			says(r, second/4)
		},
		"a follower's is left as it is where there is no policy any more": func(r *rig) {
			r.follows()
			r.syncer.timings.Skew = second
			r.next("update west 20 renewTime 0s for 15s").answered()
			r.syncer.timings.Skew = 0
			r.next("wait")
			says(r, second)
		},
	})
}
