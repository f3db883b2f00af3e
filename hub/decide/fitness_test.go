package decide_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
	"github.com/leasecast/leasecast/hub/worker"
)

// first returns the first candidate, and its fitness, reason and detail in short.
func first(v *decide.Snapshot) (decide.Candidate, string) {
	cs, _ := decidetest.Candidates(v)
	is := map[election.Fitness]string{election.Fit: "fit", election.Unfit: "unfit", election.RetainOnly: "keeps",
		election.Unknown: "unknown"}[cs[0].Fitness]
	return cs[0], strings.TrimSpace(fmt.Sprintf("%s %s %s", is, cs[0].Reason, cs[0].Detail))
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
	apart := func(m *member) { m.Connected = false }
	noPublisher, unread := func(m *member) { m.Publisher = nil }, func(m *member) { m.IsRead = false }
	refusing := verdict(health.Unknown, reason.Forbidden)
	sick, bare := verdict(health.Unhealthy, reason.Recovering), func(m *member) { m.Namespace = nil }
	paused, unguarded := func(m *member) { m.Paused = true }, func(m *member) { m.Unguarded = guard.ErrNotEnforced }
	unfenced := func(m *member) { m.Unfenced = guard.ErrNotEnforced }
	failing := func(m *member) { m.Sync.Failing, m.Sync.Failure = reason.Unwritable, "a quota" }
	deleted := func(m *member) { m.Namespace.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	leads := func(phase election.RecordState, why reason.Reason) election.Record {
		return election.Record{State: phase, Reason: why, Leader: "east", Epoch: 20}
	}
	ends := func(why reason.Reason) election.Record { return leads(election.Ending, why) }
	west, never := decidetest.EastLeads(20), election.Record{State: election.Vacant}
	west.Leader = "west"
	const unreached, missing, ending = "unknown NeverReached", "unfit NamespaceMissing", "unfit NamespaceTerminating"
	const unwritten = "unfit Unwritable the last Lease could not be written: a quota"
	until := func(at time.Time) func(*member) {
		return func(m *member) { m.Drain = act.Act{Until: at, Reason: "an upgrade"} }
	}
	drained, wasDrained := until(decidetest.Start.Wall.Add(time.Second)), until(decidetest.Start.Wall)
	unreadable := func(m *member) { m.Drain = act.Act{Invalid: "text"} }
	declared := func(uid string) func(*member) { return func(m *member) { m.UID, m.Fenced = "uid", uid } }
	required := func(is worker.Required) func(*member) { return func(m *member) { m.Required = is } }
	unseen := errors.New("no such kind")
	sickly, unknown := required(worker.Required{Unhealthy: "a till", Err: unseen}), required(worker.Required{Err: unseen})
	for name, test := range map[string]struct {
		record election.Record
		member member
		want   string
	}{
		"no problem":                      {leads(election.Leading, ""), east(), "fit Eligible"},
		"a name that is too long":         {west, east(troubled(reason.NameTooLong)), "unfit NameTooLong text"},
		"another cluster's kubeconfig":    {west, east(troubled(reason.WrongCluster)), "unfit WrongCluster text"},
		"two Clusters of one cluster":     {west, east(troubled(reason.DuplicateCluster)), "unfit DuplicateCluster text"},
		"a Cluster that is deleted":       {west, east(troubled(reason.Deleting)), "unfit Deleting text"},
		"a new invalid kubeconfig":        {west, east(troubled(reason.InvalidKubeconfig)), "fit Eligible"},
		"not connected":                   {west, east(apart), unreached},
		"not connected for a reason":      {west, east(apart, troubled(reason.NoKubeconfig)), "unknown NoKubeconfig text"},
		"without a publisher":             {west, east(noPublisher), unreached},
		"not read":                        {west, east(unread), unreached},
		"refusing probes":                 {west, east(refusing), "unknown Forbidden text"},
		"unhealthy":                       {west, east(sick, bare), "unfit Recovering text"},
		"without the namespace":           {west, east(bare), missing},
		"the namespace is deleted":        {west, east(deleted), ending},
		"the namespace terminates":        {west, east(terminating), ending},
		"a foreign Lease":                 {west, east(lease(reason.ForeignLease)), "unfit ForeignLease text"},
		"another hub's Lease":             {west, east(lease(reason.OtherHub)), "unfit OtherHub text"},
		"another cluster's Lease":         {west, east(lease(reason.WrongCluster)), "unfit WrongCluster text"},
		"refusing Leases":                 {west, east(lease(reason.Forbidden)), "unfit Forbidden text"},
		"unwritable, without a guard":     {west, east(lease(reason.Unwritable), unguarded), "unfit Unwritable text"},
		"a lost Lease":                    {west, east(lease(reason.LeaseLost)), "fit Eligible"},
		"too many namespaces":             {west, east(troubled(reason.TooManyObjects)), "fit TooManyObjects text"},
		"paused, without a guard":         {west, east(unguarded, paused), "keeps Unguarded"},
		"without guard and fence":         {west, east(unguarded, unfenced), "keeps Unguarded"},
		"paused and failing":              {west, east(paused, failing), "keeps Paused"},
		"failing while another leads":     {west, east(failing), unwritten},
		"failing where nobody ever led":   {never, east(failing), "fit Eligible"},
		"failing while its term lasts":    {leads(election.Leading, reason.Unwritable), east(failing), "fit Eligible"},
		"replaced as lost, failing":       {ends(reason.LeaseLost), east(failing), unwritten},
		"replaced as refusing, failing":   {ends(reason.Forbidden), east(failing), unwritten},
		"replaced as unwritable, failing": {ends(reason.Unwritable), east(failing), unwritten},
		"replaced for priority, failing":  {ends(reason.PriorityChanged), east(failing), "fit Eligible"},
		"drained":                         {west, east(drained), "fit Drained"},
		"drained and paused":              {west, east(drained, paused), "keeps Drained"},
		"drained, without the namespace":  {west, east(drained, bare), missing},
		"drained, too many namespaces":    {west, east(drained, troubled(reason.TooManyObjects)), "fit Drained"},
		"its drain is over":               {west, east(wasDrained), "fit Eligible"},
		"its drain cannot be read":        {west, east(unreadable), "fit InvalidDrain text"},
		"declared to be off":              {west, east(declared("uid"), troubled(reason.Deleting)), "unfit Fenced"},
		"another one is declared":         {west, east(declared("other")), "fit InvalidFence"},
		"something required is unhealthy": {west, east(sickly), "fit RequiredUnhealthy a till"},
		"something required is not read":  {west, east(unknown), "fit RequiredUnknown no such kind"},
	} {
		if _, got := first(shopView(test.record, test.member)); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	answered := func(m *member) { m.Answered = start }
	if c, _ := first(shopView(west, east(declared("uid"), answered))); c.Fenced != "uid" || c.Answered != start {
		t.Errorf("declared to be off: %+v", c)
	}
	if c, _ := first(shopView(west, east(declared("other"), answered))); c.Fenced != "" {
		t.Errorf("another one is declared: %+v", c)
	}
	for name, change := range map[string]func(*decide.Policy){
		"operators fail over by hand": func(p *decide.Policy) { p.Election.ManualFailover = true },
		"people have frozen it":       func(p *decide.Policy) { p.Freeze.Until = start.Wall.Add(time.Second) },
	} {
		v := shopView(ends(reason.LeaseLost), east(failing))
		change(v.Policy)
		if _, got := first(v); got != "fit Eligible" {
			t.Errorf("replaced as lost, failing, and %s: %q", name, got)
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
		"unfit Gone":        {true, reason.NoPriority},
		"unfit NoPriority":  {false, reason.NoPriority},
		"unfit NotSelected": {false, ""},
	} {
		m := measured("east", agrees, func(m *member) { m.TakesPart, m.Gone, m.PriorityReason = false, test.gone, test.why })
		m.Priority = 5
		v := shopView(decidetest.EastLeads(20), m, west)
		if c, got := first(v); got != want || c.Name != "east" || c.Priority != 5 {
			t.Errorf("%q of %+v, want %q of east", got, c, want)
		}
		v.Policy, v.Members = nil, v.Members[:1]
		if cs, _ := decidetest.Candidates(v); len(cs) != 0 {
			t.Errorf("without a policy there are %+v", cs)
		}
		v = shopView(decidetest.EastLeads(20), m, west)
		v.State.Record.Leader = "west"
		if cs, _ := decidetest.Candidates(v); len(cs) != 1 || cs[0].Name != "west" {
			t.Errorf("while west leads there are %+v", cs)
		}
	}
}

// A typing error costs no leadership, and gets nobody one.
func TestInvalidPriority(t *testing.T) {
	sick := health.Verdict{State: health.Unhealthy, Reason: reason.Recovering, Message: "it recovers"}
	for name, test := range map[string]struct {
		change func(*member)
		want   string
	}{
		"one that may lead":     {func(*member) {}, "keeps InvalidPriority"},
		"one that was not read": {func(m *member) { m.IsRead = false }, "unknown InvalidPriority"},
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
	const off = "ClockSkewed"
	suspected := skew.Verdict{State: skew.Suspected, Offset: decidetest.TwoAhead.Offset}
	with := func(ms ...member) []member { return ms }
	paused := func(m *member) { m.Paused = true }
	lost := func(m *member) { m.Verdict = health.Verdict{State: health.Unhealthy, Reason: reason.Unreachable} }
	ahead, vague := decidetest.TwoAhead, decidetest.Vague
	east, west, south := measured("east", ahead), measured("west", agrees), measured("south", vague)
	for name, test := range map[string]struct {
		members []member
		want    string // of the first, as a prefix
	}{
		"a clock that was not measured":            {with(south, west), "fit Eligible"},
		"a clock is off, another agrees":           {with(east, west), "unfit " + off},
		"a clock is off, an unreachable one vague": {with(measured("south", vague, lost), east), "unfit Unreachable"},
		"a clock is off, another one not measured": {with(east, south), "keeps " + off},
		"all clocks are off":                       {with(east, east), "keeps " + off},
		"no second answer agrees yet":              {with(measured("east", suspected), west), "keeps " + off},
		"the one that agrees takes no part":        {with(east, measured("west", agrees, outside)), "keeps " + off},
		"an unreachable member whose clock is off": {with(measured("east", ahead, lost), west), "unfit Unreachable"},
		"a paused member whose clock is off":       {with(measured("east", ahead, paused), west), "unfit " + off},
	} {
		if _, got := first(shopView(election.Record{}, test.members...)); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
