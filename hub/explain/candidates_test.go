package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/skew"
)

// member makes the rows of tables short.
type member = decide.Member

var (
	measured        = decidetest.Member
	shopView        = decidetest.Snapshot
	eastLeads       = decidetest.EastLeads
	agrees          = decidetest.Agrees
	vague, twoAhead = decidetest.Vague, decidetest.TwoAhead
	suspected       = skew.Verdict{State: skew.Suspected, Offset: decidetest.TwoAhead.Offset}
)

// first returns the first candidate, and its fitness, reason and message in short.
func first(v *decide.Snapshot) (decide.Candidate, string) {
	cs, _ := decidetest.Candidates(v)
	is := map[election.Fitness]string{election.Fit: "fit", election.Unfit: "unfit", election.RetainOnly: "keeps",
		election.Unknown: "unknown"}[cs[0].Fitness]
	return cs[0], strings.TrimSpace(fmt.Sprintf("%s %s %s", is, cs[0].Reason, message(v, &cs[0])))
}

func TestFitness(t *testing.T) {
	east := func(changes ...func(*member)) member { return measured("east", agrees, changes...) }
	troubled := func(r reason.Reason) func(*member) {
		return func(m *member) { m.Problem = fleet.Problem{Reason: r, Message: "text"} }
	}
	lease := func(r reason.Reason) func(*member) {
		return func(m *member) { m.Sync = publish.SyncStatus{Problem: r, Message: "text"} }
	}
	verdict := func(is health.State, why reason.Reason) func(*member) {
		return func(m *member) { m.Verdict = health.Verdict{State: is, Reason: why, Message: "text"} }
	}
	deleting, apart := func(m *member) { m.Deleting = true }, func(m *member) { m.Connected = false }
	noPublisher, unread := func(m *member) { m.Publisher = nil }, func(m *member) { m.IsRead = false }
	refusing := verdict(health.Unknown, reason.Forbidden)
	sick, bare := verdict(health.Unhealthy, reason.Recovering), func(m *member) { m.Namespace = nil }
	paused, unguarded := func(m *member) { m.Paused = true }, func(m *member) { m.Unguarded = guard.ErrNotEnforced }
	unfenced := func(m *member) { m.Unfenced = guard.ErrNotEnforced }
	failing := func(m *member) { m.Sync.Failing, m.Sync.Failure = reason.Unwritable, "a quota" }
	deleted := func(m *member) { m.Namespace.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	terminating := func(m *member) { m.Namespace.Status.Phase = corev1.NamespaceTerminating }
	leads := func(phase election.RecordState, why reason.Reason) election.Record {
		return election.Record{State: phase, Reason: why, Leader: "east", Epoch: 20}
	}
	drains := func(why reason.Reason) election.Record { return leads(election.Draining, why) }
	west, never := eastLeads(20), election.Record{State: election.Vacant}
	west.Leader = "west"
	const grant = "; grant the hub's user there the rules of config/member"
	const unreached = "unknown NeverReached the hub has not reached the cluster yet"
	const missing = "unfit NamespaceMissing the namespace does not exist there, or does not match the policy"
	const ending = "unfit NamespaceTerminating the namespace is being deleted there"
	const unwritten = "unfit Unwritable the last Lease could not be written: a quota"
	const open = "is not in force: the cluster does not refuse yet what it must"
	const noGuard = "keeps Unguarded the policy that protects the Leases " + open
	const noFence = "keeps Unfenced a fence that the policy asks for " + open
	until := func(at time.Time) func(*member) {
		return func(m *member) { m.Drain = act.Act{Until: at, Reason: "an upgrade"} }
	}
	drained, wasDrained := until(decidetest.Start.Wall.Add(time.Second)), until(decidetest.Start.Wall)
	unreadable := func(m *member) { m.Drain = act.Act{Invalid: "text"} }
	untilThen := "Drained it is drained until " + decidetest.Start.Wall.Add(time.Second).UTC().Format(time.RFC3339) +
		" (an upgrade): it gets no namespace, and goes on where no other cluster may lead"
	for name, test := range map[string]struct {
		record election.Record
		member member
		want   string
	}{
		"no problem":                   {leads(election.Leading, ""), east(), "fit Eligible"},
		"a name that is too long":      {west, east(troubled(reason.NameTooLong)), "unfit NameTooLong text"},
		"another cluster's kubeconfig": {west, east(troubled(reason.WrongCluster)), "unfit WrongCluster text"},
		"two Clusters of one cluster":  {west, east(troubled(reason.DuplicateCluster)), "unfit DuplicateCluster text"},
		"a Cluster that is gone":       {west, east(troubled(reason.Gone)), "unfit Gone text"},
		"a Cluster that is deleted":    {west, east(deleting), "unfit Deleting the Cluster is being deleted"},
		"deleted and not connected":    {west, east(deleting, apart), "unfit Deleting the Cluster is being deleted"},
		"a new invalid kubeconfig":     {west, east(troubled(reason.InvalidKubeconfig)), "fit Eligible"},
		"not connected":                {west, east(apart), unreached},
		"not connected for a reason":   {west, east(apart, troubled(reason.NoKubeconfig)), "unknown NoKubeconfig text"},
		"without a publisher":          {west, east(noPublisher), unreached},
		"not read":                     {west, east(unread), unreached},
		"refusing probes":              {west, east(refusing), "unknown Forbidden text" + grant},
		"unhealthy":                    {west, east(sick, bare), "unfit Recovering text"},
		"without the namespace":        {west, east(bare), missing},
		"the namespace is deleted":     {west, east(deleted), ending},
		"the namespace terminates":     {west, east(terminating), ending},
		"a foreign Lease":              {west, east(lease(reason.ForeignLease)), "unfit ForeignLease text"},
		"another hub's Lease":          {west, east(lease(reason.OtherHub)), "unfit OtherHub text"},
		"another cluster's Lease":      {west, east(lease(reason.WrongCluster)), "unfit WrongCluster text"},
		"refusing Leases":              {west, east(lease(reason.Forbidden)), "unfit Forbidden text" + grant},
		"unwritable, without a guard":  {west, east(lease(reason.Unwritable), unguarded), "unfit Unwritable text"},
		"a lost Lease":                 {west, east(lease(reason.LeaseLost)), "fit Eligible"},
		"too many namespaces":          {west, east(troubled(reason.TooManyObjects)), "fit TooManyObjects text"},
		"watches do not last":          {west, east(troubled(reason.Unwatched)), "fit Unwatched text"},
		"paused, without a guard":      {west, east(unguarded, paused), noGuard},
		"paused, without a fence":      {west, east(unfenced, paused), noFence},
		"without guard and fence":      {west, east(unguarded, unfenced), noGuard},
		"paused and failing": {
			west, east(paused, failing), "keeps Paused the Cluster is paused: it keeps what it has, and is never newly chosen",
		},
		"failing while another leads":     {west, east(failing), unwritten},
		"failing where nobody ever led":   {never, east(failing), "fit Eligible"},
		"failing while its term lasts":    {leads(election.Leading, reason.Unwritable), east(failing), "fit Eligible"},
		"replaced as lost, failing":       {drains(reason.LeaseLost), east(failing), unwritten},
		"replaced as refusing, failing":   {drains(reason.Forbidden), east(failing), unwritten},
		"replaced as unwritable, failing": {drains(reason.Unwritable), east(failing), unwritten},
		"replaced for priority, failing":  {drains(reason.PriorityChanged), east(failing), "fit Eligible"},
		"drained":                         {west, east(drained), "fit " + untilThen},
		"drained and paused":              {west, east(drained, paused), "keeps " + untilThen},
		"drained, without the namespace":  {west, east(drained, bare), missing},
		"drained, not connected":          {west, east(drained, apart), unreached},
		"its drain is over":               {west, east(wasDrained), "fit Eligible"},
		"its drain cannot be read":        {west, east(unreadable), "fit InvalidDrain text"},
	} {
		if _, got := first(shopView(test.record, test.member)); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// The status shows a leader that takes no part until it is replaced. It does not show others.
func TestLeaderThatTakesNoPartIsUnfit(t *testing.T) {
	west := measured("west", agrees)
	for want, test := range map[string]struct {
		gone bool
		why  reason.Reason
	}{
		"unfit Gone the Cluster does not exist any more":                                        {true, reason.NoPriority},
		"unfit NoPriority the Cluster has no label leasecast.dev/priority, so it takes no part": {false, reason.NoPriority},
		"unfit NotSelected the clusterSelector of the policy does not match the Cluster":        {false, ""},
	} {
		m := measured("east", agrees, func(m *member) { m.TakesPart, m.Gone, m.PriorityReason = false, test.gone, test.why })
		m.Priority = 5
		v := shopView(eastLeads(20), m, west)
		if c, got := first(v); got != want || c.Name != "east" || c.Priority != 5 {
			t.Errorf("%q of %+v, want %q of east", got, c, want)
		}
		v.Policy, v.Members = nil, v.Members[:1]
		if cs, _ := decidetest.Candidates(v); len(cs) != 0 {
			t.Errorf("without a policy there are %+v", cs)
		}
		v = shopView(eastLeads(20), m, west)
		v.State.Record.Leader = "west"
		if cs, _ := decidetest.Candidates(v); len(cs) != 1 || cs[0].Name != "west" {
			t.Errorf("while west leads there are %+v", cs)
		}
	}
}

// A typing error costs no leadership, and gets nobody one.
func TestInvalidPriority(t *testing.T) {
	const explained = `InvalidPriority the label leasecast.dev/priority is "high": set it to an integer from 0 to ` +
		"2147483647; until then it keeps what it leads, and is never newly chosen"
	sick := health.Verdict{State: health.Unhealthy, Reason: reason.Recovering, Message: "it recovers"}
	for name, test := range map[string]struct {
		change func(*member)
		want   string
	}{
		"one that may lead":     {func(*member) {}, "keeps " + explained},
		"one that is paused":    {func(m *member) { m.Paused = true }, "keeps " + explained},
		"one that was not read": {func(m *member) { m.IsRead = false }, "unknown " + explained},
		"one that is unhealthy": {func(m *member) { m.Verdict = sick }, "unfit Recovering it recovers"},
	} {
		m := measured("east", agrees, test.change)
		m.PriorityReason, m.Labels = reason.InvalidPriority, map[string]string{v1alpha1.PriorityLabel: "high"}
		c, got := first(shopView(election.Record{Epoch: 20, Observed: map[string]int32{"east": 9}}, m))
		if got != test.want || c.Priority != 9 {
			t.Errorf("%s: %q with priority %d, want %q with the last valid one, 9", name, got, c.Priority, test.want)
		}
	}
}

// A clock counts only if it is proved to be off, and the hub's is not.
func TestClocksDecideWhoMayLead(t *testing.T) {
	const off = "ClockSkewed the API server's clock is 1.99s to 2.01s ahead of the hub's, and maxClockSkewMilliseconds is "
	with := func(ms ...member) []member { return ms }
	outside, paused := func(m *member) { m.TakesPart = false }, func(m *member) { m.Paused = true }
	lost := func(m *member) { m.Verdict = health.Verdict{State: health.Unhealthy, Reason: reason.Unreachable} }
	east, west, south := measured("east", twoAhead), measured("west", agrees), measured("south", vague)
	for name, test := range map[string]struct {
		members []member
		want    string // of the first, as a prefix
	}{
		"no clock is off":                          {with(west, west), "fit Eligible"},
		"a clock that was not measured":            {with(south, west), "fit Eligible"},
		"a clock is off, another agrees":           {with(east, west), "unfit " + off},
		"most clocks are off, another agrees":      {with(east, east, west), "unfit " + off},
		"all clocks are off":                       {with(east, east), "keeps " + off},
		"a clock is off, no other is measured":     {with(east, south, south), "keeps " + off},
		"the only clock is off":                    {with(east), "keeps " + off},
		"no second answer agrees yet":              {with(measured("east", suspected), west), "keeps " + off},
		"the one that agrees takes no part":        {with(east, measured("west", agrees, outside)), "keeps " + off},
		"an unreachable member whose clock is off": {with(measured("east", twoAhead, lost), west), "unfit Unreachable"},
		"a paused member whose clock is off":       {with(measured("east", twoAhead, paused), west), "unfit " + off},
	} {
		if _, got := first(shopView(election.Record{}, test.members...)); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Whoever looks at the policy sees what is wrong and what to do.
func TestStandsBack(t *testing.T) {
	got := StandsBack("fleet", "platform", "leasecast-system")
	for _, part := range []string{
		"the hub in namespace platform serves", "the one in leasecast-system changes nothing",
		"kubectl delete leases -A -l leasecast.dev/managed",
		"kubectl -n fleet annotate secret leasecast-seal leasecast.dev/hub-",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not in %q", part, got)
		}
	}
}

func TestDescribe(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, int(250*time.Millisecond), time.FixedZone("", 3600))
	const drains = "east is being replaced (Unreachable); next is "
	const promised = "an earlier promise may still stand; next is "
	const expiry, clusters = reason.WaitingForExpiry, reason.WaitingForClusters
	const none = "no cluster is eligible; see candidates for the reasons"
	const at, better = ", not before 11:00:00.250Z", " ranks higher and is not ready yet; if it does not become so in " +
		"time, next is west; see candidates for the reasons"
	const leading, draining, vacant = election.Leading, election.Draining, election.Vacant
	r := func(phase election.RecordState, why reason.Reason, next string) election.Record {
		return election.Record{State: phase, Reason: why, Leader: "east", Epoch: 20, Next: next, NotBefore: noon}
	}
	for name, test := range map[string]struct {
		record  election.Record
		waiting reason.Reason
		awaited string
		want    string
	}{
		"led": {r(leading, reason.Elected, ""), reason.MostUnreachable, "", "east leads in epoch 20"},
		"a hub that may be cut off": {r(draining, reason.Unreachable, "west"), reason.MostUnreachable, "",
			"east is lost, but so are most clusters: nobody is chosen until one comes back"},
		"a frozen namespace": {r(draining, reason.Unreachable, "west"), reason.Frozen, "",
			"east cannot lead (Unreachable), and the namespace is frozen: no other cluster is chosen"},
		"readers that have to stop": {r(draining, reason.PriorityChanged, "west"), reason.WaitingForReaders, "",
			"east was told to stop (PriorityChanged); next is west, as soon as all registered readers have " +
				"stopped, or else at 11:00:00.250Z"},
		"a drain":                 {r(draining, reason.Unreachable, "west"), expiry, "", drains + "west" + at},
		"a drain, nobody is next": {r(draining, reason.Unreachable, ""), "", "", drains + "nobody yet" + at},
		"a policy that is gone": {r(election.Retired, reason.PolicyGone, ""), "", "",
			"no policy claims the namespace; the record stays until everything promised has passed"},
		"another hub at work": {r(vacant, reason.NoCandidate, ""), reason.OtherHub, "",
			"another hub writes the Leases, so this one decides nothing; see the condition LeasesInPlace"},
		"a namespace that has moved": {r(vacant, reason.Moved, ""), reason.Moved, "",
			"the record came from another hub; nobody is chosen before the Leases in all clusters are this hub's"},
		"a promise":               {r(vacant, expiry, "west"), expiry, "", promised + "west" + at},
		"a better cluster":        {r(vacant, clusters, "west"), clusters, "north", "north" + better},
		"a better cluster, later": {r(vacant, clusters, "west"), "", "", "another cluster" + better},
		"no candidate":            {r(vacant, reason.NoCandidate, ""), "", "", none},
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
