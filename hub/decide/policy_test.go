package decide_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/seal"
)

var (
	zoneA, zoneB = map[string]string{"zone": "a"}, map[string]string{"zone": "b"}
	stock        = decidetest.Locks(decidetest.StockLock)
)

// fencing is a valid policy that fences something in the clusters of a zone.
func fencing(name string, zone map[string]string, f *v1alpha1.Fencing) *decide.Policy {
	o := decidetest.Fencing(f)
	o.Name, o.Spec.ClusterSelector = name, &metav1.LabelSelector{MatchLabels: zone}
	return decide.ParsePolicy(o)
}

// named is a policy that fences nothing, whose Leases have a name.
func named(name, lease string) *decide.Policy {
	p := fencing(name, nil, nil)
	p.Object.Spec.LeaseName = lease
	return p
}

// A lock that two policies fence in one cluster has one leader: that of the older policy.
func TestYoungerPolicyOpensNoLockOfAnOlderOne(t *testing.T) {
	members := []fleet.Member{{Key: decidetest.EastKey, Labels: zoneA}, {Key: decidetest.WestKey, Labels: zoneB}}
	young := func(zone map[string]string) *decide.Policy { return fencing("young", zone, stock) }
	for name, test := range map[string]struct {
		older, younger   *decide.Policy
		old, young, lost bool
	}{
		"they share one cluster":               {fencing("old", zoneA, stock), young(nil), true, false, false},
		"they share none":                      {fencing("old", zoneA, stock), young(zoneB), true, true, false},
		"the older one fences nothing":         {fencing("old", nil, nil), young(nil), false, true, false},
		"the older one has lost its namespace": {fencing("old", nil, stock), young(nil), true, true, true},
		"the hub writes it for the older one":  {named("old", "stock"), young(nil), false, false, false},
	} {
		policies := []*decide.Policy{test.older, test.younger}
		decide.ShareLocks(policies, members, func(*decide.Policy) bool { return test.lost })
		if old, young := len(test.older.Election.Locks) > 0,
			len(test.younger.Election.Locks) > 0; old != test.old || young != test.young {
			t.Errorf("%s: the older opens it: %v, the younger: %v; want %v, %v", name, old, young, test.old, test.young)
		}
		if why := test.younger.Refused; (why == "") != test.young || test.older.Refused != "" {
			t.Errorf("%s: refused because of %q, the older one because of %q", name, why, test.older.Refused)
		}
		if got := test.younger.Election.StopTime; (got == 4*time.Second) != test.young {
			t.Errorf("%s: its stop time is %v", name, got)
		}
	}
}

// An API server that is behind admits Jobs and locks until the term has expired, whatever readers say. A warning keeps
// nobody from renewing a lock.
func TestWhatFencesMakeOfATerm(t *testing.T) {
	jobs := &metav1.LabelSelector{}
	unstated := v1alpha1.LockFence{LeaseDurationSeconds: 15, RenewDeadlineSeconds: 10, RetryPeriodSeconds: 2}
	quick, slow := unstated, unstated
	quick.RequestTimeoutSeconds, quick.ReleaseTimeoutSeconds = 5, ptr.To[int32](0)
	slow.RenewDeadlineSeconds, slow.RetryPeriodSeconds = 40, 15
	slow.RequestTimeoutSeconds, slow.ReleaseTimeoutSeconds = 20, ptr.To[int32](0)
	type f = v1alpha1.Fencing
	const warns, denies = v1alpha1.EnforcementWarn, v1alpha1.EnforcementDeny
	for name, test := range map[string]struct {
		fencing      *f
		acknowledged bool
		stop         time.Duration
	}{
		"of writes":                        {&f{Writes: []v1alpha1.WriteFence{{}}}, true, 0},
		"of schedules":                     {&f{Schedules: jobs}, false, 0},
		"of a lock whose timeouts are set": {decidetest.Locks(quick), false, 17 * time.Second},
		"of a lock with default timeouts":  {decidetest.Locks(unstated), false, 192 * time.Second},
		"of locks: the slowest counts":     {decidetest.Locks(quick, slow, quick), false, 75 * time.Second},
		"of a lock, with a warning": {
			&f{Enforcement: warns, LeaderElectionLocks: []v1alpha1.LockFence{slow}}, true, 0,
		},
	} {
		parsed := decide.ParsePolicy(decidetest.Fencing(test.fencing))
		if l := parsed.SlowestLock(); (l != nil) != (test.stop > 0) || l != nil && l.StopTime() != test.stop {
			t.Errorf("%s: the slowest lock is %v", name, l)
		}
		p := parsed.Election
		if p.Acknowledged != test.acknowledged || p.StopTime != test.stop {
			t.Errorf("%s: acknowledged %v, stop time %v; want %v, %v", name, p.Acknowledged, p.StopTime, test.acknowledged,
				test.stop)
		}
	}
}

