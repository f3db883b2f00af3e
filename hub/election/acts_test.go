package election_test

import (
	"testing"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

func paced(s *election.State) { s.Paced = true }

func frozen(s *election.State) { s.Frozen = true }

// Rule 18: an operator drains a cluster. It hands over what it leads, and gets nothing new.
func TestDrainedCluster(t *testing.T) {
	decide(t, map[string]decision{
		"leads: replaced as planned": {now: at(5), state: leading(), among: "east 100 drained, west 50",
			want: "Ending east 20 Drained next west after 11s persist"},
		"leads, and is renewed until then": {now: at(5), state: leading(having(renewing(sent(0)))),
			among: "east 100 drained, west 50", want: "stop renewing"},
		"leads, and no other cluster may lead: kept": {now: at(5), state: leading(),
			among: "east 100 drained, west 50 drained", want: alone},
		"is the best successor: passed over": {now: at(16), state: ending(reason.Unreachable),
			among: "east 100 Unreachable, west 50 drained prepared, south 10 prepared",
			want:  "Leading south 21 FailedOver persist"},
		"is better, and not reached yet: not waited for": {now: at(1), state: vacant(during(afterOutage())),
			among: "east 100 unknown drained, west 50", want: "Leading west 21 Elected persist"},
		"is the only cluster of a namespace without a leader: nobody leads": {now: at(500), state: vacant(),
			among: "east 100 drained", want: "Vacant nobody 20 NoCandidate waiting NoCandidate"},
		"its successor is lost before its term ends: it resumes": {now: at(5), state: ending(reason.Drained),
			among: "east 100 drained, west 50 Unreachable", want: "Leading east 20 Resumed next west persist"},
	})
}

// Rule 19: planned changes wait for their turn. Nobody waits with a lost leader.
func TestPlannedChangesArePaced(t *testing.T) {
	const again = " after 500ms"
	decide(t, map[string]decision{
		"a priority is edited: the leader waits, and the edit is not counted": {now: at(5), state: leading(paced),
			among: "east 100, west 200", want: kept + again},
		"a leader that is lost does not wait": {now: at(5), state: leading(paced), among: "east 100 Unreachable, west 50",
			want: "Ending east 20 Unreachable next west after 11s persist"},
	})
}

// Rule 20: people have frozen who leads.
func TestFrozenNamespace(t *testing.T) {
	decide(t, map[string]decision{
		"its leader cannot be reached: kept": {now: at(5), state: leading(frozen), among: "east 100 Unreachable, west 50",
			want: kept},
		"its leader's Cluster is gone: kept": {now: at(5), state: leading(frozen), among: "west 50",
			want: kept + " persist"},
		"its leader's Lease is lost: its term ends": {now: at(5), state: leading(frozen, leaseLost),
			among: "east 100, west 50", want: "Ending east 20 LeaseLost next east after 11s persist"},
		"its leader's term has ended, and it is fit: a new term": {now: at(16),
			state: ending(reason.LeaseLost, frozen), among: "east 100, west 50 prepared",
			want: "Leading east 21 NewTerm next west persist"},
		"its leader's term has ended, and it is not fit: nobody else leads": {now: at(16),
			state: ending(reason.Unreachable, frozen), among: "east 100 Unreachable, west 50 prepared",
			want: "Ending east 20 Unreachable next west waiting Frozen"},
		"a planned change was under way: it resumes": {now: at(5), state: ending(reason.PriorityChanged, frozen),
			among: "east 10, west 50 prepared", want: "Leading east 20 Resumed next west persist"},
		"nobody led: it gets a leader": {now: at(500), state: vacant(frozen), among: "east 100, west 50",
			want: "Leading east 480 Elected next west persist"},
	})
}

// Who gets his way where two orders, or an order and what the hub sees, meet.
func TestOrderOfPower(t *testing.T) {
	ends := func(why string) string { return "Ending east 20 " + why + " next west after 11s persist" }
	decide(t, map[string]decision{
		"freeze over priority: the edit waits": {now: at(5), state: leading(frozen), among: "east 100, west 200",
			want: kept},
		"requires over move: something failed in the ordered one": {now: at(5), state: leading(),
			among: "east 100, south 70, west 50 failed ordered", want: "Leading east 20 Elected next south persist"},
		"requires over priority: something failed in the best one": {now: at(5), state: leading(),
			among: "east 100, west 50, south 200 failed", want: kept},
		"pace over drain": {now: at(5), state: leading(paced), among: "east 100 drained, west 50",
			want: kept + " after 500ms"},
		"freeze over failback": {now: at(5), state: leading(frozen, fitSince(map[string]float64{"west": -300})),
			policy: policy(failback), among: "east 40, west 50", want: kept},
		"drain and move: the ordered cluster gets it": {now: at(5), state: leading(),
			among: "east 100 drained, south 70, west 50 ordered", want: ends("Drained")},
		"move over manual failover": {now: at(5), policy: policy(manual), state: leading(),
			among: "east 100 Unreachable, west 50 ordered", want: ends("Ordered")},
	})
}
