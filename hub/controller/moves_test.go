package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/ledger"
)

// Rule 19: of one policy, so many planned changes are under way at once.
func TestPlannedChangesOfAPolicyAreCounted(t *testing.T) {
	ending := election.Record{State: election.Ending, Reason: "Drained"}
	lost := election.Record{State: election.Ending, Reason: "Unreachable"}
	leading := election.Record{State: election.Leading, Reason: "HandedOver"}
	viewOf := func(fleetName, policy, namespace string) *decide.Snapshot {
		v := &decide.Snapshot{Entry: decidetest.Entry(types.NamespacedName{Namespace: fleetName, Name: namespace})}
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
		gives             bool // it waits until the leader's cluster has given way
	}
	found := func(namespace string, state v1alpha1.RecordState, why reason.Reason) *v1alpha1.NamespaceLeader {
		o := ledger.NewRecord(types.NamespacedName{Namespace: "fleet", Name: namespace})
		o.Spec.Policy, o.Spec.State, o.Spec.Reason = "shops", state, why
		return o
	}
	a, b := noted{"shops", "a", ending, "", false}, noted{"shops", "b", ending, "", false}
	frozen := noted{"shops", "b", ending, reason.Frozen, false}
	all := func(ns ...noted) []noted { return ns }
	for name, test := range map[string]struct {
		before []noted
		fleet  string
		want   int // how many more may begin
		found  []*v1alpha1.NamespaceLeader
	}{
		"an earlier tenure has begun as many": {nil, "fleet", 0, []*v1alpha1.NamespaceLeader{
			found("a", v1alpha1.StateEnding, reason.Drained), found("b", v1alpha1.StateEnding, reason.Ordered)}},
		"an earlier tenure has replaced a lost leader, and moved another": {nil, "fleet", 2, []*v1alpha1.NamespaceLeader{
			found("a", v1alpha1.StateEnding, reason.Unreachable), found("b", v1alpha1.StateLeading, reason.HandedOver)}},
		"one waits for the end of a freeze":  {all(a, b, frozen), "fleet", 1, nil},
		"one waits for the leader's cluster": {all(a, noted{"shops", "b", leading, "", true}), "fleet", 0, nil},
		"as many are as may be":              {all(a, b), "fleet", 0, nil},
		"its own is one of them":             {all(a, noted{"shops", "shop", ending, "", false}), "fleet", 1, nil},
		"one has ended":                      {all(a, b, noted{"shops", "a", leading, "", false}), "fleet", 1, nil},
		"the policy of one is gone":          {all(a, b, noted{"", "b", ending, "", false}), "fleet", 1, nil},
		"another replaces a lost leader":     {all(a, noted{"shops", "b", lost, "", false}), "fleet", 1, nil},
		"another is of another policy":       {all(a, noted{"desks", "b", ending, "", false}), "fleet", 1, nil},
		"they are of another fleet":          {all(a, b), "fleet2", 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{})
			for _, n := range test.before {
				v := viewOf("fleet", n.policy, n.namespace)
				if n.gives {
					c.moves.begin(v)
					c.moves.setWaiting(v.Key, true)
				}
				c.moves.note(v, planOf(election.Decision{Record: n.record,
					Waiting: n.waiting}))
			}
			for _, o := range test.found {
				c.moves.found(o)
			}
			more := 0
			for _, namespace := range []string{"shop", "till", "bank"} {
				if c.moves.begin(viewOf(test.fleet, "shops", namespace)) {
					more++
				}
			}
			if more != test.want {
				t.Errorf("%d more may begin, want %d", more, test.want)
			}
		})
	}
}

