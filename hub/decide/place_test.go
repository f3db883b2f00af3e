package decide_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/worker"
)

// spreadOver returns which of some clusters is the best for each of 1,000 namespaces, and how many each has.
func spreadOver(clusters ...string) (best map[string]string, shares map[string]int) {
	best, shares = map[string]string{}, map[string]int{}
	for n := range 1000 {
		var ms []decide.Member
		for _, name := range clusters {
			ms = append(ms, decidetest.Member(name, decidetest.Agrees, func(m *decide.Member) { m.UID = "uid of " + name }))
		}
		v := decidetest.Snapshot(election.Record{}, ms...)
		v.Key = types.NamespacedName{Namespace: "fleet", Name: fmt.Sprint("team-", n)}
		v.Policy.Spread, v.Policy.Names[v.Key.Name] = true, true
		cs, _ := decidetest.Candidates(v)
		ranked := make([]election.Candidate, 0, len(cs))
		for _, c := range cs {
			ranked = append(ranked, c.Candidate)
		}
		election.Rank(ranked)
		best[v.Key.Name] = ranked[0].Name
		shares[ranked[0].Name]++
	}
	return best, shares
}

// The largest share is at most 1.25 of the mean, also when a cluster is lost, and its loss moves nothing else.
func TestSpreadIsEven(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	before, shares := spreadOver(all...)
	after, rest := spreadOver(all[1:]...)
	for clusters, of := range map[int]map[string]int{len(all): shares, len(all) - 1: rest} {
		for name, share := range of {
			if most := 1.25 * 1000 / float64(clusters); float64(share) > most {
				t.Errorf("of %d clusters %s leads %d namespaces, more than %.0f", clusters, name, share, most)
			}
		}
	}
	for namespace, leader := range before {
		if leader != "a" && after[namespace] != leader {
			t.Errorf("%s moves from %s to %s", namespace, leader, after[namespace])
		}
	}
}

func TestOverrideIsAboveAllPriorities(t *testing.T) {
	v := decidetest.Snapshot(election.Record{},
		decidetest.Member("east", decidetest.Agrees, func(m *decide.Member) { m.Priority = 100 }),
		decidetest.Member("west", decidetest.Agrees))
	for namespace, want := range map[string]int32{"shop": math.MaxInt32, "other": 0} {
		v.Policy.Overrides = map[string]string{namespace: "west"}
		if cs, _ := decidetest.Candidates(v); cs[1].Priority != want || cs[0].Priority != 100 {
			t.Errorf("preferred for %s, east has priority %d, and west %d", namespace, cs[0].Priority, cs[1].Priority)
		}
	}
}

// What a policy asks for reaches the election. Annotations count without a new generation.
func TestWhatAPolicyAsksOfAnOperator(t *testing.T) {
	o := decidetest.PolicyFor("fleet", "shops", "shop")
	var versions decide.Versions
	parsed := func() *decide.Policy {
		return versions.LastValid("fleet", []*v1alpha1.LeadershipPolicy{o.DeepCopy()})[0]
	}
	p := parsed()
	if e := p.Election; e.Failback != 0 || e.ManualFailover || p.Spread || !e.RebalanceAt.IsZero() {
		t.Errorf("by default: %+v", e)
	}
	o.Generation++
	o.Spec.Failback, o.Spec.Failover, o.Spec.Placement = v1alpha1.Automatic, v1alpha1.Manual, v1alpha1.PlacementSpread
	o.Spec.Overrides = []v1alpha1.Override{{Namespace: "shop", Cluster: "west"}}
	o.Spec.Requires = &v1alpha1.Requires{Resources: []v1alpha1.RequiredResources{
		{Group: "apps", Names: []string{"deployments"}}, {Group: "example.com", Version: "v2", Names: []string{"tills"}},
	}}
	wanted := []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "example.com", Version: "v2", Resource: "tills"},
	}
	later := o.DeepCopy()
	later.Generation++
	later.Spec.FailbackAfterSeconds, later.Spec.Requires.UnhealthyAfterSeconds, later.Spec.Requires.Reader = 70, 40, true
	if p := decide.ParsePolicy(later); p.Election.Failback != 70*time.Second || !p.Requires.Reader ||
		p.Election.UnhealthyAfter != 40*time.Second {
		t.Errorf("with times of its own: %+v", p)
	}
	if p := parsed(); !slices.Equal(p.Requires.Resources, wanted) || p.Requires.Reader ||
		p.Election.UnhealthyAfter != 30*time.Second {
		t.Errorf("what must be healthy: %+v for %v", p.Requires, p.Election.UnhealthyAfter)
	}
	if p := parsed(); p.Election.Failback != 5*time.Minute || !p.Election.ManualFailover || !p.Spread ||
		p.Overrides["shop"] != "west" {
		t.Errorf("all of it: %+v", p)
	}
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.RebalanceAtAnnotation, "2026-03-01T12:00:00Z")
	if p := parsed(); !p.Election.RebalanceAt.Equal(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("rebalanced at %v", p.Election.RebalanceAt)
	}
}

