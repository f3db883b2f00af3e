package publish

import (
	"testing"

	"github.com/leasecast/leasecast/api/lease"
)

// What is known by an answer only, no watch need tell of: if it goes before the watch
// knew of it, no event comes.
func TestAFollowersCopyIsReadAgainUntilAWatchShowsIt(t *testing.T) {
	r := newRig(t)
	r.blind = true
	r.put(copyOf(stamped(0, term("west", 7))), testKey)
	r.assign(lease.Follow, term("west", 7))
	r.next("read").answered().next("wait 2s")
	r.at(2).next("read").answered().next("wait 2s")
	r.blind = false
	r.show()
	r.at(3).next("wait")
	r.at(60).next("wait")
}
