package election_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

func leading(changes ...func(*election.State)) election.State {
	s := election.State{Record: record(election.Leading, "east", followedBy("west")), Tenure: settled(), Sent: sent(0)}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func draining(why reason.Reason, changes ...func(*election.State)) election.State {
	return leading(append([]func(*election.State){func(s *election.State) {
		s.Record = record(election.Draining, "east", because(why), followedBy("west"), notBefore(16))
	}}, changes...)...)
}

func during(tn election.Tenure) func(*election.State) {
	return func(s *election.State) { s.Tenure = tn }
}

func having(sent election.Sent) func(*election.State) {
	return func(s *election.State) { s.Sent = sent }
}

func mostUnreachable(s *election.State) { s.MostUnreachable = true }

func copyLost(s *election.State) { s.LeaseLost = true }

func otherHub(s *election.State) { s.OtherHub = true }

func recorded(changes ...func(*election.Record)) func(*election.State) {
	return func(s *election.State) {
		for _, change := range changes {
			change(&s.Record)
		}
	}
}

func ledBy(name string) func(*election.State) {
	return recorded(func(r *election.Record) { r.Leader = name })
}

func failOver(p *election.Policy) { p.FailOverWhenMostUnreachable = true }

const (
	kept     = "Leading east 20 Elected next west"
	mustWait = "Leading east 20 Elected" // and nobody to take over
)

// Rules 8 and 9: whom nobody deposes.
func TestNobodyIsDeposedWithoutAReason(t *testing.T) {
	theirs := record(election.Vacant, "", because(reason.OtherHub))
	east, west := fit("east", 100), fit("west", 50)
	decide(t, map[string]decision{
		"a fit leader stays": {
			now: at(5), state: leading(), among: []election.Candidate{east, west}, want: kept,
		},
		"also when its Lease is long past, as far as the promises goes": {
			now: at(500), state: leading(), among: []election.Candidate{east, west}, want: kept,
		},
		"an empty list decides nothing: neither a leader": {
			now: at(500), state: leading(), want: kept + " waiting NoCandidate",
		},
		"nor a draining one": {
			now: at(500), state: draining(reason.Unreachable),
			want: "Draining east 20 Unreachable next west waiting NoCandidate",
		},
		"nor a lost record": {
			now: at(500), state: election.State{Tenure: settled(), Sent: closed()}, want: "lost waiting NoCandidate",
		},
		"unknown is not dead while a promise may stand": {
			now: at(15.999), state: leading(during(young()), having(open(closed()))),
			among: []election.Candidate{unknown("east", 100), west}, want: kept + " after 1ms",
		},
		"nor before what this tenure sent has passed": {
			now: at(15.999), state: leading(having(open(sent(0)))),
			among: []election.Candidate{unknown("east", 100), west}, want: kept + " after 1ms",
		},
		"an unknown leader is replaced when all that it can have been promised has passed": {
			now: at(16), state: leading(during(young()), having(closed())),
			among: []election.Candidate{unknown("east", 100), prepared(west)},
			want:  "Draining east 20 NeverReached next west persist",
		},
		"after an outage of the hub, when everything has passed, it has D to answer": {
			now: at(14.999), state: leading(during(afterOutage()), having(closed())),
			among: []election.Candidate{unknown("east", 100), prepared(west)}, want: kept + " after 1ms",
		},
		"and no longer": {
			now: at(15), state: leading(during(afterOutage()), having(closed())),
			among: []election.Candidate{unknown("east", 100), prepared(west)},
			want:  "Draining east 20 NeverReached next west persist",
		},
		"so has one that begins to answer": {
			now: at(14.999), state: leading(during(afterOutage()), having(closed())),
			among: []election.Candidate{unfit("east", 100, reason.Recovering), prepared(west)}, want: kept,
		},
		"one whose Lease has run out meanwhile is waited for": {
			now: at(14.999), state: draining(reason.LeaseLost, during(afterOutage()), having(closed())),
			among: []election.Candidate{unknown("east", 100), prepared(west)},
			want:  "Draining east 20 LeaseLost next west waiting WaitingForClusters after 1ms",
		},
		"also until its Leases are protected": {
			now: at(14.999), state: draining(reason.LeaseLost, during(afterOutage()), having(closed())),
			among: []election.Candidate{keeping("east", 100, reason.Unguarded), prepared(west)},
			want:  "Draining east 20 LeaseLost next west waiting WaitingForClusters after 1ms",
		},
		"and then leads on": {
			now: at(14.999), state: draining(reason.LeaseLost, during(afterOutage()), having(closed())),
			among: []election.Candidate{east, prepared(west)}, want: "Leading east 21 NewTerm next west persist",
		},
		"nobody waits for one that was lost for a reason that stands": {
			now: at(14.999), state: draining(reason.Unreachable, during(afterOutage()), having(closed())),
			among: []election.Candidate{unfit("east", 100, reason.Deleting), prepared(west)}, want: "Leading west 21 FailedOver persist",
		},
		"but not if nobody else may lead": {
			now: at(16), state: leading(during(young()), having(closed())),
			among: []election.Candidate{unknown("east", 100), unknown("west", 50)}, want: mustWait + " persist",
		},
		"a Cluster that is gone ends its term in order": {
			now: at(5), state: leading(), among: []election.Candidate{west},
			want: "Draining east 20 Gone next west after 11s persist",
		},
		"where another hub writes, this one deposes nobody, whatever it thinks": {
			now: at(500), state: leading(otherHub, copyLost), among: []election.Candidate{unfit("east", 100, reason.Deleting), west},
			want: kept + " waiting OtherHub after 2s",
		},
		"and grants nobody": {
			now: at(500), state: draining(reason.Deleting, otherHub), among: []election.Candidate{unfit("east", 100, reason.Deleting), prepared(west)},
			want: "Draining east 20 Deleting next west waiting OtherHub after 2s",
		},
		"not even in a namespace that is new to it": {
			now: at(500), state: election.State{Tenure: settled(), Sent: closed(), OtherHub: true},
			among: []election.Candidate{east, west}, want: "Vacant nobody 0 OtherHub waiting OtherHub after 2s persist",
		},
		"a record that nobody leads by says so, too": {
			now: at(500), among: []election.Candidate{east, west},
			state: election.State{Record: record(election.Vacant, ""), Tenure: settled(), Sent: closed(), OtherHub: true},
			want:  "Vacant nobody 20 OtherHub waiting OtherHub after 2s persist",
		},
		"also one that an edit has emptied but of the reason": {
			now: at(500), among: []election.Candidate{east, west},
			state: election.State{
				Record: election.Record{Reason: reason.OtherHub}, Tenure: settled(), Sent: closed(), OtherHub: true,
			},
			want: "Vacant nobody 0 OtherHub waiting OtherHub after 2s persist",
		},
		"once": {
			now: at(500), among: []election.Candidate{east, west},
			state: election.State{Record: theirs, Tenure: settled(), Sent: closed(), OtherHub: true},
			want:  "Vacant nobody 20 OtherHub waiting OtherHub after 2s",
		},
		"a tenure that reads so counts from its own start, and the next one does, too": {
			now: at(15.999), among: []election.Candidate{east, west},
			state: election.State{Record: theirs, Tenure: afterOutage(), Sent: closed()},
			want:  "Vacant nobody 20 OtherHub next east waiting WaitingForExpiry after 1ms persist",
		},
		"then it grants": {
			now: at(16), among: []election.Candidate{east, west},
			state: election.State{Record: theirs, Tenure: afterOutage(), Sent: closed()},
			want:  "Leading east 21 Elected next west persist",
		},
		"a lock that is not fenced any more closes meanwhile": {
			now: at(5), among: []election.Candidate{east, west},
			state: leading(otherHub, recorded(func(r *election.Record) { r.OpenLocks = []string{"a/l"} })),
			want:  kept + " waiting OtherHub after 2s persist",
		},
		"and retires nothing": {
			now: at(500), noPolicy: true, state: leading(otherHub), want: kept + " waiting OtherHub after 2s",
		},
	})
}

// Rule 10: the observer may be at fault.
func TestALeaderThatCannotBeReached(t *testing.T) {
	lost, west := unfit("east", 100, reason.Unreachable), fit("west", 50)
	const drained = "Draining east 20 Unreachable next west after 11s persist"
	decide(t, map[string]decision{
		"is replaced":             {now: at(5), state: leading(), among: []election.Candidate{lost, west}, want: drained},
		"a recovering one too":    {now: at(5), state: leading(), among: []election.Candidate{unfit("east", 100, reason.Recovering), west}, want: "Draining east 20 Recovering next west after 11s persist"},
		"one that refuses us too": {now: at(5), state: leading(), among: []election.Candidate{unfit("east", 100, reason.Forbidden), west}, want: "Draining east 20 Forbidden next west after 11s persist"},
		"unless nobody else may lead": {
			now: at(5), state: leading(), among: []election.Candidate{lost, unfit("west", 50, reason.Unreachable)}, want: mustWait + " persist",
		},
		"a refused successor is none": {
			now: at(5), state: leading(), among: []election.Candidate{lost, refused(west)}, want: mustWait + " persist",
		},
		"when most became unreachable at once, the leader is held": {
			now: at(5), state: leading(mostUnreachable), among: []election.Candidate{lost, west}, want: kept,
		},
		"or replaced, if the policy says so": {
			now: at(5), state: leading(mostUnreachable), policy: policy(failOver), among: []election.Candidate{lost, west}, want: drained,
		},
		"what an operator asks for is not the observer's fault": {
			now: at(5), state: leading(mostUnreachable), among: []election.Candidate{unfit("east", 100, reason.Deleting), west},
			want: "Draining east 20 Deleting next west after 11s persist",
		},
		"and is done even when nobody else may lead": {
			now: at(5), state: leading(), among: []election.Candidate{unfit("east", 100, reason.Deleting), unknown("west", 50)},
			want: "Draining east 20 Deleting after 11s persist",
		},
		"a bound that has passed grants nobody while most are unreachable": {
			now: at(16), state: draining(reason.Unreachable, mostUnreachable), among: []election.Candidate{lost, prepared(west)},
			want: "Draining east 20 Unreachable next west waiting MostUnreachable",
		},
		"unless the policy says so": {
			now: at(16), state: draining(reason.Unreachable, mostUnreachable), policy: policy(failOver), among: []election.Candidate{lost, prepared(west)},
			want: "Leading west 21 FailedOver persist",
		},
		"or an operator asked for the change": {
			now: at(16), state: draining(reason.Deleting, mostUnreachable), among: []election.Candidate{unfit("east", 100, reason.Deleting), prepared(west)},
			want: "Leading west 21 HandedOver persist",
		},
		"or it is the leader itself that came back": {
			now: at(16), state: draining(reason.Unreachable, mostUnreachable), among: []election.Candidate{fit("east", 100), unfit("west", 50, reason.Unreachable)},
			want: "Leading east 21 NewTerm persist",
		},
	})
}

// A clock beyond ε breaks what the promise rests on, but nobody is the safer for a namespace that
// nobody leads.
func TestALeaderWhoseClockIsOff(t *testing.T) {
	off, west := unfit("east", 100, reason.ClockSkewed), prepared(fit("west", 50))
	behind := func(d time.Duration) func(*election.State) {
		return func(s *election.State) { s.Behind = d }
	}
	const waits = "Draining east 20 ClockSkewed next west waiting WaitingForExpiry after "
	decide(t, map[string]decision{
		"is replaced": {
			now: at(5), state: leading(), among: []election.Candidate{off, west},
			want: "Draining east 20 ClockSkewed next west after 11s persist",
		},
		"unless nobody else may lead": {
			now: at(5), state: leading(), among: []election.Candidate{off, unfit("west", 50, reason.ClockSkewed)}, want: mustWait + " persist",
		},
		"or it only keeps what it has, because all clocks are off": {
			now: at(5), state: leading(), want: mustWait + " persist",
			among: []election.Candidate{keeping("east", 100, reason.ClockSkewed), keeping("west", 50, reason.ClockSkewed)},
		},
		"by the safe path: not before D + ε after its last renewTime": {
			now: at(15.999), state: draining(reason.ClockSkewed), among: []election.Candidate{off, west}, want: waits + "1ms",
		},
		"and that is the change": {
			now: at(16), state: draining(reason.ClockSkewed), among: []election.Candidate{off, west}, want: "Leading west 21 HandedOver persist",
		},
		"nor before its clock can have reached its deadline": {
			now: at(18.999), state: draining(reason.ClockSkewed, behind(4*second)), among: []election.Candidate{off, west}, want: waits + "1ms persist",
		},
		"that too is the change": {
			now: at(19), state: draining(reason.ClockSkewed, behind(4*second)), among: []election.Candidate{off, west}, want: "Leading west 21 HandedOver persist",
		},
		"a clock that is behind by less than ε shortens nothing": {
			now: at(15.999), state: draining(reason.ClockSkewed, behind(second/2)), among: []election.Candidate{off, west}, want: waits + "1ms",
		},
		"one that is behind by years is waited for another D": {
			now: at(29.999), state: draining(reason.ClockSkewed, behind(1e6*second)), among: []election.Candidate{off, west}, want: waits + "1ms persist",
		},
		"and no longer": {
			now: at(30), state: draining(reason.ClockSkewed, behind(1e6*second)), among: []election.Candidate{off, west}, want: "Leading west 21 HandedOver persist",
		},
		"what an earlier tenure promised is waited for as long": {
			now: at(18.999), state: draining(reason.ClockSkewed, behind(4*second), during(young()), having(closed())),
			among: []election.Candidate{off, west}, want: waits + "1ms persist",
		},
		"if all clocks turn out to be off, it goes on": {
			now: at(5), state: draining(reason.ClockSkewed), want: "Leading east 20 Resumed next west persist",
			among: []election.Candidate{keeping("east", 100, reason.ClockSkewed), keeping("west", 50, reason.ClockSkewed)},
		},
	})
}

// Rule 12, for clocks: nobody takes anything back because its clock was put right.
func TestAClockThatWasPutRightMovesNothing(t *testing.T) {
	decide(t, map[string]decision{
		"the better cluster stays a follower": {
			now: at(5), state: leading(recorded(func(r *election.Record) { r.Leader = "west" })),
			among: []election.Candidate{fit("east", 100), fit("west", 50)}, want: "Leading west 20 Elected next east persist",
		},
	})
}

// Rule 10: while draining, the successor's follower Lease is written first.
func TestASuccessorThatCannotBeWrittenIsNone(t *testing.T) {
	lost := unfit("east", 100, reason.Unreachable)
	west, south := fit("west", 50), fit("south", 10)
	decide(t, map[string]decision{
		"a successor that is not prepared is waited for": {
			now: at(16), state: draining(reason.Unreachable), among: []election.Candidate{lost, west, prepared(south)},
			want: "Draining east 20 Unreachable next west waiting WaitingForClusters",
		},
		"a refused one is passed over": {
			now: at(16), state: draining(reason.Unreachable), among: []election.Candidate{lost, refused(west), prepared(south)},
			want: "Leading south 21 FailedOver persist",
		},
		"then the next one is prepared": {
			now: at(16), state: draining(reason.Unreachable), among: []election.Candidate{lost, refused(west), south},
			want: "Draining east 20 Unreachable next south waiting WaitingForClusters persist",
		},
		"already while the bound is waited for": {
			now: at(5), state: draining(reason.Unreachable), among: []election.Candidate{lost, refused(west), south},
			want: "Draining east 20 Unreachable next south waiting WaitingForExpiry after 11s persist",
		},
		"a better one that comes back is prepared in its turn": {
			now: at(5), state: draining(reason.Unreachable, recorded(followedBy("south"))), among: []election.Candidate{lost, west, prepared(south)},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 11s persist",
		},
		"if nobody is left, nobody leads": {
			now: at(16), state: draining(reason.Deleting), among: []election.Candidate{unfit("east", 100, reason.Deleting), refused(west), unknown("south", 10)},
			want: "Vacant nobody 20 NoCandidate waiting NoCandidate persist",
		},
		"but a leader that cannot be reached is remembered, because recovery moves nothing": {
			now: at(16), state: draining(reason.Unreachable), among: []election.Candidate{lost, refused(west), unknown("south", 10)},
			want: "Draining east 20 Unreachable next west waiting NoCandidate",
		},
		"one that begins to answer has a moment to be fit again": {
			now: at(16), state: draining(reason.Unreachable), among: []election.Candidate{unfit("east", 100, reason.Recovering), prepared(west)},
			want: "Draining east 20 Unreachable next west waiting WaitingForClusters after 5s",
		},
		"and leads on if it is": {
			now: at(16), state: draining(reason.Unreachable), among: []election.Candidate{fit("east", 100), prepared(west)},
			want: "Leading east 21 NewTerm next west persist",
		},
		"not one that is replaced for what an operator asked": {
			now: at(16), state: draining(reason.PriorityChanged), among: []election.Candidate{unfit("east", 10, reason.Recovering), prepared(west)},
			want: "Leading west 21 HandedOver persist",
		},
		"where the record is older than the Leases nothing is written, so nothing is asked for": {
			now: at(31), state: draining(reason.LeaseLost, func(s *election.State) { s.Highest, s.LargestDuration = 30, 15*second }),
			among: []election.Candidate{lost, west}, want: "Leading west 31 FailedOver persist",
		},
	})
}

// Rule 11: paused Clusters keep what they have.
func TestPausedClusters(t *testing.T) {
	decide(t, map[string]decision{
		"a paused leader stays": {
			now: at(5), state: leading(), among: []election.Candidate{paused("east", 100), fit("west", 50)}, want: kept,
		},
		"also under another Lease name": {
			now: at(5), state: leading(recorded(func(r *election.Record) { r.LeaseName = "before" })),
			among: []election.Candidate{paused("east", 100), fit("west", 50)}, want: kept,
		},
		"a paused Cluster is never newly chosen": {
			now: at(16), state: draining(reason.Unreachable), among: []election.Candidate{unfit("east", 100, reason.Unreachable), prepared(paused("west", 50)), prepared(fit("south", 10))},
			want: "Leading south 21 FailedOver persist",
		},
		"not even for what it led until now": {
			now: at(16), state: draining(reason.LeaseLost), among: []election.Candidate{paused("east", 100), prepared(fit("west", 50))},
			want: "Leading west 21 FailedOver persist",
		},
		"it may resume": {
			now: at(5), state: draining(reason.Unreachable), among: []election.Candidate{paused("east", 100), fit("west", 50)},
			want: "Leading east 20 Resumed next west persist",
		},
		"a higher priority of a paused Cluster moves nothing": {
			now: at(5), state: leading(), among: []election.Candidate{fit("east", 100), paused("west", 200)}, want: mustWait + " persist",
		},
	})
}

// Rule 12: recovery alone moves nothing, an operator's edit does.
func TestWhatMovesAHealthyLeader(t *testing.T) {
	drainedFor := func(next string) string {
		return "Draining east 20 PriorityChanged next " + next + " after 11s persist"
	}
	leadingWith := func(counted map[string]int32) election.State { return leading(recorded(counting(counted))) }
	decide(t, map[string]decision{
		"a better cluster that recovers moves nothing": {
			now: at(5), state: leadingWith(map[string]int32{"east": 100, "west": 200}),
			among: []election.Candidate{fit("east", 100), fit("west", 200)}, want: kept,
		},
		"a restart does not forget what was counted": {
			now: at(5), state: leading(during(young()), having(open(closed())), recorded(counting(map[string]int32{"east": 100, "west": 200}))),
			among: []election.Candidate{fit("east", 100), fit("west", 200)}, want: kept,
		},
		"another one's priority raised above the leader's moves it": {
			now: at(5), state: leading(), among: []election.Candidate{fit("east", 100), fit("west", 101)}, want: drainedFor("west"),
		},
		"raised to the same moves nothing": {
			now: at(5), state: leading(), among: []election.Candidate{fit("east", 100), fit("west", 100)}, want: kept + " persist",
		},
		"raised to the same by a cluster whose name comes first moves nothing": {
			now: at(5), state: leading(ledBy("west"), recorded(counting(map[string]int32{"east": 10, "west": 50}))),
			among: []election.Candidate{fit("west", 50), fit("east", 50)}, want: "Leading west 20 Elected next east persist",
		},
		"lowered to the same as a cluster whose name comes first moves nothing": {
			now: at(5), state: leading(ledBy("west"), recorded(counting(map[string]int32{"east": 49, "west": 50}))),
			among: []election.Candidate{fit("west", 49), fit("east", 49)}, want: "Leading west 20 Elected next east persist",
		},
		"a new cluster of the same priority whose name comes first moves nothing": {
			now: at(5), state: leading(ledBy("west"), recorded(counting(map[string]int32{"west": 50}))),
			among: []election.Candidate{fit("west", 50), fit("east", 50)}, want: "Leading west 20 Elected next east persist",
		},
		"raised, but not above, moves nothing": {
			now: at(5), state: leading(), among: []election.Candidate{fit("east", 100), fit("west", 99)}, want: kept + " persist",
		},
		"the leader's priority lowered below an eligible one's moves it": {
			now: at(5), state: leading(), among: []election.Candidate{fit("east", 49), fit("west", 50)}, want: drainedFor("west"),
		},
		"also below one that had stood above it before": {
			now: at(5), state: leadingWith(map[string]int32{"east": 100, "west": 200}),
			among: []election.Candidate{fit("east", 99), fit("west", 200)}, want: drainedFor("west"),
		},
		"lowered to the same moves nothing": {
			now: at(5), state: leading(), among: []election.Candidate{fit("east", 50), fit("west", 50)}, want: kept + " persist",
		},
		"the leader's raised moves nothing, though others stand above": {
			now: at(5), state: leadingWith(map[string]int32{"east": 100, "west": 200}),
			among: []election.Candidate{fit("east", 150), fit("west", 200)}, want: kept + " persist",
		},
		"one that stands above lowered, but still above, moves nothing": {
			now: at(5), state: leadingWith(map[string]int32{"east": 100, "west": 200}),
			among: []election.Candidate{fit("east", 100), fit("west", 150)}, want: kept + " persist",
		},
		"an edit of a cluster that may not lead moves nothing": {
			now: at(5), state: leading(), among: []election.Candidate{fit("east", 100), unfit("west", 200, reason.NamespaceMissing), fit("south", 10)},
			want: "Leading east 20 Elected next south persist",
		},
		"nor does it later, when the cluster recovers: it was counted": {
			now: at(5), state: leadingWith(countedAfter(t, unfit("west", 200, reason.NamespaceMissing))),
			among: []election.Candidate{fit("east", 100), fit("west", 200)}, want: kept,
		},
		"an edit of a cluster that cannot be reached counts when it recovers": {
			now: at(5), state: leadingWith(countedAfter(t, unfit("west", 200, reason.Unreachable))),
			among: []election.Candidate{fit("east", 100), fit("west", 200)}, want: drainedFor("west"),
		},
		"so does one of a cluster that refuses the hub": {
			now: at(5), state: leadingWith(countedAfter(t, unfit("west", 200, reason.Forbidden))),
			among: []election.Candidate{fit("east", 100), fit("west", 200)}, want: drainedFor("west"),
		},
		"one that was lost and recovers moves nothing": {
			now: at(5), state: leadingWith(countedByGrant(unfit("west", 200, reason.Unreachable))),
			among: []election.Candidate{fit("east", 100), fit("west", 200)}, want: kept,
		},
		"an edit of a cluster that is not known yet counts when it is": {
			now: at(5), state: leadingWith(countedAfter(t, unknown("west", 200))),
			among: []election.Candidate{fit("east", 100), fit("west", 200)}, want: drainedFor("west"),
		},
		"a new cluster above the leader is an edit": {
			now: at(5), state: leading(), among: []election.Candidate{fit("east", 100), fit("west", 50), fit("north", 300)}, want: drainedFor("north"),
		},
		"a new cluster that is not known yet is not forgotten": {
			now: at(5), state: leadingWith(countedAfter(t, unknown("north", 300))),
			among: []election.Candidate{fit("east", 100), fit("west", 50), fit("north", 300)}, want: drainedFor("north"),
		},
		"so is one that is not guarded yet": {
			now: at(5), state: leadingWith(countedAfter(t, unguarded("north", 300))),
			among: []election.Candidate{fit("east", 100), fit("west", 50), fit("north", 300)}, want: drainedFor("north"),
		},
		"a leader that was chosen in the absence of a better one is not moved by it": {
			now: at(5), state: leadingWith(countedByGrant(unknown("west", 300))),
			among: []election.Candidate{fit("east", 100), fit("west", 300)}, want: kept,
		},
		"another Lease name needs a new term": {
			now: at(5), state: leading(recorded(func(r *election.Record) { r.LeaseName = "before" })),
			among: []election.Candidate{fit("east", 100), fit("west", 50)},
			want:  "Draining east 20 LeaseRenamed next east after 11s persist",
		},
	})
}

// countedAfter is what a decision that keeps east as the leader counts in the presence of c.
func countedAfter(t *testing.T, c election.Candidate) map[string]int32 {
	t.Helper()
	d := election.Next(at(1), policy(), leading(), []election.Candidate{fit("east", 100), c})
	if d.Record.State != election.Leading {
		t.Fatalf("the decision before was %s", say(d))
	}
	return d.Record.Observed
}

// countedByGrant is what the grant of a namespace to east counts in the presence of c.
func countedByGrant(c election.Candidate) map[string]int32 {
	s := election.State{Record: record(election.Vacant, ""), Tenure: settled(), Sent: closed()}
	return election.Next(at(1), policy(), s, []election.Candidate{fit("east", 100), c}).Record.Observed
}
