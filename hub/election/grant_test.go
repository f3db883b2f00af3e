package election_test

import (
	"slices"
	"testing"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// Rule 7: an epoch is one above the highest that is known, and at least the seconds since 2025.
func TestEpoch(t *testing.T) {
	decide(t, map[string]decision{
		"the record's is the highest": {now: at(0), state: vacant(), among: "east 100",
			want: "Leading east 21 Elected persist"},
		"a sealed Lease's is the highest": {now: at(0), state: vacant(seen(30)), among: "east 100",
			want: "Leading east 31 Elected persist"},
		"both are below the seconds": {now: at(60), state: vacant(recorded(raisedTo(3)), seen(2)), among: "east 100",
			want: "Leading east 40 Elected persist"},
		"the record is lost: the sealed Lease's is recorded before the Lease goes": {now: at(0),
			state: lost(during(young()), seen(30), largest(15*second)), among: "east 100",
			want: "Vacant nobody 30 WaitingForExpiry next east waiting WaitingForExpiry after 16s persist"},
	})
	for above := range int64(10) {
		s := vacant(seen(lease.EpochFloor(wall(60)) + above))
		if next := election.Next(at(60), policy(), s, among("east 100")).Record.Epoch; !lease.PlausibleEpoch(wall(60), next) {
			t.Errorf("epoch %d of a new term is not plausible", next)
		}
	}
}

// Rule 7: a record outlives its policy until all promises have passed and the seconds are above its epoch.
func TestRetiredRecord(t *testing.T) {
	const stays = "Retired east 20 PolicyGone waiting WaitingForExpiry after 1s"
	noted := retired(recorded(notBefore(30)))
	decide(t, map[string]decision{
		"leading, the policy is gone": {now: at(5), noPolicy: true, state: leading(),
			want: "Retired east 20 PolicyGone after 25s persist"},
		"ending, the policy is gone": {now: at(5), noPolicy: true, state: ending(reason.Unreachable),
			want: "Retired east 20 PolicyGone after 25s persist"},
		"expired, the epoch is level with the seconds": {now: at(40.999), noPolicy: true, state: noted, want: stays},
		"lost: the epoch of a Lease is recorded first": {now: at(60), noPolicy: true,
			state: stateOf(election.Record{}, sent(0), seen(21)), want: "Retired nobody 21 PolicyGone persist"},
	})
}

// What has failed comes last. Among the others an order comes first, then priority, weight and name.
func TestRank(t *testing.T) {
	want := among("low 1 ordered, a 100 heavy, b 100 light, c 100 light, d 50, " +
		"best 900 failed ordered, e 900 failed, f 1 failed")
	cs := slices.Clone(want)
	slices.Reverse(cs)
	for range want {
		cs = append(cs[1:], cs[0])
		ranked := slices.Clone(cs)
		if election.Rank(ranked); !slices.Equal(ranked, want) {
			t.Errorf("%+v", ranked)
		}
	}
}

// Rule 13: the best of those that may lead gets a namespace without a leader.
func TestElect(t *testing.T) {
	// Its promises have passed, and the tenure is in its first seconds.
	restarted := vacant(during(inheriting(-600)))
	const (
		south = "Leading south 21 Elected next west persist"
		waits = "Vacant nobody 20 WaitingForClusters next west waiting WaitingForClusters after "
	)
	decide(t, map[string]decision{
		"the highest priority, east first": {now: at(20), state: vacant(), among: "east -1, south 2, west 1", want: south},
		"only a fit one": {now: at(20), state: vacant(), want: "Leading south 21 Elected persist",
			among: "east 9 NamespaceMissing, north 8 Paused, west 7 unknown, south 1"},
		"nobody is fit": {now: at(20), state: vacant(), among: "east 9 Unreachable",
			want: "Vacant nobody 20 NoCandidate waiting NoCandidate"},
		"a better one is not known for D": {now: at(15), state: restarted, among: "east 100 unknown, west 50",
			want: "Leading west 21 Elected persist"},
		"an equal one is not known yet, and its name comes first": {now: at(1), state: restarted,
			among: "east 50 unknown, west 50", want: waits + "14s persist"},
	})
}

// Rule 13: namespaces that are created everywhere at one moment are seen one after the other.
func TestFirstLeaderWaitsForBetterClusters(t *testing.T) {
	patient := policy(func(p *election.Policy) { p.InitialDelay = 10 * second })
	firstSeen := func(seconds float64, changes ...func(*election.State)) election.State {
		r := election.Record{State: election.Vacant, Since: wall(seconds), Duration: 15 * second, LeaseName: "leasecast"}
		return stateOf(r, nothing(), changes...)
	}
	const waits, missing = "Vacant nobody 0 WaitingForClusters next west waiting WaitingForClusters after ",
		"east 100 NamespaceMissing, west 50"
	decide(t, map[string]decision{
		"the better one does not have the namespace, which is seen now": {now: at(100), policy: patient, state: lost(),
			among: missing, want: waits + "10s persist"},
		"the better one is not guarded": {now: at(109.999), policy: patient, state: firstSeen(100),
			among: "east 100 Unguarded, west 50", want: waits + "1ms persist"},
		"the better one is not known, the delay has passed, and the hub has just restarted": {now: at(5), policy: patient,
			state: firstSeen(-4, during(afterOutage())), among: "east 100 unknown, west 50", want: waits + "10s persist"},
		"a worse one does not have the namespace": {now: at(100), policy: patient, state: firstSeen(100),
			among: "east 100, west 50 NamespaceMissing", want: "Leading east 80 Elected persist"},
		"the better one is lost": {now: at(100), policy: patient, state: firstSeen(100),
			among: "east 100 Unreachable, west 50", want: "Leading west 80 Elected persist"},
		"there was a leader before": {now: at(100), policy: patient, state: firstSeen(100, recorded(raisedTo(7))),
			among: missing, want: "Leading west 80 Elected persist"},
		"the namespace was first seen in the future": {now: at(99.999), policy: patient, state: firstSeen(100),
			among: missing, want: "Leading west 79 Elected persist"},
	})
	if d := election.Next(at(100), patient, lost(), among("west 50, east 100 NamespaceMissing")); d.Awaited != "east" {
		t.Errorf("the decision names %q as awaited, want east", d.Awaited)
	}
}
