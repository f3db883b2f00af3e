package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/ledger"
)

// Rule 19: of one policy, so many planned changes are under way at once.
func TestPlannedChangesOfAPolicyAreCounted(t *testing.T) {
	draining := election.Record{State: election.Draining, Reason: "Drained"}
	lost := election.Record{State: election.Draining, Reason: "Unreachable"}
	leading := election.Record{State: election.Leading, Reason: "HandedOver"}
	viewOf := func(fleetName, policy, namespace string) *decide.Snapshot {
		v := &decide.Snapshot{Entry: takenOf(types.NamespacedName{Namespace: fleetName, Name: namespace})}
		if policy != "" {
			p := &v1alpha1.LeadershipPolicy{}
			p.Namespace, p.Name = fleetName, policy
			v.Policy = &decide.Policy{Object: p, MostMoves: 2}
		}
		return v
	}
	type noted struct {
		policy, namespace string
		record            election.Record
		waiting           reason.Reason
	}
	found := func(namespace string, state v1alpha1.RecordState, why reason.Reason) *v1alpha1.NamespaceLeader {
		o := ledger.NewRecord(types.NamespacedName{Namespace: "fleet", Name: namespace})
		o.Spec.Policy, o.Spec.State, o.Spec.Reason = "shops", state, why
		return o
	}
	a, b := noted{"shops", "a", draining, ""}, noted{"shops", "b", draining, ""}
	all := func(ns ...noted) []noted { return ns }
	for name, test := range map[string]struct {
		before []noted
		fleet  string
		want   bool
		found  []*v1alpha1.NamespaceLeader
	}{
		"an earlier tenure has begun as many": {nil, "fleet", false, []*v1alpha1.NamespaceLeader{
			found("a", v1alpha1.StateDraining, reason.Drained), found("b", v1alpha1.StateDraining, reason.Ordered)}},
		"an earlier tenure has replaced a lost leader, and moved another": {nil, "fleet", true, []*v1alpha1.NamespaceLeader{
			found("a", v1alpha1.StateDraining, reason.Unreachable), found("b", v1alpha1.StateLeading, reason.HandedOver)}},
		"one waits for the end of a freeze":  {all(a, b, noted{"shops", "b", draining, reason.Frozen}), "fleet", true, nil},
		"none is under way":                  {nil, "fleet", true, nil},
		"one is":                             {all(a), "fleet", true, nil},
		"as many are as may be":              {all(a, b), "fleet", false, nil},
		"its own is one of them":             {all(a, noted{"shops", "shop", draining, ""}), "fleet", true, nil},
		"one has ended":                      {all(a, b, noted{"shops", "a", leading, ""}), "fleet", true, nil},
		"the policy of one is gone":          {all(a, b, noted{"", "a", draining, ""}), "fleet", true, nil},
		"another replaces a lost leader":     {all(a, noted{"shops", "b", lost, ""}), "fleet", true, nil},
		"a third one replaces a lost leader": {all(a, b, noted{"shops", "c", lost, ""}), "fleet", false, nil},
		"another is of another policy":       {all(a, noted{"desks", "b", draining, ""}), "fleet", true, nil},
		"they are of another fleet":          {all(a, b), "fleet2", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{})
			for _, n := range test.before {
				c.moves.note(viewOf("fleet", n.policy, n.namespace), planOf(election.Decision{Record: n.record,
					Waiting: n.waiting}))
			}
			for _, o := range test.found {
				c.moves.found(o)
			}
			if got := c.moves.begin(viewOf(test.fleet, "shops", "shop")); got != test.want {
				t.Errorf("it may begin: %v", got)
			}
		})
	}
}

// Rule 19: a planned change waits for others of its policy, and until what follows the leader has stopped there.
func TestPlannedChangeWaits(t *testing.T) {
	set := &v1alpha1.LeaderResourceSet{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "set"}}
	set.Spec = v1alpha1.LeaderResourceSetSpec{Namespace: "shop", ConfirmWithinSeconds: 60,
		Resources: []v1alpha1.LeaderResource{{For: v1alpha1.RoleLeader}}}
	for name, test := range map[string]struct {
		others int
		set    *v1alpha1.LeaderResourceSet
		state  election.RecordState
		gives  bool // it waits until the leader's cluster has given way
	}{
		"nothing follows the leader":           {0, nil, election.Draining, false},
		"what follows the leader has to stop":  {0, set, election.Leading, true},
		"others of the policy are under way":   {1, nil, election.Leading, false},
		"others are, and something follows it": {1, set, election.Leading, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, f, api := newTestHub(t)
			if test.set != nil {
				must(t, api.Create(t.Context(), test.set.DeepCopy()))
			}
			must(t, c.following.setup(&fakeManager{local: newFakeLocalManager(api)}))
			changeStored(t, api, policyOf("fleet", "shops", ""), func(p *v1alpha1.LeadershipPolicy) {
				p.Spec.MaxConcurrentMoves = 1
			})
			for range test.others {
				c.moves.of[types.NamespacedName{Namespace: "fleet", Name: "till"}] = "shops"
			}
			f.verdict.Answering, f.offset = true, agrees
			f.shown[0].Priority, f.shown[0].Drain = 5, act.Act{Until: testStart.Wall.Add(time.Hour)}
			west := f.shown[0]
			west.Key, west.Drain = westKey, act.Act{}
			f.shown, c.members.of[westKey] = append(f.shown, west), c.members.of[eastKey]
			v, err := c.gather(t.Context(), shop)
			must(t, err)
			p := c.decide(v)
			if p.Record.State != test.state || c.moves.giving[shop] != test.gives {
				t.Errorf("%s, because of %s; waits for the leader's cluster: %v", p.Record.State, p.Record.Reason,
					c.moves.giving[shop])
			}
		})
	}
}
