package election_test

import (
	"testing"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

const (
	kept  = "Leading east 20 Elected next west"
	alone = "Leading east 20 Elected persist" // no other cluster may lead
)

// Rule 9: unknown is not dead, and an empty list decides nothing.
func TestLeaderIsKeptWithoutProofAgainstIt(t *testing.T) {
	inDoubt := []func(*election.State){during(young()), having(nothing())}
	afterOutage := []func(*election.State){during(afterOutage()), having(nothing())}
	decide(t, map[string]decision{
		"a fit leader":           {now: at(500), state: leading(), among: "east 100, west 50", want: kept},
		"an empty list, leading": {now: at(500), state: leading(), want: kept + " waiting NoCandidate"},
		"an empty list, while a lock is not fenced any more and priorities count again": {now: at(500),
			policy: policy(rebalanceAt(5)), state: leading(recorded(opened("a/l"))), want: kept + " waiting NoCandidate"},
		"an empty list, record lost": {now: at(500), state: lost(), want: "lost waiting NoCandidate"},
		"unknown, while a promise under the policy's D may last and the record has less": {now: at(15.5),
			state: leading(append(inDoubt, recorded(lasting(5*second)))...), among: "east 100 unknown, west 50",
			want: kept + " after 500ms persist"},
		"unknown, and a shorter D can be recorded before its promise ends: again then": {now: at(5),
			state: leading(recorded(lasting(60*second)), having(renewing(election.Sent{Until: wall(60), BootUntil: boot(60)}))),
			among: "east 100 unknown, west 50", want: kept + " after 40s"},
		"unknown, its Lease lost": {now: at(5), state: leading(leaseLost, having(renewing(sent(0)))),
			among: "east 100 unknown, west 50", want: kept + " after 11s"},
		"unknown, when all promises have passed: replaced": {now: at(16), state: leading(inDoubt...),
			among: "east 100 unknown, west 50 prepared", want: "Ending east 20 NeverReached next west persist"},
		"unknown after an outage of the hub: it has D to answer": {now: at(14.999), state: leading(afterOutage...),
			among: "east 100 unknown, west 50 prepared", want: kept + " after 1ms"},
		"unknown for D after an outage of the hub: replaced": {now: at(15), state: leading(afterOutage...),
			among: "east 100 unknown, west 50 prepared", want: "Ending east 20 NeverReached next west persist"},
		"recovering after an outage of the hub: it has D to be fit": {now: at(14.999), state: leading(afterOutage...),
			among: "east 100 Recovering, west 50 prepared", want: kept},
		"deleted, after an outage of the hub: replaced at once": {now: at(14.999), state: leading(afterOutage...),
			among: "east 100 Deleting, west 50 prepared", want: "Ending east 20 Deleting next west persist"},
		"its Cluster is gone: replaced in order": {now: at(5), state: leading(), among: "west 50",
			want: "Ending east 20 Gone next west after 11s persist"},
	})
}

// Rule 8: where another hub leads, this hub decides nothing, and its record says so.
func TestOtherHubIsLeftAlone(t *testing.T) {
	theirs := recorded(because(reason.OtherHub))
	decide(t, map[string]decision{
		"the leader must go": {now: at(500), state: leading(otherHub, leaseLost), among: "east 100 Deleting, west 50",
			want: kept + " waiting OtherHub after 2s"},
		"a vacant record gets that reason": {now: at(500), state: vacant(otherHub), among: "east 100, west 50",
			want: "Vacant nobody 20 OtherHub waiting OtherHub after 2s persist"},
		"a record that is empty but for that reason gets its state": {now: at(500), state: lost(otherHub, theirs),
			among: "east 100, west 50", want: "Vacant nobody 0 OtherHub waiting OtherHub after 2s persist"},
		"a vacant record with that reason stays": {now: at(500), state: vacant(otherHub, theirs),
			among: "east 100, west 50", want: "Vacant nobody 20 OtherHub waiting OtherHub after 2s"},
		"a record with that reason waits for what the other hub promised": {now: at(15.999),
			state: vacant(during(afterOutage()), theirs), among: "east 100, west 50",
			want: "Vacant nobody 20 OtherHub next east waiting WaitingForExpiry after 1ms persist"},
		"a lock that the policy does not fence any more closes": {
			now: at(5), state: leading(otherHub, recorded(func(r *election.Record) { r.OpenLocks = []string{"a/l"} })),
			among: "east 100, west 50", want: kept + " waiting OtherHub after 2s persist",
		},
	})
}

// Rule 10: the observer may be at fault.
func TestLeaderThatCannotBeReached(t *testing.T) {
	ends := func(why string) string { return "Ending east 20 " + why + " next west after 11s persist" }
	decide(t, map[string]decision{
		"unreachable: replaced": {now: at(5), state: leading(), among: "east 100 Unreachable, west 50",
			want: ends("Unreachable")},
		"recovering: replaced": {now: at(5), state: leading(), among: "east 100 Recovering, west 50",
			want: ends("Recovering")},
		"most became unreachable at once: kept": {now: at(5), state: leading(mostUnreachable),
			among: "east 100 Unreachable, west 50", want: kept},
		"most became unreachable at once, and the policy fails over then": {now: at(5), state: leading(mostUnreachable),
			policy: policy(failOver), among: "east 100 Unreachable, west 50", want: ends("Unreachable")},
		"expired while most are unreachable: not granted": {now: at(16),
			state: ending(reason.Unreachable, mostUnreachable), among: "east 100 Unreachable, west 50 prepared",
			want: "Ending east 20 Unreachable next west waiting MostUnreachable"},
		"expired while most are unreachable, and the policy fails over then": {now: at(16),
			state: ending(reason.Unreachable, mostUnreachable), policy: policy(failOver),
			among: "east 100 Unreachable, west 50 prepared", want: "Leading west 21 FailedOver persist"},
		"expired while most are unreachable, and an operator deletes the leader": {now: at(16),
			state: ending(reason.Deleting, mostUnreachable), among: "east 100 Deleting, west 50 prepared",
			want: "Leading west 21 HandedOver persist"},
		"expired while most are unreachable, and the leader is back": {now: at(16),
			state: ending(reason.Unreachable, mostUnreachable), among: "east 100, west 50 Unreachable",
			want: "Leading east 21 NewTerm persist"},
	})
}

// Rule 10: beyond ε nothing is promised, but nobody is safer if the namespace has no leader.
func TestLeaderWhoseClockIsOff(t *testing.T) {
	decide(t, map[string]decision{
		"replaced": {now: at(5), state: leading(), among: "east 100 ClockSkewed, west 50 prepared",
			want: "Ending east 20 ClockSkewed next west after 11s persist"},
		"no other cluster may lead: kept": {now: at(5), state: leading(),
			among: "east 100 ClockSkewed, west 50 ClockSkewed", want: alone},
		"all clocks turn out to be off while it is replaced: resumed": {now: at(5), state: ending(reason.ClockSkewed),
			among: "east 100 keeps ClockSkewed, west 50 keeps ClockSkewed", want: "Leading east 20 Resumed next west persist"},
	})
}

// Rule 10: a successor has to show that it can be written.
func TestSuccessorIsWrittenFirst(t *testing.T) {
	expired := ending(reason.Unreachable)
	decide(t, map[string]decision{
		"not written yet: waited for": {now: at(16), state: expired,
			among: "east 100 Unreachable, west 50, south 10 prepared",
			want:  "Ending east 20 Unreachable next west waiting WaitingForClusters"},
		"refused, expired: the next one is written": {now: at(16), state: expired,
			among: "east 100 Unreachable, west 50 refused, south 10",
			want:  "Ending east 20 Unreachable next south waiting WaitingForClusters persist"},
		"the record is older than the Leases: nothing is written, so nobody waits": {now: at(31),
			state: ending(reason.LeaseLost, seen(30), largest(15*second)), among: "east 100 Unreachable, west 50",
			want: "Leading west 31 FailedOver persist"},
	})
}

// Rule 12: as long as nobody else may lead, the record keeps the name of a leader that cannot be reached.
func TestUnreachedLeaderIsRemembered(t *testing.T) {
	const vacant = "Vacant nobody 20 NoCandidate waiting NoCandidate persist"
	decide(t, map[string]decision{
		"unreachable": {now: at(16), state: ending(reason.Unreachable),
			among: "east 100 Unreachable, west 50 refused, south 10 unknown",
			want:  "Ending east 20 Unreachable next west waiting NoCandidate"},
		"never reached": {now: at(16), state: ending(reason.NeverReached), among: "east 100 unknown, west 50 Unreachable",
			want: "Ending east 20 NeverReached next west waiting NoCandidate"},
		"deleted since: forgotten": {now: at(16), state: ending(reason.Unreachable),
			among: "east 100 Deleting, west 50 Unreachable", want: vacant},
		"retired, with the reason edited: forgotten": {now: at(16), state: retired(recorded(because(reason.Unreachable))),
			among: "east 100 Unreachable, west 50 Unreachable", want: vacant},
		"recovering, as the other one was until now: it has r to be fit": {now: at(16),
			state: ending(reason.Unreachable, ableSince("west", 2)),
			among: "east 100 Recovering, west 50 prepared",
			want:  "Ending east 20 Unreachable next west waiting WaitingForClusters after 5s"},
		"recovering, and so was the other one, where programs are not healthy yet: it has r to be fit": {now: at(16),
			state: ending(reason.Unreachable, ableSince("west", 2)),
			among: "east 100 Recovering, west 50 prepared unhealthy",
			want:  "Ending east 20 Unreachable next west waiting WaitingForClusters after 5s"},
		"recovering, and another one has been able to lead for D": {now: at(16),
			state: ending(reason.Unreachable, ableSince("west", 1)),
			among: "east 100 Recovering, west 50 prepared", want: "Leading west 21 FailedOver persist"},
		"recovering, and an operator orders the other one": {now: at(16),
			state: ending(reason.Unreachable, ableSince("west", 2)),
			among: "east 100 Recovering, west 50 prepared ordered", want: "Leading west 21 FailedOver persist"},
		"recovering, but an operator moved the lead": {now: at(16), state: ending(reason.PriorityChanged),
			among: "east 10 Recovering, west 50 prepared", want: "Leading west 21 HandedOver persist"},
	})
}

// Rule 11: a paused Cluster keeps what it has and gets nothing new.
func TestPausedCluster(t *testing.T) {
	decide(t, map[string]decision{
		"leads: kept": {now: at(5), state: leading(), among: "east 100 Paused, west 50", want: kept},
		"leads under another Lease name: kept": {now: at(5), state: leading(recorded(renamed)),
			among: "east 100 Paused, west 50", want: kept},
		"leads, its Lease lost: replaced": {now: at(5), state: leading(leaseLost), among: "east 100 Paused, west 50",
			want: "Ending east 20 LeaseLost next west after 11s persist"},
		"is the best successor: passed over": {now: at(16), state: ending(reason.Unreachable),
			among: "east 100 Unreachable, west 50 Paused prepared, south 10 prepared",
			want:  "Leading south 21 FailedOver persist"},
	})
}

// Rule 12: recovery moves nothing, an edit of a priority does.
func TestWhatMovesHealthyLeader(t *testing.T) {
	ends := func(next string) string {
		return "Ending east 20 PriorityChanged next " + next + " after 11s persist"
	}
	leadingWith := func(observed map[string]int32) election.State { return leading(recorded(observing(observed))) }
	below := map[string]int32{"east": 100, "west": 200} // east leads although west has been above it
	decide(t, map[string]decision{
		"a better cluster recovers: no": {now: at(5), state: leadingWith(below), among: "east 100, west 200", want: kept},
		"another raised to the same: no": {now: at(5), state: leading(), among: "east 100, west 100",
			want: kept + " persist"},
		"a new cluster above it: yes": {now: at(5), state: leading(), among: "east 100, west 50, north 300",
			want: ends("north")},
		"a negative priority that was never observed: no": {now: at(5), state: leadingWith(map[string]int32{"west": 3}),
			among: "east -5, west 3", want: kept + " persist"},
		"another Lease name: a new term of the same leader": {now: at(5), state: leading(recorded(renamed)),
			among: "east 100, west 50", want: "Ending east 20 LeaseRenamed next east after 11s persist"},
		"raised above it while its fence is missing: no": {now: at(5), state: leading(),
			among: "east 100 unfenced, west 200", want: kept},
		"raised above it before its fence was checked: no": {now: at(5), state: leading(),
			among: "east 100 unchecked, west 200", want: kept},
	})
}
