package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
)

// Rules 12 and 15: the election decides by the fences that deadlines rely on, in each cluster.
func TestFencesInACluster(t *testing.T) {
	for want, err := range map[election.Fence]error{
		election.FenceInForce: nil, election.FenceMissing: guard.ErrNotEnforced,
		election.FenceUnchecked: fmt.Errorf("east: %w", guard.ErrUnchecked),
	} {
		for _, takesPart := range []bool{true, false} { // the leader, in both cases
			cs, _ := decidetest.Candidates(shopView(decidetest.EastLeads(20), measured("east", agrees, func(m *member) {
				m.UnfencedByLease, m.TakesPart = err, takesPart
			})))
			if got := cs[0].Unfenced; got != want {
				t.Errorf("%v, takes part %v: %v, want %v", err, takesPart, got, want)
			}
		}
	}
}

// Rule 10: a successor shows that it can be written by a Lease of this change. A Lease of another change shows nothing.
func TestSuccessorIsPreparedOrRefusedInThisChange(t *testing.T) {
	since := start.Wall
	earlier, later := since.Add(-time.Minute), since.Add(time.Minute)
	for name, test := range map[string]struct {
		facts             publish.SyncStatus
		prepared, refused bool
	}{
		"written for this change":       {publish.SyncStatus{InPlace: true, MinRenewTime: since}, true, false},
		"written for an earlier change": {publish.SyncStatus{InPlace: true, MinRenewTime: earlier}, false, false},
		"written for no change":         {publish.SyncStatus{InPlace: true}, false, false},
		"written for a later change":    {publish.SyncStatus{InPlace: true, MinRenewTime: later}, false, false},
		"refused in this change":        {publish.SyncStatus{Refused: true, MinRenewTime: since}, false, true},
		"refused in an earlier change":  {publish.SyncStatus{Refused: true, MinRenewTime: earlier}, false, false},
	} {
		r := election.Record{State: election.Ending, Leader: "east", Epoch: 20, Since: since, Next: "west"}
		cs, _ := decidetest.Candidates(shopView(r, measured("west", agrees, func(m *member) { m.Sync = test.facts })))
		if got := cs[0]; got.Prepared != test.prepared || got.Refused != test.refused {
			t.Errorf("%s: prepared %v, refused %v; want %v, %v", name, got.Prepared, got.Refused, test.prepared, test.refused)
		}
	}
}

func TestANamespaceThatThePolicyDoesNotMatchIsMissing(t *testing.T) {
	v := shopView(election.Record{Epoch: 20, Leader: "west"}, measured("east", agrees))
	v.Policy = decide.ParsePolicy(&v1alpha1.LeadershipPolicy{})
	if cs, _ := decidetest.Candidates(v); cs[0].Reason != reason.NamespaceMissing {
		t.Errorf("reason %s", cs[0].Reason)
	}
}

func TestCandidatesAreJudgedAgainWhenTheFirstHealthMayChange(t *testing.T) {
	next := func(d time.Duration) func(*member) { return func(m *member) { m.Verdict.Next = d } }
	outside := func(m *member) { m.TakesPart, m.Verdict.Next = false, 1 }
	const second = time.Second
	for name, test := range map[string]struct {
		east, west func(*member)
		want       time.Duration
	}{
		"the first one":               {next(2 * second), next(5 * second), 2 * second},
		"the first one takes no part": {outside, next(second), second},
	} {
		cs, after := decidetest.Candidates(shopView(election.Record{}, measured("east", agrees, test.east),
			measured("west", agrees, test.west)))
		if after != test.want || !cs[0].Answering {
			t.Errorf("%s: again after %v, want %v; %s answers: %v", name, after, test.want, cs[0].Name, cs[0].Answering)
		}
	}
}

// If most clusters are lost at once, it may be the hub that is cut off. What is lost before or after that changes
// nothing.
func TestMostUnreachable(t *testing.T) {
	const window = 10 * time.Second
	at := func(state health.State, since time.Duration) member {
		return member{
			TakesPart: true, Verdict: health.Verdict{State: state, Since: lease.Reading{Boot: time.Hour + since}},
		}
	}
	outside := func(m member) member { m.TakesPart = false; return m }
	lost := func(since time.Duration) member { return at(health.Unhealthy, since) }
	fine, never := at(health.Healthy, 0), member{TakesPart: true}
	unseen := never // by this tenure, which began at start
	unseen.UID = "pinned"
	began := election.Tenure{Started: lease.Reading{Wall: start.Wall, Boot: time.Hour}}
	for name, test := range map[string]struct {
		members []member
		want    bool
	}{
		"two of four":                            {[]member{lost(0), fine, lost(0), fine}, false},
		"one of one, and a healthy one outside":  {[]member{lost(0), outside(fine)}, true},
		"one of one, and one never reached":      {[]member{lost(0), never}, true},
		"two of three, which a restart forgot":   {[]member{unseen, unseen, fine}, true},
		"one of three, and a restart forgot one": {[]member{unseen, lost(window + 1), fine}, false},
		"two of three, within one window":        {[]member{lost(0), lost(window), fine}, true},
		"two of three, not within one window":    {[]member{lost(0), lost(window + 1), fine}, false},
		"two of three, the last one comes first": {[]member{lost(window + 1), lost(0), fine}, false},
		"three of five, and a fourth one an hour later": {
			[]member{lost(time.Hour), lost(0), lost(window), lost(1), fine}, true,
		},
	} {
		v := shopView(election.Record{}, test.members...)
		v.Policy.Thresholds.UnreachableAfter = window
		if v.Complete(decide.Fleet{Now: start, Tenure: began}); v.State.MostUnreachable != test.want {
			t.Errorf("%s: %v, want %v", name, v.State.MostUnreachable, test.want)
		}
	}
}

