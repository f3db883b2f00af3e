package publish

import (
	"testing"

	"github.com/leasecast/leasecast/hub/assign"
)

// What is known by an answer only, no watch need tell of: if it goes before the watch
// knew of it, no event comes.
func TestAFollowersLeaseIsReadAgainUntilAWatchShowsIt(t *testing.T) {
	r := newRig(t)
	r.blind = true
	r.put(contentOf(renewedAt(0, term("west", 7))), testKey)
	r.assign(assign.Follow, term("west", 7))
	r.next("read").answered().next("wait 2s")
	r.at(2).next("read").answered().next("wait 2s")
	r.blind = false
	r.show()
	r.at(3).next("wait")
	r.at(60).next("wait")
}

func TestAFollowersLeaseThatAWatchShowsIsNotReadAgain(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"as it was written": func(*rig) {},
		"as somebody else has written it since": func(r *rig) {
			r.edit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.blind = true
			r.assign(assign.Follow, term("west", 7))
			r.next("read").answered().next("create west 7 renewTime 0s for 15s").answered().next("wait 2s")
			change(r)
			r.show()
			r.blind = false
			r.at(2).next("wait")
		})
	}
}
