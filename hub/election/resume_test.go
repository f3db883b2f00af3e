package election_test

import (
	"testing"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// Rules 4 and 12: until it expires, a term goes on when the cause of its ending is gone.
func TestEndingTermResumes(t *testing.T) {
	const both, resumed = "east 100, west 50 prepared", "Leading east 20 Resumed next west persist"
	waits := func(why, next, after string) string {
		return "Ending east 20 " + why + " next " + next + " waiting WaitingForExpiry after " + after
	}
	decide(t, map[string]decision{
		"the leader answers again, 1 ms before its deadline": {now: at(14.999), state: ending(reason.Unreachable),
			among: both, want: resumed},
		"the leader answers again at its deadline: no": {now: at(15), state: ending(reason.Unreachable), among: both,
			want: waits("Unreachable", "east", "1s persist")},
		"it is fit, but does not answer: no": {now: at(5), state: ending(reason.Unreachable),
			among: "east 100 silent, west 50 prepared", want: waits("Unreachable", "east", "11s persist")},
		"it answers, but is not known: no": {now: at(5), state: ending(reason.Unreachable),
			among: "east 100 unknown answering, west 50 prepared", want: ends + "11s"},
		"a newer term was seen: no": {now: at(5), state: ending(reason.LeaseLost, seen(epoch+1)), among: both,
			want: waits("LeaseLost", "east", "11s persist")},
		"retired, the policy is back: it ends first": {now: at(5), state: retired(), among: both,
			want: waits("PolicyGone", "east", "11s persist")},
		"the policy is back with another Lease name: no": {now: at(5),
			state: ending(reason.PolicyGone, recorded(renamed)), among: both,
			want: waits("PolicyGone", "east", "11s persist")},
	})
}

// Rule 12: who gets the next term when the ending one has expired. After an outage of the hub, clusters have D to
// answer.
func TestNextTermAfterExpiry(t *testing.T) {
	restarted := func(why reason.Reason, changes ...func(*election.State)) election.State {
		return ending(why, append(changes, during(afterOutage()), having(nothing()))...)
	}
	waits := func(leader, why string) string {
		return "Ending " + leader + " 20 " + why + " next west waiting WaitingForClusters after 1ms"
	}
	decide(t, map[string]decision{
		"the leader is back, and a better one was not reached yet": {
			now: at(14.999), state: restarted(reason.LeaseLost), among: "east 100, north 200 unknown",
			want: "Leading east 21 NewTerm persist",
		},
		"the hub was away, the leader was not reached yet": {
			now: at(14.999), state: restarted(reason.LeaseLost), among: "east 10 unknown, west 50 prepared",
			want: waits("east", "LeaseLost"),
		},
		"the hub was away, the leader's priority was lowered, and it is not guarded yet": {
			now: at(14.999), state: restarted(reason.PriorityChanged), among: "east 10 Unguarded, west 50 prepared",
			want: "Leading west 21 HandedOver persist",
		},
		"the hub was away, the leader is deleted, and the only other was not reached yet": {
			now: at(14.999), state: restarted(reason.Deleting), among: "east 100 Deleting, west -5 unknown",
			want: waits("east", "Deleting"),
		},
		"the hub was away, the record names no leader, and the only cluster was not reached yet": {
			now: at(14.999), state: restarted(reason.Deleting, recorded(ledBy(""))), among: "west 50 unknown",
			want: waits("nobody", "Deleting"),
		},
		"the hub was away, and only a worse cluster was not reached yet": {now: at(14.999),
			state: restarted(reason.LeaseLost), among: "east 100 Paused, west 50 prepared, north 10 unknown",
			want: "Leading west 21 FailedOver persist"},
	})
}