// A Lease keeps its name until its record says otherwise.
func TestAssignments(t *testing.T) {
	east := election.Record{State: election.Leading, Leader: "east", Epoch: 20, LeaseName: "leasecast"}
	west, renamed, unnamed := east, east, east
	west.Leader, renamed.LeaseName, unnamed.LeaseName = "west", "another", ""
	there := func(m *member) {
		m.Leases = []publish.Lease{{Key: types.NamespacedName{Namespace: "shop", Name: "leasecast"}}}
	}
	with := func(changes ...func(*member)) []member { return []member{measured("east", agrees, changes...)} }
	gone := func(_ *decide.Snapshot, p *decide.Plan) { p.Gone = true }
	moved := func(v *decide.Snapshot, _ *decide.Plan) { v.Moved = true }
	taken := func(m *member) { m.Sync = publish.SyncStatus{Marked: true, InPlace: true} }
	onlyRecorded := func(v *decide.Snapshot, _ *decide.Plan) {
		v.Policy, v.Object, v.Members = nil, owned("a!"), slices.Clone(v.Members)
		v.Claim(decidetest.Policies("a!"))
	}
	all := []member{measured("a", agrees), measured("east", agrees), measured("z", agrees)}
	for name, test := range map[string]struct {
		record  election.Record
		members []member
		change  func(*decide.Snapshot, *decide.Plan)
		want    string
	}{
		"the leader's cluster comes first": {
			east, all, nil, "east/leasecast leads, a/leasecast follows, z/leasecast follows",
		},
		"the leader takes no part":           {east, with(outside), nil, "east/leasecast leads"},
		"the namespace is missing":           {east, with(without), nil, "east/leasecast stays"},
		"the namespace terminates":           {west, with(terminating), nil, "east/leasecast stays"},
		"its namespaces are not known":       {west, with(unread), nil, "east/leasecast follows"},
		"no namespace, and it takes no part": {west, with(without, outside), nil, "east/leasecast is absent"},
		"it has no publisher":                {west, with(func(m *member) { m.Publisher = nil }), nil, ""},
		"the leader's Lease is renamed":      {renamed, with(there), nil, "east/leasecast is absent, east/another leads"},
		"the policy names the Lease":         {unnamed, with(), nil, "east/new leads"},
		"another hub's Lease is renamed":     {renamed, with(there), moved, "east/another leads"},
		"the leader's Lease is another hub's": {
			east, all, moved, "east/leasecast leads, a/leasecast stays, z/leasecast stays",
		},
		"the leader's Lease was taken from another hub": {
			east, []member{measured("a", agrees), measured("east", agrees, taken)}, moved,
			"east/leasecast leads, a/leasecast follows",
		},
		"nothing depends on the record": {west, with(), gone, "east/leasecast is absent"},
		"only the record is known":      {east, all, onlyRecorded, "east/leasecast leads"},
	} {
		v, p := shopView(test.record, test.members...), decide.Plan{Decision: election.Decision{Record: test.record}}
		if v.Policy.Election.LeaseName = "new"; test.change != nil {
			test.change(v, &p)
		}
		var got []string
		for _, a := range v.Assignments(p, false) {
			does := [...]string{"stays", "is absent", "follows", "leads", "is revoked"}[a.Role]
			got = append(got, fmt.Sprintf("%s/%s %s", a.Member.Name, a.Key.Name, does))
		}
		if got := strings.Join(got, ", "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Requests have a timeout without a policy, too, and a Lease that stands is not due at once.
func TestLeaseTimings(t *testing.T) {
	p := decide.ParsePolicy(decidetest.PolicyFor("fleet", "shops", "shop"))
	p.Election.StopTime = 7 * time.Second
	for d, longest := range map[time.Duration]time.Duration{3: 16, 30: 31} { // of the record
		want := publish.Timings{
			Renew: 5 * time.Second, Timeout: 3 * time.Second, Skew: time.Second, Stop: 7 * time.Second,
			LongestPromise: longest * time.Second, Patience: 10 * time.Second,
		}
		if got := p.LeaseTimings(election.Record{Duration: d * time.Second}); got != want {
			t.Errorf("under a recorded D of %d s: %+v, want %+v", d, got, want)
		}
	}
	p = nil
	if got := p.LeaseTimings(election.Record{}); got != (publish.Timings{Renew: time.Second, Timeout: time.Second}) {
		t.Errorf("without a policy: %+v", got)
	}
}
