package explain

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/guard"
)

// member makes the rows of tables short.
type member = decide.Member

var (
	measured        = decidetest.Member
	eastLeads       = decidetest.EastLeads
	agrees          = decidetest.Agrees
	vague, twoAhead = decidetest.Vague, decidetest.TwoAhead
)

// shopView is a snapshot of a namespace with a record.
func shopView(r election.Record, ms ...member) *decide.Snapshot {
	v := decidetest.Snapshot(r, ms...)
	v.Object = &v1alpha1.NamespaceLeader{}
	return v
}

// The status says of each candidate why it may lead or not, and what to do.
func TestMessageOfACandidate(t *testing.T) {
	const open = " is not in force: the cluster does not refuse yet what it must"
	until := decidetest.Start.Wall.Add(time.Second)
	m := measured("east", twoAhead, func(m *member) {
		m.Unguarded, m.Unfenced, m.Fenced, m.UID = guard.ErrNotEnforced, guard.ErrNotEnforced, "another", "uid"
		m.Drain, m.Labels = act.Act{Until: until, Reason: "an upgrade"}, map[string]string{v1alpha1.PriorityLabel: "high"}
	})
	for why, want := range map[reason.Reason]string{
		reason.Eligible:  "",
		reason.Paused:    "the Cluster is paused: it keeps what it has, and is never newly chosen",
		reason.Unguarded: "the policy that protects the Leases" + open,
		reason.Unfenced:  "a fence that the policy asks for" + open,
		reason.InvalidPriority: `the label leasecast.dev/priority is "high": set it to an integer from 0 to 2147483647; ` +
			"until then it keeps what it leads, and is never newly chosen",
		reason.ClockSkewed: "the API server's clock is 1.99s to 2.01s ahead of the hub's, and maxClockSkewMilliseconds is " +
			"1000: set that clock right (NTP or chrony on the machine), or the hub's if no cluster agrees with it",
		reason.InvalidFence: "the annotation " + v1alpha1.FencedAnnotation + ` is "another", and the UID of the cluster is ` +
			`"uid": set it to that, or remove it`,
		reason.Drained: "it is drained until " + until.UTC().Format(time.RFC3339) +
			" (an upgrade): it gets no namespace, and goes on where no other cluster may lead",
	} {
		c := decide.Candidate{Member: &m}
		c.Reason = why
		if got := message(shopView(election.Record{}), &c); got != want {
			t.Errorf("%s: %q, want %q", why, got, want)
		}
	}
	for why, want := range map[reason.Reason]string{
		reason.Forbidden: "text; grant the hub's user there the rules of config/member", reason.Unguarded: "text",
	} {
		c := candidateOf("text")
		if c.Reason = why; message(nil, &c) != want {
			t.Errorf("%s, with what was reported: %q", why, message(nil, &c))
		}
	}
}

func TestDescribe(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, int(250*time.Millisecond), time.FixedZone("", 3600))
	const ends = "east is being replaced (Unreachable); next is "
	const promised = "an earlier promise may still stand; next is "
	const expiry, clusters = reason.WaitingForExpiry, reason.WaitingForClusters
	const none = "no cluster is eligible; see candidates for the reasons"
	const at, better = ", not before 11:00:00.250Z", " ranks higher and is not ready yet; if it does not become so in " +
		"time, next is west; see candidates for the reasons"
	const leading, ending, vacant = election.Leading, election.Ending, election.Vacant
	r := func(phase election.RecordState, why reason.Reason, next string) election.Record {
		return election.Record{State: phase, Reason: why, Leader: "east", Epoch: 20, Next: next, NotBefore: noon}
	}
	declared := func(r election.Record, voided bool) election.Record {
		r.Fence = election.Acceptance{UID: "uid-east", Voided: voided}
		return r
	}
	unfenced := func(r election.Record) election.Record { r.UnfencedLeader = "west"; return r }
	for name, test := range map[string]struct {
		record  election.Record
		waiting reason.Reason
		awaited string
		want    string
	}{
		"led after a cluster without its fence": {unfenced(r(leading, reason.FailedOver, "")), "", "",
			"east leads in epoch 20; a fence was missing in west, which led before: programs there may still act"},
		"a cluster without its fence led, and nobody does": {unfenced(r(vacant, reason.NoCandidate, "")), "", "", none},
		"led": {r(leading, reason.Elected, ""), reason.MostUnreachable, "", "east leads in epoch 20"},
		"a hub that may be cut off": {r(ending, reason.Unreachable, "west"), reason.MostUnreachable, "",
			"east is lost, but so are most clusters: nobody is chosen until one comes back"},
		"a frozen namespace": {r(ending, reason.Unreachable, "west"), reason.Frozen, "",
			"east cannot lead (Unreachable), and the namespace is frozen: no other cluster is chosen"},
		"readers that have to stop": {r(ending, reason.PriorityChanged, "west"), reason.WaitingForReaders, "",
			"east was told to stop (PriorityChanged); next is west, as soon as all registered readers have " +
				"stopped, or else at 11:00:00.250Z"},
		"a term that ends":                 {r(ending, reason.Unreachable, "west"), expiry, "", ends + "west" + at},
		"a term that ends, nobody is next": {r(ending, reason.Unreachable, ""), "", "", ends + "nobody yet" + at},
		"a fence that is accepted": {declared(r(ending, reason.Fenced, "west"), false), "", "",
			"east counts as off (Fenced), and must stay off until 11:00:00.250Z; next is west, without that wait"},
		"a fence that is void": {declared(r(ending, reason.Fenced, "west"), true), expiry, "",
			"east is being replaced (Fenced); next is west" + at},
		"a policy that is gone": {r(election.Retired, reason.PolicyGone, ""), "", "",
			"no policy claims the namespace; the record stays until everything promised has passed"},
		"another hub at work": {r(vacant, reason.NoCandidate, ""), reason.OtherHub, "",
			"another hub writes the Leases, so this one decides nothing; see the condition LeasesInPlace"},
		"a namespace that has moved": {r(vacant, reason.Moved, ""), reason.Moved, "",
			"the record came from another hub; nobody is chosen before the Leases in all clusters are this hub's"},
		"another hub's promise":   {r(vacant, reason.OtherHub, "west"), expiry, "", promised + "west" + at},
		"a better cluster":        {r(vacant, clusters, "west"), clusters, "north", "north" + better},
		"a better cluster, later": {r(vacant, clusters, "west"), "", "", "another cluster" + better},
	} {
		if got := Describe(election.Decision{Record: test.record, Waiting: test.waiting,
			Awaited: test.awaited}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestClocksAgree(t *testing.T) {
	for want, ms := range map[string][]member{
		"True Agree": {measured("east", agrees), measured("west", agrees)},
		"Unknown NotMeasured not measured closely enough yet: west": {measured("east", agrees), measured("west", vague)},
		"False ClockSkewed the clock is farther from the hub's than maxClockSkewMilliseconds in east; where no cluster " +
			"agrees with the hub, its own clock may be off": {measured("east", twoAhead), measured("west", vague)},
	} {
		if got := brief(ClocksAgree(ms)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
