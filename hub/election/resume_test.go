package election_test

import (
	"testing"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// Rules 4 and 12: until the bound, a leader whose trouble is over goes on in its term.
func TestResume(t *testing.T) {
	east, west := fit("east", 100), prepared(fit("west", 50))
	silent := east
	silent.Answering = false
	const resumed = "Leading east 20 Resumed next west persist"
	waits := func(why, next, after string) string {
		return "Draining east 20 " + why + " next " + next + " waiting WaitingForExpiry after " + after + " persist"
	}
	decide(t, map[string]decision{
		"a leader that answers again goes on": {
			now: at(14.999), state: draining(reason.Unreachable), among: []election.Candidate{east, west}, want: resumed,
		},
		"not when its Lease is no longer live": {
			now: at(15), state: draining(reason.Unreachable), among: []election.Candidate{east, west}, want: waits("Unreachable", "east", "1s"),
		},
		"after the bound there is nothing to resume: a new term begins": {
			now: at(16), state: draining(reason.Unreachable), among: []election.Candidate{east, west},
			want: "Leading east 21 NewTerm next west persist",
		},
		"although a better one is there now: recovery moves nothing": {
			now: at(16), state: draining(reason.LeaseLost, recorded(counting(map[string]int32{"east": 100, "west": 200}))),
			among: []election.Candidate{east, prepared(fit("west", 200))}, want: "Leading east 21 NewTerm next west persist",
		},
		"not one that does not answer": {
			now: at(5), state: draining(reason.Unreachable), among: []election.Candidate{silent, west}, want: waits("Unreachable", "east", "11s"),
		},
		"not one that is only known to have been lost": {
			now: at(5), state: draining(reason.Unreachable), among: []election.Candidate{unfit("east", 100, reason.Recovering), west},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 11s",
		},
		"not one that is not known": {
			now: at(5), state: draining(reason.Unreachable), among: []election.Candidate{unknown("east", 100), west},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 11s",
		},
		"not one that answers, but not for long enough, although nobody else may lead": {
			now: at(5), state: draining(reason.Unreachable, recorded(followedBy(""))), among: []election.Candidate{answering(unfit("east", 100, reason.Recovering))},
			want: "Draining east 20 Unreachable waiting WaitingForExpiry after 11s",
		},
		"not one that answers, but is not known": {
			now: at(5), state: draining(reason.Unreachable), among: []election.Candidate{answering(unknown("east", 100)), west},
			want: "Draining east 20 Unreachable next west waiting WaitingForExpiry after 11s",
		},
		"not while the edit that drained it stands": {
			now: at(5), state: draining(reason.PriorityChanged), among: []election.Candidate{east, prepared(fit("west", 101))},
			want: "Draining east 20 PriorityChanged next west waiting WaitingForExpiry after 11s",
		},
		"after the bound the edit is carried out": {
			now: at(16), state: draining(reason.PriorityChanged), among: []election.Candidate{east, prepared(fit("west", 101))},
			want: "Leading west 21 HandedOver next east persist",
		},
		"but when it is taken back": {
			now: at(5), state: draining(reason.PriorityChanged), among: []election.Candidate{east, west}, want: resumed,
		},
		"not when its Lease was lost": {
			now: at(5), state: draining(reason.LeaseLost, copyLost), among: []election.Candidate{east, west}, want: waits("LeaseLost", "east", "11s"),
		},
		"not when a newer term was seen": {
			now: at(5), state: draining(reason.LeaseLost, func(s *election.State) { s.Highest = epoch + 1 }), among: []election.Candidate{east, west},
			want: waits("LeaseLost", "east", "11s"),
		},
		"not in a tenure that has sent nothing: what it can still have is unknown": {
			now: at(5), state: draining(reason.Unreachable, during(young()), having(closed())), among: []election.Candidate{east, west},
			want: waits("Unreachable", "east", "11s"),
		},
		"not when its source is open: it was not counted yet": {
			now: at(5), state: draining(reason.Unreachable, having(open(sent(0)))), among: []election.Candidate{east, west}, want: "close",
		},
		"a retired term goes through draining first": {
			now: at(5), state: leading(func(s *election.State) { s.Record = record(election.Retired, "east") }), among: []election.Candidate{east, west},
			want: "Draining east 20 PolicyGone next east waiting WaitingForExpiry after 11s persist",
		},
		"then it resumes, for its policy is back": {
			now: at(5), state: draining(reason.PolicyGone), among: []election.Candidate{east, west}, want: resumed,
		},
		"not under another Lease name": {
			now: at(5), state: draining(reason.PolicyGone, recorded(func(r *election.Record) { r.LeaseName = "before" })), among: []election.Candidate{east, west},
			want: waits("PolicyGone", "east", "11s"),
		},
	})
}

// Losing the Lease is no reason to lose the lead.
func TestALeaderWhoseLeaseWasLost(t *testing.T) {
	decide(t, map[string]decision{
		"ends its term": {
			now: at(5), state: leading(copyLost), among: []election.Candidate{fit("east", 100), fit("west", 50)},
			want: "Draining east 20 LeaseLost next east after 11s persist",
		},
		"and gets a new one": {
			now: at(16), state: draining(reason.LeaseLost, copyLost), among: []election.Candidate{fit("east", 100), fit("west", 50)},
			want: "Leading east 21 NewTerm next west persist",
		},
		"unless it cannot lead any more": {
			now: at(16), state: draining(reason.LeaseLost, copyLost), among: []election.Candidate{unfit("east", 100, reason.ForeignLease), prepared(fit("west", 50))},
			want: "Leading west 21 FailedOver persist",
		},
		"of an unknown one nothing is believed": {
			now: at(5), state: leading(copyLost, having(open(sent(0)))), among: []election.Candidate{unknown("east", 100), fit("west", 50)},
			want: kept + " after 11s",
		},
		"and where the whole hub was away it comes back to the same leader": {
			now: at(0.5), among: []election.Candidate{fit("east", 100), prepared(fit("west", 200))}, want: "Leading east 21 NewTerm next west persist",
			state: draining(reason.LeaseLost, copyLost, recorded(counting(map[string]int32{"east": 100, "west": 200})),
				during(election.Tenure{Started: at(0), Inherited: wall(-600)}), having(closed())),
		},
	})
}
