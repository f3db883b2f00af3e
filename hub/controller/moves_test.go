package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
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