// Two policies never fence one lock in a member: it would be held nowhere, or the wrong leader would count.
func TestFencesInAMember(t *testing.T) {
	other := decidetest.StockLock
	other.Name = "other"
	invalid, unlike := fencing("old", nil, stock), decidetest.Locks(other)
	invalid.Unknown = true
	none, leads := func(*decide.Policy) bool { return false }, func(*decide.Policy) bool { return true }
	lost := func(err error, namespaces ...string) func(*decide.Policy) ([]string, error) {
		return func(*decide.Policy) ([]string, error) { return namespaces, err }
	}
	type policies = []*decide.Policy
	old, young := fencing("old", nil, stock), fencing("young", nil, stock)
	for name, test := range map[string]struct {
		policies policies // oldest first
		leads    func(*decide.Policy) bool
		fences   int
		invalid  []string
	}{
		"both fence the lock":                   {policies{old, young}, none, 1, nil},
		"they fence different locks":            {policies{fencing("old", nil, unlike), young}, none, 2, nil},
		"the older one's fences are not known":  {policies{invalid, young}, none, 1, []string{"old"}},
		"the hub writes the lock for the older": {policies{named("old", "stock"), young}, none, 0, nil},
		"the hub writes it for the younger":     {policies{old, named("young", "stock")}, none, 1, nil},
		"a cluster of another zone leads":       {policies{fencing("old", zoneB, stock)}, leads, 1, nil},
		"a cluster of another zone follows":     {policies{fencing("old", zoneB, stock)}, none, 0, nil},
	} {
		fs, unknown, err := decide.FencesIn("this", test.policies, fleet.Member{Labels: zoneA}, lost(nil), test.leads)
		if len(fs) != test.fences || !slices.Equal(unknown, test.invalid) || err != nil {
			t.Errorf("%s: %d fences, unknown are those of %q (%v); want %d, %q", name, len(fs), unknown, err, test.fences,
				test.invalid)
		}
	}
	fs, _, err := decide.FencesIn("this", policies{young}, fleet.Member{}, lost(nil, "shop"), none)
	if len(fs) > 0 || err != nil {
		t.Errorf("it has lost its namespace: %d fences (%v)", len(fs), err)
	}
	failed := errors.New("the records cannot be listed")
	if _, _, err := decide.FencesIn("this", policies{young}, fleet.Member{}, lost(failed), none); !errors.Is(err, failed) {
		t.Errorf("what a policy has lost is not known: %v", err)
	}
}

func TestDefaultsOfAPolicy(t *testing.T) {
	p := decide.ParsePolicy(decidetest.PolicyFor("fleet", "shops", "shop"))
	if p.Invalid != nil || !p.Election.FailOverWhenMostUnreachable || p.Election.Acknowledged ||
		p.Election.LeaseName != v1alpha1.DefaultLeaseName || p.MostMoves != int(v1alpha1.DefaultMaxConcurrentMoves) ||
		p.Bounds() != (seal.Bounds{Duration: 15 * time.Second, Skew: time.Second}) {
		t.Errorf("%+v, %v, bounds %+v", p.Election, p.Invalid, p.Bounds())
	}
	if want := (health.Thresholds{Timeout: 3 * time.Second, UnreachableAfter: 10 * time.Second,
		RecoverAfter: 5 * time.Second}); p.Thresholds != want {
		t.Errorf("%+v, want %+v", p.Thresholds, want)
	}
	if !p.Selects(fleet.Member{}) || p.Matches("till", map[string]string{"a": "b"}) {
		t.Error("it selects no cluster, or matches a namespace that it does not name")
	}
}

