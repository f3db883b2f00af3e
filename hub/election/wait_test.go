package election_test

import (
	"testing"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// After an outage of the hub the clusters answer one after the other. Some are waited for, for D at most.
func TestWhoIsWaitedForBeforeAGrant(t *testing.T) {
	west := prepared(fit("west", 50))
	restarted := func(why reason.Reason, changes ...func(*election.State)) election.State {
		return draining(why, append([]func(*election.State){during(afterOutage()), having(closed())}, changes...)...)
	}
	decide(t, map[string]decision{
		"nobody if it is the leader that gets the term, however many are better": {
			now: at(14.999), state: restarted(reason.LeaseLost), among: []election.Candidate{fit("east", 100), unknown("north", 200)},
			want: "Leading east 21 NewTerm persist",
		},
		"anybody where nobody may lead": {
			now: at(14.999), state: restarted(reason.Deleting), among: []election.Candidate{unfit("east", 100, reason.Deleting), unknown("west", -5)},
			want: "Draining east 20 Deleting next west waiting WaitingForClusters after 1ms",
		},
		"also where an edited record names no leader": {
			now: at(14.999), state: restarted(reason.Deleting, recorded(func(r *election.Record) { r.Leader = "" })), among: []election.Candidate{unknown("west", 50)},
			want: "Draining nobody 20 Deleting next west waiting WaitingForClusters after 1ms",
		},
		"the leader, if nothing speaks against it, although another is better": {
			now: at(14.999), state: restarted(reason.LeaseLost), among: []election.Candidate{unknown("east", 10), west},
			want: "Draining east 20 LeaseLost next west waiting WaitingForClusters after 1ms",
		},
		"not the leader whose priority was lowered meanwhile": {
			now: at(14.999), state: restarted(reason.PriorityChanged), among: []election.Candidate{unguarded("east", 10), west},
			want: "Leading west 21 HandedOver persist",
		},
		"not one that is worse than who may lead": {
			now: at(14.999), state: restarted(reason.LeaseLost), among: []election.Candidate{paused("east", 100), west, unknown("north", 10)},
			want: "Leading west 21 FailedOver persist",
		},
	})
}

// As long as nobody else may lead, a leader that was lost is remembered: recovery moves nothing.
func TestWhichLeaderIsRemembered(t *testing.T) {
	lost := unfit("west", 50, reason.Unreachable)
	const vacant = "Vacant nobody 20 NoCandidate waiting NoCandidate persist"
	decide(t, map[string]decision{
		"one that was never reached": {
			now: at(16), state: draining(reason.NeverReached), among: []election.Candidate{unknown("east", 100), lost},
			want: "Draining east 20 NeverReached next west waiting NoCandidate",
		},
		"not one that is being deleted since": {
			now: at(16), state: draining(reason.Unreachable), among: []election.Candidate{unfit("east", 100, reason.Deleting), lost}, want: vacant,
		},
		"nor that of a policy that went away, whatever somebody wrote there": {
			now: at(16), state: draining(reason.Unreachable, recorded(func(r *election.Record) { r.State = election.Retired })),
			among: []election.Candidate{unfit("east", 100, reason.Unreachable), lost}, want: vacant,
		},
	})
}

// The record is behind the policy's D for a moment, and a Lease of that D may be out.
func TestAnUnknownLeaderIsNotDeposedBeforeTheEndOfThePolicysD(t *testing.T) {
	decide(t, map[string]decision{
		"it may still have been promised something": {
			now: at(15.5), state: leading(during(young()), having(closed()), recorded(lasting(5*second))),
			among: []election.Candidate{unknown("east", 100), fit("west", 50)}, want: kept + " after 500ms persist",
		},
	})
}
