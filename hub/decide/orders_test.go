package decide_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/worker"
)

// Rule 21: an order to move the namespace is carried out, or refused. A decision comes again while it waits.
func TestOrderToMoveANamespace(t *testing.T) {
	lost := func(m *member) { m.Verdict = health.Verdict{State: health.Unhealthy, Reason: reason.Unreachable} }
	moved := func(v *decide.Snapshot) { v.Moved = true }
	unclaimed := func(v *decide.Snapshot) { v.Policy = nil; v.Claim(nil) }
	for name, test := range map[string]struct {
		to             string
		west           member
		change         func(*decide.Snapshot)
		begun, refused bool
		again          time.Duration
	}{
		"there is none":               {"", measured("west", agrees), nil, false, false, 0},
		"to a cluster that may lead":  {"west", measured("west", agrees), nil, true, false, time.Second},
		"to one that cannot":          {"west", measured("west", agrees, lost), nil, false, true, time.Second},
		"the record is another hub's": {"west", measured("west", agrees), moved, false, false, 0},
		"no policy claims it":         {"west", measured("west", agrees), unclaimed, false, false, 0},
	} {
		v := shopView(decidetest.EastLeads(20), measured("east", agrees), test.west)
		v.Object, v.Policy.Election.LeaseName = &v1alpha1.NamespaceLeader{}, "leasecast"
		v.Object.Annotations = map[string]string{v1alpha1.MoveToAnnotation: test.to, v1alpha1.MoveReasonAnnotation: "words"}
		if test.change != nil {
			test.change(v)
		}
		p := v.Decide(start, election.Sent{Final: true}, false)
		begun := p.Record.Reason == reason.Ordered && p.Order() == "words"
		if begun != test.begun || p.Refused != test.refused || p.Health != test.again {
			t.Errorf("%s: begun %t, refused %t, again after %v (%+v)", name, begun, p.Refused, p.Health, p.Record)
		}
		if v.Object = nil; v.Move() != (act.Move{}) {
			t.Errorf("%s: an order without a record: %+v", name, v.Move())
		}
	}
}

// The history has the words of the operator who ordered a change, or what was not healthy, as far as a record takes it.
func TestWhoseWordsAChangeHas(t *testing.T) {
	says := func(name string) decide.Candidate {
		c := decide.Candidate{Member: &member{Required: worker.Required{Unhealthy: name + strings.Repeat(" ", 256)}}}
		c.Name, c.Member.Drain = name, act.Act{Reason: "drain of " + name}
		return c
	}
	west, east := says("west"), says("east")
	west.Ordered = true
	south := says("south")
	for why, want := range map[reason.Reason]string{
		reason.Drained: "drain of east", reason.RequiredUnhealthy: "east" + strings.Repeat(" ", 252),
		reason.Ordered: "an order", reason.PriorityChanged: "",
	} {
		p := decide.Plan{Candidates: []decide.Candidate{south, west, east}, Move: act.Move{To: "west", Reason: "an order"}}
		p.Record = election.Record{Leader: "east", Reason: why}
		if got := p.Order(); got != want {
			t.Errorf("%s: %q, want %q", why, got, want)
		}
		if p.Candidates = []decide.Candidate{south}; p.Order() != "" {
			t.Errorf("%s, and neither the leader nor an ordered cluster is there: %q", why, p.Order())
		}
	}
}

// Rule 20: the policy's order comes first, then the record's. One that cannot be read counts for nothing.
func TestWhoHasFrozenANamespace(t *testing.T) {
	at := func(until, by string) map[string]string {
		return map[string]string{v1alpha1.FrozenUntilAnnotation: until, v1alpha1.FrozenReasonAnnotation: by}
	}
	const soon, past, never = "2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z", "in May"
	for name, test := range map[string]struct {
		policy, record string // until when
		by             string
		invalid        bool
	}{
		"the policy":                            {soon, past, "policy", false},
		"the record":                            {past, soon, "record", false},
		"both":                                  {soon, soon, "policy", false},
		"neither any more":                      {past, past, "", false},
		"the policy's cannot, the record's can": {never, soon, "record", false},
		"the record's cannot be read":           {past, never, "", true},
	} {
		v := shopView(decidetest.EastLeads(20), measured("east", agrees))
		v.Policy.Freeze = act.Freeze(at(test.policy, "policy"))
		v.Object = &v1alpha1.NamespaceLeader{}
		v.Object.Annotations = at(test.record, "record")
		p := v.Decide(start, election.Sent{Final: true}, false)
		if p.Frozen != (test.by != "") || p.Frozen && (p.Freeze.Reason != test.by || p.Health != time.Second) ||
			(p.Freeze.Invalid != "") != test.invalid {
			t.Errorf("%s: frozen %t, %+v, again after %v", name, p.Frozen, p.Freeze, p.Health)
		}
	}
}