func TestFieldsOfAPolicy(t *testing.T) {
	o := decidetest.PolicyFor("fleet", "shops", "shop")
	o.Spec.LeaseName, o.Spec.Handover, o.Spec.Health.WhenMostUnreachable = "active", v1alpha1.HandoverRegisteredReaders,
		v1alpha1.HoldWhenMostUnreachable
	o.Spec.Health.UnreachableAfterMilliseconds, o.Spec.Health.RecoverAfterMilliseconds = 7000, ptr.To[int32](9000)
	o.Spec.InitialDelaySeconds, o.Spec.MaxConcurrentMoves = ptr.To[int32](3), 7
	o.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "here"}}
	o.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shops"}}
	p := decide.ParsePolicy(o)
	if p.Invalid != nil || p.Election.FailOverWhenMostUnreachable || !p.Election.Acknowledged ||
		p.Election.LeaseName != "active" || p.Election.InitialDelay != 3*time.Second || p.MostMoves != 7 {
		t.Errorf("%+v, %v", p.Election, p.Invalid)
	}
	o.Spec.InitialDelaySeconds = nil // as before there was such a field
	if d := decide.ParsePolicy(o).Election.InitialDelay; d != v1alpha1.DefaultInitialDelay {
		t.Errorf("without a delay the first leader waits for %v", d)
	}
	if want := (health.Thresholds{Timeout: 3 * time.Second, UnreachableAfter: 7 * time.Second,
		RecoverAfter: 9 * time.Second}); p.Thresholds != want {
		t.Errorf("%+v, want %+v", p.Thresholds, want)
	}
	for region, want := range map[string]bool{"here": true, "there": false} {
		if got := p.Selects(fleet.Member{Labels: map[string]string{"region": region}}); got != want {
			t.Errorf("it selects a cluster %s: %v", region, got)
		}
	}
	team := map[string]string{"team": "shops"}
	if !p.Matches("shop", nil) || !p.Matches("till", team) || p.Matches("till", nil) || p.Matches("kube-public", team) {
		t.Error("it does not match what it names and selects, or matches something else")
	}
}

// An invalid selector matches nothing, and least of all everything. API servers compare the labels of a fence.
func TestPolicyWithAnInvalidSelectorIsInvalid(t *testing.T) {
	bad := &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "resembles"}}, // as stored before the CRD
	}
	key, value := map[string]string{"no key!": "x"}, map[string]string{"led": "no value!"}
	for name, test := range map[string]struct {
		change func(*v1alpha1.LeadershipPolicySpec)
		valid  bool
	}{
		"clusterSelector": {func(s *v1alpha1.LeadershipPolicySpec) { s.ClusterSelector = bad }, false},
		"namespace selector": {func(s *v1alpha1.LeadershipPolicySpec) {
			s.Namespaces = v1alpha1.NamespaceSelection{Selector: bad}
		}, false},
		"fence of Jobs": {func(s *v1alpha1.LeadershipPolicySpec) {
			s.Fencing = &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{MatchLabels: key}}
		}, false},
		"fence of objects, the value": {fencesObjects(value), false},
		"a valid fence of objects":    {fencesObjects(map[string]string{"led": "shop"}), true},
	} {
		o := decidetest.PolicyFor("fleet", "shops", "shop")
		test.change(&o.Spec)
		p := decide.ParsePolicy(o)
		if selects := p.Selects(fleet.Member{}) && p.Matches("shop", nil); (p.Invalid == nil) != test.valid ||
			o.Spec.Fencing == nil && selects {
			t.Errorf("%s: %v, selects everything: %v", name, p.Invalid, selects)
		}
	}
}

func fencesObjects(labels map[string]string) func(*v1alpha1.LeadershipPolicySpec) {
	return func(s *v1alpha1.LeadershipPolicySpec) {
		s.Fencing = &v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{ObjectLabels: labels}}}
	}
}