// No Lease with a D of more than an hour opens a lock, so it delays no lock of another policy.
func TestLongLeaseDuration(t *testing.T) {
	o := decidetest.PolicyFor("fleet", "shops", "shop")
	o.Spec.Failover, o.Spec.Timings.LeaseDurationMilliseconds = v1alpha1.Manual, 86_400_000
	v := decidetest.Snapshot(election.Record{})
	v.Complete(decide.Fleet{Bounds: decide.ParsePolicy(o).Bounds()})
	if v.State.FleetDuration != time.Hour {
		t.Errorf("locks wait for a D of %v", v.State.FleetDuration)
	}
}

// What is unhealthy has failed once every decision of the policy's time has found it so.
func TestRequiredFails(t *testing.T) {
	east := decidetest.Member("east", decidetest.Agrees)
	east.Required = worker.Required{Unhealthy: "a Deployment is not Available"}
	west := decidetest.Member("west", decidetest.Agrees)
	west.Required = worker.Required{Err: errors.New("it cannot be read")}
	v := decidetest.Snapshot(election.Record{}, east, west)
	v.Policy.Requires, v.Policy.Election.UnhealthyAfter = &worker.Requires{Reader: true}, 30*time.Second
	decideAt := func(after time.Duration) decide.Plan {
		now := decidetest.Start
		now.Wall, now.Boot = now.Wall.Add(after), now.Boot+after
		p := v.Decide(now, election.Sent{Final: true}, false)
		v.UnhealthySince = p.UnhealthySince
		return p
	}
	for _, test := range []struct {
		after, again time.Duration
		want         election.Required
	}{
		{0, 30 * time.Second, election.RequiredUnhealthy},
		{10 * time.Second, 20 * time.Second, election.RequiredUnhealthy},
		{30 * time.Second, 0, election.RequiredFailed},
	} {
		p := decideAt(test.after)
		if p.Health != test.again || p.Candidates[0].Required != test.want ||
			p.Candidates[1].Required != election.RequiredUnknown {
			t.Errorf("after %v: again in %v, %+v", test.after, p.Health, p.Candidates)
		}
	}
	v.Members[0].Required = west.Required
	if p := decideAt(31 * time.Second); p.Candidates[0].Required != election.RequiredUnknown {
		t.Error("it cannot be read, and has failed")
	}
	v.Members[0].Required = east.Required
	if p := decideAt(32 * time.Second); p.Candidates[0].Required != election.RequiredFailed {
		t.Error("it could not be read for a moment, and nothing is known any more")
	}
	v.Members[0].Required = worker.Required{}
	if p := decideAt(33 * time.Second); p.Health != 30*time.Second {
		t.Errorf("it has been healthy for long enough in %v", p.Health)
	}
	v.Members[0].Required = east.Required
	if p := decideAt(34 * time.Second); p.Candidates[0].Required != election.RequiredUnhealthy {
		t.Error("it was healthy for a moment, and has failed at once")
	}
	v.Members[1].Required = east.Required
	if p := decideAt(35 * time.Second); p.Health != 29*time.Second {
		t.Errorf("the first of two fails in %v", p.Health)
	}
}
