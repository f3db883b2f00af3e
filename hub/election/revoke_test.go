package election_test

import (
	"testing"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// Rules 4 and 5: a term is revoked, and the next one begins, when the readers' releases can count. West was raised
// above east, which was renewed at zero.
func TestRevocation(t *testing.T) {
	ack := policy(acknowledged)
	const (
		both    = "east 100, west 200 prepared"
		waits   = "Ending east 20 PriorityChanged next west waiting WaitingForExpiry after "
		asks    = "Ending east 21 PriorityChanged next west waiting WaitingForReaders after "
		granted = "Leading west 22 HandedOver next east persist"
	)
	end := func(changes ...func(*election.State)) election.State {
		return ending(reason.PriorityChanged, changes...)
	}
	asked := func(changes ...func(*election.State)) election.State {
		return end(append([]func(*election.State){recorded(revoked)}, changes...)...)
	}
	fenced := having(withStop(17*second, sent(0)))
	slower := having(withEarlier(8, sent(0)))
	inherited := []func(*election.State){during(young()), having(sent(10)), recorded(notBefore(26))}
	leaderless := asked(released, recorded(because(reason.Gone), ledBy("")))
	decide(t, map[string]decision{
		"leading: the end is recorded first": {now: at(2), policy: ack, among: both, state: leading(),
			want: "Ending east 20 PriorityChanged next west after 14s persist"},
		"retired: it ends first": {now: at(2), policy: ack, among: both, state: retired(),
			want: "Ending east 20 PolicyGone next west waiting WaitingForExpiry after 14s persist"},
		"ending: revoked": {now: at(2), policy: ack, state: end(), among: both,
			want: asks + "14s persist"},
		"ending, readers need not register: no": {now: at(2), state: end(), among: both, want: waits + "14s"},
		"ending, the successor is not written: no": {now: at(2), policy: ack, state: end(), among: "east 100, west 200",
			want: waits + "14s"},
		"ending, no Lease of the leader is live: no": {now: at(15), policy: ack, state: end(), among: both,
			want: waits + "1s"},
		"ending, the leader is its successor: no": {now: at(2), policy: ack,
			state: ending(reason.LeaseLost, leaseLost, recorded(followedBy("east"))), among: "east 100, west 50 prepared",
			want: "Ending east 20 LeaseLost next east waiting WaitingForExpiry after 14s"},
		"ending, an earlier tenure's promise may last: no": {now: at(15.999), policy: ack, state: end(inherited...),
			among: both, want: waits + "10.001s"},
		"ending, an earlier tenure's promise has passed: revoked": {now: at(16), policy: ack, state: end(inherited...),
			among: both, want: asks + "10s persist"},
		"ending, a newer term was seen: no": {now: at(2), policy: ack, state: end(seen(21)), among: both,
			want: waits + "14s"},
		"ending, locks were fenced under it: no": {now: at(2), policy: ack, state: end(fenced, recorded(notBefore(33))),
			among: both, want: waits + "16s"},
		"ending, slower locks were fenced before, by the wall clock: no": {now: clocks(2, 9), policy: ack, among: both,
			state: end(slower), want: waits + "14s"},
		"ending, slower locks were fenced before, by the boot clock: no": {now: clocks(9, 2), policy: ack, among: both,
			state: end(slower), want: waits + "14s"},
		"ending, slower locks were fenced before, and must have been released: revoked": {now: at(8), policy: ack,
			among: both, state: end(slower), want: asks + "8s persist"},
		"ending, most are unreachable: no": {now: at(2), policy: ack,
			among: "east 100 Unreachable answering, west 50 prepared", state: ending(reason.Unreachable, mostUnreachable),
			want: ends + "14s"},
		"ending, released before it was revoked": {now: at(2), policy: ack, state: end(released),
			among: "east 100 silent, west 200 prepared", want: waits + "14s"},
		"revoked: not again": {now: at(2), policy: ack, state: asked(), among: both, want: asks + "14s"},
		"revoked, all readers released": {now: at(2), policy: ack, state: asked(released), among: both,
			want: granted},
		"released, but readers need not register": {now: at(2), state: asked(released), among: both, want: asks + "14s"},
		"released, but locks were fenced under it": {now: at(2), policy: ack,
			state: asked(released, fenced, recorded(notBefore(33))), among: both, want: asks + "16s"},
		"released, but an earlier tenure's promise may last": {now: at(15.999), policy: ack,
			state: asked(append(inherited, released)...), among: both, want: asks + "10.001s"},
		"released, the edit was reverted: a new term": {now: at(2), policy: ack, state: asked(released),
			among: "east 100, west 50 prepared", want: "Leading east 22 NewTerm next west persist"},
		"released, the record names no leader, and no cluster may lead": {now: at(2), policy: ack, state: leaderless,
			among: "west 50 Unreachable", want: "Ending nobody 21 Gone waiting WaitingForReaders after 14s persist"},
		"not released, 1 ms before the expiry": {now: at(15.999), policy: ack, state: asked(), among: both,
			want: asks + "1ms"},
		"not released, expired": {now: at(16), policy: ack, state: asked(), among: both, want: granted},
		"not released, expired, the successor is not written: in the revocation's epoch": {now: at(16), policy: ack,
			state: asked(), among: "east 100, west 200",
			want: "Ending east 21 PriorityChanged next west waiting WaitingForClusters persist"},
		"not released, the edit was reverted: never resumed": {now: at(2), policy: ack, state: asked(),
			among: "east 100, west 50 prepared",
			want:  "Ending east 21 PriorityChanged next east waiting WaitingForReaders after 14s persist"},
	})
}