// A reader believes no renewTime that is further ahead than the ε of its Lease. So a hub that renews by a record alone
// must not say less than the hub before it.
func TestLeaderOfAnInvalidPolicyIsRenewedUnderItsClockSkew(t *testing.T) {
	for _, test := range []struct{ duration, recorded, want time.Duration }{
		{9 * time.Second, 5 * time.Second, 5 * time.Second},
		{15 * time.Second, 0, time.Second}, // of an older hub
		{3 * time.Second, 2750 * time.Millisecond, 2750 * time.Millisecond},
		{3 * time.Second, 2999 * time.Millisecond, 1500 * time.Millisecond}, // edited: no valid policy leaves so little
	} {
		v := &decide.Snapshot{Entry: decidetest.Entry(shop), Members: []member{in("east"), in("west")}}
		v.Object = owned("a!")
		v.Record = election.Record{State: election.Leading, Leader: "east", Duration: test.duration, Skew: test.recorded,
			Stop: 7 * time.Second, LeaseName: "active", OpenLocks: []string{"shop/stock"}}
		v.Claim(decidetest.Policies("a!"))
		if p := v.Policy.Election; p.StopTime != 7*time.Second || p.LeaseName != "active" ||
			!slices.Equal(p.Locks, v.Record.OpenLocks) {
			t.Errorf("D %v, ε %v: its locks or its Lease differ from the record: %+v", test.duration, test.recorded, p)
		}
		if h := v.Policy.Thresholds; h.Timeout != v.Policy.Election.Timings.Timeout ||
			h.RecoverAfter != v.Policy.Election.Timings.Renew || h.UnreachableAfter != 2*h.RecoverAfter {
			t.Errorf("D %v, ε %v: unreachable by %+v", test.duration, test.recorded, h)
		}
		if got := v.Policy.Election.Timings; got.Skew != test.want || got.Renew <= 0 ||
			2*got.Renew+got.Timeout+got.Skew > got.Duration || v.Members[1].TakesPart {
			t.Errorf("D %v, ε %v: %+v, want ε %v and no other candidate", test.duration, test.recorded, got, test.want)
		}
	}
}

// invalidate has a policy fence objects by a label that no object can have.
var invalidate = fencesObjects(map[string]string{"led": "no value!"})

// Rule 17: an invalid version changes nothing, and is reported.
func TestLastValidVersionOfAPolicy(t *testing.T) {
	for name, test := range map[string]struct {
		durations []int32 // in seconds, of one generation after the other; with 3 it is invalid
		again     bool    // the last one is another policy of that name
		want      time.Duration
		unknown   bool
		invalid   bool
	}{
		"an invalid version":             {[]int32{15, 3}, false, 15 * time.Second, false, true},
		"a valid one after an invalid":   {[]int32{15, 3, 30}, false, 30 * time.Second, false, false},
		"no valid version was ever seen": {[]int32{3}, false, 3 * time.Second, true, true},
		"an invalid policy made again":   {[]int32{15, 3}, true, 3 * time.Second, true, true},
		"a valid policy made again":      {[]int32{15, 30}, true, 30 * time.Second, false, false},
	} {
		var vs decide.Versions
		var p *decide.Policy
		for i, d := range test.durations {
			o := decidetest.PolicyFor("fleet", "shops", "shop")
			o.Generation, o.Spec.Timings.LeaseDurationMilliseconds, o.UID = int64(i), 1000*d, "uid"
			if d == 3 {
				invalidate(&o.Spec)
			}
			if test.again && i == len(test.durations)-1 {
				o.Generation, o.UID = 0, types.UID("another")
			}
			p = vs.LastValid("fleet", []*v1alpha1.LeadershipPolicy{o})[0]
		}
		d, invalid := p.Election.Timings.Duration, p.Invalid != nil
		if d != test.want || p.Unknown != test.unknown || invalid != test.invalid {
			t.Errorf("%s: D %v, unknown %v, invalid %v", name, d, p.Unknown, p.Invalid)
		}
	}
	var vs decide.Versions
	good, bad := decidetest.PolicyFor("fleet", "shops", "shop"), decidetest.PolicyFor("fleet", "shops", "shop")
	bad.Generation = 8
	invalidate(&bad.Spec)
	vs.LastValid("fleet", []*v1alpha1.LeadershipPolicy{good})
	vs.LastValid("fleet2", nil)
	if p := vs.LastValid("fleet", []*v1alpha1.LeadershipPolicy{bad})[0]; p.Unknown {
		t.Error("a list of another fleet forgets the policy")
	}
	vs.LastValid("fleet", nil)
	if p := vs.LastValid("fleet", []*v1alpha1.LeadershipPolicy{bad})[0]; !p.Unknown {
		t.Error("a policy is remembered after its deletion")
	}
}
