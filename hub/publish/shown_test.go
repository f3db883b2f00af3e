package publish

import "testing"

// If a Lease is deleted before a watch has shown it, no event comes.
func TestFollowersLeaseIsReadAgainUntilAWatchShowsIt(t *testing.T) {
	play(t, `
it was there before: read every 2 s until it is shown
	unwatched; lease west 7 at 0; assign follow west 7; read; ok; wait 2s; at 2; read; ok; wait 2s; watched; shown;
	at 3; wait; at 60; wait
events of other versions do not delay the read
	unwatched; lease west 7 at 0; assign follow west 7; read; ok; wait 2s; at 1; wait 1s; at 2; read
it was created, and shown
	unwatched; assign follow west 7; read; ok; create west 7 renewTime 0s; ok; wait 2s; shown; watched; at 2; wait
it was created, and shown as another client has written it since
	unwatched; assign follow west 7; read; ok; create west 7 renewTime 0s; ok; wait 2s; touched; shown; watched; at 2; wait
`)
}

// A reader takes the policy's ε from the Lease.
func TestLeaseHasThePolicysSkew(t *testing.T) {
	play(t, `
a leader's, from the next renewal on
	leads; ε 1; at 5; update east 20 renewTime 5s promise 20s; ok; allows 1
a follower's, which is written again when it changes
	follows; ε 1; update west 20 renewTime 0s; ok; wait; allows 1; ε 0.25; update west 20 renewTime 0s; ok; allows 0.25
a follower's without a policy stays
	follows; ε 1; update west 20 renewTime 0s; ok; ε 0; wait; allows 1
`)
}