// How long a cluster has been able to lead counts always, with what is required only where the policy fails back or
// requires something.
func TestWhatIsRememberedOfCandidates(t *testing.T) {
	for name, test := range map[string]struct {
		change         func(*decide.Policy)
		fit, unhealthy bool
	}{
		"neither":               {func(*decide.Policy) {}, false, false},
		"it fails back":         {func(p *decide.Policy) { p.Election.Failback = time.Minute }, true, false},
		"it requires something": {func(p *decide.Policy) { p.Requires = &worker.Requires{} }, true, true},
	} {
		v := shopView(decidetest.EastLeads(20), measured("east", agrees))
		test.change(v.Policy)
		p := v.Decide(start, election.Sent{Final: true}, false)
		_, able := p.AbleSince["east"]
		_, fit := p.FitSince["east"]
		if s := p.Case.State; !maps.Equal(s.AbleSince, p.AbleSince) || !maps.Equal(s.FitSince, p.FitSince) {
			t.Errorf("%s: decided with %v and %v", name, s.AbleSince, s.FitSince)
		}
		if !able || fit != test.fit || (p.UnhealthySince != nil) != test.unhealthy {
			t.Errorf("%s: able to lead since %v, fit since %v, unhealthy since %v", name, p.AbleSince, p.FitSince,
				p.UnhealthySince)
		}
	}
}

// What follows the leader is kept in place where this hub decides who leads.
func TestWhereThisHubDecides(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*decide.Snapshot)
		want   bool
	}{
		"a policy claims the namespace": {func(*decide.Snapshot) {}, true},
		"none does":                     {func(v *decide.Snapshot) { v.Policy = nil; v.Claim(nil) }, false},
		"another hub leads":             {func(v *decide.Snapshot) { v.State.OtherHub = true }, false},
		"its record is another hub's":   {func(v *decide.Snapshot) { v.State.Moved = true }, false},
	} {
		v := shopView(decidetest.EastLeads(20), measured("east", agrees))
		v.Policy.Election.LeaseName = "leasecast"
		test.change(v)
		if p := v.Decide(start, election.Sent{Final: true}, false); v.Decides(p) != test.want {
			t.Errorf("%s: it decides: %v (%s)", name, v.Decides(p), p.Waiting)
		}
	}
}

// After a restore the record may be older than the Leases. So what follows the leader waits until its cluster was read,
// but not longer than clusters have to answer.
func TestWhenARecordIsCurrent(t *testing.T) {
	const second = time.Second
	newer := func(v *decide.Snapshot) { v.State.Highest = 30 }
	frozen := func(v *decide.Snapshot) {
		v.Policy.Freeze = act.Act{Until: start.Wall.Add(time.Hour)}
	}
	for name, test := range map[string]struct {
		east   func(*member)
		change func(*decide.Snapshot)
		after  time.Duration // since the start of the tenure
		want   bool
	}{
		"the leader was read":                           {func(*member) {}, nil, 0, true},
		"it was not, and has time to answer":            {unread, nil, 15*second - 1, false},
		"it was not, who leads is frozen":               {unread, frozen, 15*second - 1, false},
		"it was not, and its time has passed":           {unread, nil, 15 * second, true},
		"it was read, but a newer term was seen":        {func(*member) {}, newer, time.Hour, false},
		"a newer term was seen, and the record follows": {func(*member) {}, adopts, 0, true},
	} {
		v := shopView(decidetest.EastLeads(20), measured("east", agrees, test.east), measured("west", agrees))
		v.Policy.Election.LeaseName, v.Policy.Election.Timings.Duration = "leasecast", 15*second
		v.Complete(decide.Fleet{Now: start, Tenure: election.Tenure{Started: start}})
		if test.change != nil {
			test.change(v)
		}
		if p := v.Decide(later(test.after), election.Sent{Final: true}, false); v.IsCurrent(p) != test.want {
			t.Errorf("%s: %v", name, v.IsCurrent(p))
		}
	}
}

// adopts shows a newer term of west, which is live.
func adopts(v *decide.Snapshot) {
	v.State.Highest = 30
	v.State.Found = &election.FoundTerm{Cluster: "west", Boot: start.Boot + time.Second, Term: lease.Term{
		Holder: them, Epoch: 30, RenewTime: start.Wall, Duration: 15 * time.Second,
	}}
}

func TestAllPaused(t *testing.T) {
	east, paused := measured("east", agrees), measured("west", agrees, func(m *member) { m.Paused = true })
	for name, test := range map[string]struct {
		members []member
		want    bool
	}{
		"no member": {nil, false}, "one of two": {[]member{paused, east}, false},
		"all": {[]member{paused, paused}, true}, "none": {[]member{east}, false},
	} {
		if got := decide.AllPaused(test.members); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