// drainedEast has namespace shop decided on while the Cluster of its leader, east, is drained, or is not, so many
// seconds after the start. West may lead.
func drainedEast(
	t *testing.T, set *v1alpha1.LeaderResourceSet,
) (c *Controller, decides func(seconds int, drained bool) decide.Plan) {
	t.Helper()
	c, f, api := newTestHub(t)
	if set != nil {
		musttest.Do(t, api.Create(t.Context(), set.DeepCopy()))
	}
	changeStored(t, api, policyOf("fleet", "shops", ""), func(p *v1alpha1.LeadershipPolicy) {
		p.Spec.MaxConcurrentMoves = 1
	})
	clock := clocktest.NewHand(testStart)
	c.Clock = clock
	musttest.Do(t, c.following.setup(&fakeManager{local: newFakeLocalManager(api)}))
	f.verdict.Answering, f.offset, f.shown[0].Priority = true, agrees, 5
	west := f.shown[0]
	west.Key = westKey
	f.shown, c.members.of[westKey] = append(f.shown, west), c.members.of[eastKey]
	return c, func(seconds int, drained bool) decide.Plan {
		clock.Advance(testStart.Wall.Add(time.Duration(seconds) * time.Second).Sub(clock.Now().Wall))
		if f.shown[0].Drain = (act.Act{}); drained {
			f.shown[0].Drain.Until = testStart.Wall.Add(time.Hour)
		}
		v, err := c.gather(t.Context(), shop)
		musttest.Do(t, err)
		defer c.ledger.Return(v.Entry)
		return c.decide(v)
	}
}

// follows is a resource set with objects that only the leader's cluster has.
var follows = &v1alpha1.LeaderResourceSet{
	ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "set"},
	Spec: v1alpha1.LeaderResourceSetSpec{Namespace: "shop", ConfirmWithinSeconds: 60,
		Resources: []v1alpha1.LeaderResource{{For: v1alpha1.RoleLeader}}},
}

// Rule 19: a planned change waits for others of its policy, and until what follows the leader has stopped there.
func TestPlannedChangeWaits(t *testing.T) {
	for name, test := range map[string]struct {
		others bool
		set    *v1alpha1.LeaderResourceSet
		state  election.RecordState
		gives  bool // it waits until the leader's cluster has given way
	}{
		"nothing follows the leader":           {false, nil, election.Ending, false},
		"what follows the leader has to stop":  {false, follows, election.Leading, true},
		"another is, and something follows it": {true, follows, election.Leading, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, decides := drainedEast(t, test.set)
			if test.others {
				c.moves.of[types.NamespacedName{Namespace: "fleet", Name: "till"}] = "shops"
			}
			if decides(0, false); c.moves.giving[shop] {
				t.Error("it waits, although nothing is planned")
			}
			if p := decides(0, true); p.Record.State != test.state || c.moves.giving[shop] != test.gives {
				t.Errorf("%s, because of %s; waits for the leader's cluster: %v", p.Record.State, p.Record.Reason,
					c.moves.giving[shop])
			}
		})
	}
}

// The cluster of a leader has confirmWithinSeconds from the beginning of the change.
func TestPlannedChangeGoesOnWithoutConfirmation(t *testing.T) {
	type step struct {
		seconds int
		drained bool
	}
	for name, test := range map[string]struct {
		before []step
		lost   bool // the record is, after that, and comes back
		paced  bool // after that another change of the policy comes first
		want   election.RecordState
	}{
		"the time has passed":              {[]step{{0, true}, {59, true}}, false, false, election.Ending},
		"the drain ended, and began again": {[]step{{0, true}, {30, false}, {31, true}}, false, false, election.Leading},
		"the record left, and came back":   {[]step{{0, true}, {59, true}}, true, false, election.Leading},
		"another change came first":        {[]step{{0, true}, {59, true}}, false, true, election.Leading},
	} {
		t.Run(name, func(t *testing.T) {
			c, decides := drainedEast(t, follows)
			for _, s := range test.before {
				if p := decides(s.seconds, s.drained); p.Record.State != election.Leading {
					t.Errorf("after %d s: %s", s.seconds, p.Record.State)
				}
			}
			if test.lost {
				c.drop(entryOf(t, c, shop))
			}
			if till := (types.NamespacedName{Namespace: "fleet", Name: "till"}); test.paced {
				c.moves.of[till] = "shops"
				decides(60, true)
				delete(c.moves.of, till)
			}
			if p := decides(61, true); p.Record.State != test.want {
				t.Errorf("after 61 s: %s, want %s", p.Record.State, test.want)
			}
		})
	}
}
