package controller

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/fleet"
)

var eastKey = fleet.Key{Fleet: "fleet", Name: "east"}

func TestWhatTheOwnerOfAClusterIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, clusterOf("fleet", "east", "high"))
		tells := func(when string, want ...string) {
			t.Helper()
			m.events.events = nil
			m.sources.recordProblem(eastKey)
			if !slices.Equal(m.events.events, want) {
				t.Errorf("%s: %q, want %q", when, m.events.events, want)
			}
		}
		invalid := func(label string) string {
			return fmt.Sprintf("*v1beta2.Cluster Warning InvalidPriority: the label leasecast.dev/priority is %q: set it "+
				"to an integer from 0 to 2147483647", label)
		}
		labelled := func(label string) {
			m.changes("east", func(c *clusterv1.Cluster) { c.Labels[v1alpha1.PriorityLabel] = label })
		}
		const noKubeconfig = "*v1beta2.Cluster Warning NoKubeconfig: there is no Secret east-kubeconfig"
		tells("a label that cannot be read", invalid("high"))
		tells("the same again")
		labelled("higher")
		tells("the same reason in other words")
		labelled("5")
		tells("another reason", noKubeconfig)
		labelled("high")
		tells("the first reason, once more", invalid("high"))

		elected := m.Tenure
		m.standby()
		labelled("5")
		tells("a standby says nothing")
		m.Tenure = elected
		m.sources.recordProblems()
		if !slices.Equal(m.events.events, []string{noKubeconfig}) {
			t.Errorf("what was found out before is told by the elected one: %q", m.events.events)
		}
		m.source = elsewhere{fleetSource{m.Fleet}, "platform"}
		labelled("high")
		tells("an installation that stands back says nothing")
		m.source = fleetSource{m.Fleet}
		tells("until it serves the fleet", invalid("high"))
	})
}

func TestNobodyIsToldOfAClusterThatIsNotThereAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, clusterOf("fleet", "east", "high"))
		o := clusterOf("fleet", "east", "high")
		if err := m.api.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		m.sources.recordProblem(eastKey)
		if len(m.events.events) > 0 {
			t.Errorf("told: %q", m.events.events)
		}
		if _, noted := m.members.of[eastKey]; !noted {
			t.Error("a member is forgotten that there is")
		}
		m.sources.recordProblem(fleet.Key{Fleet: "fleet", Name: "north"})
		if len(m.members.of) != 1 {
			t.Errorf("noted: %v, want the one member that there is", m.members.of)
		}
	})
}

func TestWhatIsWrongWithACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		east := newMuster(t, clusterOf("fleet", "east", "5")).member("east")
		problem := func(r reason.Reason) fleet.Problem { return fleet.Problem{Reason: r, Message: "the words"} }
		with := func(p fleet.Problem, r reason.Reason) fleet.Member {
			m := east
			m.Problem, m.PriorityReason, m.Labels = p, r, map[string]string{v1alpha1.PriorityLabel: "x"}
			return m
		}
		for name, test := range map[string]struct {
			member fleet.Member
			want   fleet.Problem
		}{
			"nothing":                {with(fleet.Problem{}, ""), fleet.Problem{}},
			"it was not reached yet": {with(problem(reason.NeverReached), ""), fleet.Problem{}},
			"it is being deleted":    {with(problem(reason.Deleting), ""), fleet.Problem{}},
			"it is gone":             {with(problem(reason.Gone), ""), fleet.Problem{}},
			"it has no priority":     {with(problem(reason.Unreachable), reason.NoPriority), problem(reason.Unreachable)},
			"a priority comes first": {
				with(problem(reason.Gone), reason.InvalidPriority),
				fleet.Problem{
					Reason:  reason.InvalidPriority,
					Message: `the label leasecast.dev/priority is "x": set it to an integer from 0 to 2147483647`,
				},
			},
			"it does not answer": {with(problem(reason.Unreachable), ""), problem(reason.Unreachable)},
			"it refuses: what is to do is": {
				with(problem(reason.Forbidden), ""),
				fleet.Problem{
					Reason: reason.Forbidden, Message: "the words; grant the hub's user there the rules of config/member",
				},
			},
		} {
			if got := explain.Problem(test.member); got != test.want {
				t.Errorf("%s: %+v, want %+v", name, got, test.want)
			}
		}
	})
}

// What a member brings may concern everything in its fleet, and nothing elsewhere.
func TestWhatIsDecidedAgainWhenAMemberChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := func(fleetName, name string) *v1alpha1.NamespaceLeader {
			return &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: name}}
		}
		m := newMuster(t, clusterOf("fleet", "east", "5"), record("fleet", "shop"), record("fleet", "till"),
			record("fleet2", "other"),
			policyOf("fleet", "shops", "shop"), policyOf("fleet2", "others", "other"))
		east := publisherThatRead(t, musterStart.Wall, testKey, lease.Content{
			Namespace: "left", Name: "leasecast", Cluster: eastKey.Identity(), ClusterUID: "uid", Hub: "this",
			Term: lease.Term{Epoch: 20, AcquireTime: musterStart.Wall, RenewTime: musterStart.Wall, Duration: 15 * time.Second},
		})
		a, b := &laborer{publisher: east}, &laborer{publisher: east}
		m.members.of[eastKey], m.members.of[fleet.Key{Fleet: "fleet2", Name: "west"}] = &memberState{worker: a}, &memberState{
			worker: b,
		}
		m.members.of[fleet.Key{Fleet: "fleet", Name: "south"}] = atWork(nil)
		m.members.of[fleet.Key{Fleet: "fleet", Name: "north"}] = &memberState{}
		asked(&m.recordQueue)
		expects := func(what string, records, policies []string) {
			t.Helper()
			if got := asked(&m.recordQueue); !slices.Equal(got, records) {
				t.Errorf("%s: decisions on %q, want %q", what, got, records)
			}
			if got := asked(&m.policyQueue); !slices.Equal(got, policies) {
				t.Errorf("%s: policies %q, want %q", what, got, policies)
			}
		}
		all, shops := []string{"fleet/left", "fleet/shop", "fleet/till"}, []string{"fleet/shops"}
		m.sources.memberChanged(eastKey)
		expects("a member changed", all, shops)
		if a.woken != 1 || b.woken != 0 {
			t.Errorf("woken: %d in the fleet, %d elsewhere", a.woken, b.woken)
		}
		if len(m.events.events) != 1 {
			t.Errorf("told: %q", m.events.events)
		}
		m.sources.leaseChanged(eastKey, "shop")
		expects("a Lease changed", []string{"fleet/shop"}, nil)
		m.Client = bounded{m.api}
		m.sources.leaseChanged(eastKey, "nobody's")
		expects("a Lease that is nobody's changed", nil, nil)
		m.Client = m.api
		m.sources.leaseChanged(eastKey, "")
		expects("a member was read", all, shops)
		var named []string
		for _, r := range m.sources.namespacesOfPolicy(t.Context(), policyOf("fleet2", "others", "other")) {
			named = append(named, r.Namespace+"/"+r.Name)
		}
		if slices.Sort(named); !slices.Equal(named, []string{"fleet2/left", "fleet2/other"}) {
			t.Errorf("for a policy: %q", named)
		}
		if got := m.members.publishers("fleet"); len(got) != 1 || got[0] != east {
			t.Errorf("publishers: %v", got)
		}
	})
}

// Whoever may make Clusters can make hundreds that fail in another way each time.
func TestClustersThatWereNeverConnectedAskForOneDecisionASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shop"}}
		m := newMuster(t, clusterOf("fleet", "east", "5"), record, policyOf("fleet", "shops", "shop"))
		asked(&m.recordQueue)
		asked(&m.policyQueue)
		decisions := 0
		for range 100 {
			for n := range 50 {
				m.sources.memberChanged(eastKey)
				m.sources.memberChanged(fleet.Key{Fleet: "fleet", Name: fmt.Sprint("gone-", n)})
			}
			pass(50 * time.Millisecond)
			decisions += len(asked(&m.recordQueue)) + len(asked(&m.policyQueue))
		}
		if decisions < 8 || decisions > 12 {
			t.Errorf("%d decisions on one record and one policy in 5 s", decisions)
		}
		for n := range 50 {
			if _, kept := m.members.of[fleet.Key{Fleet: "fleet", Name: fmt.Sprint("gone-", n)}]; kept {
				t.Fatal("a member is remembered that there is not")
			}
		}
		pass(time.Second)
		asked(&m.recordQueue)
		m.members.of[eastKey].engaged.ctx = t.Context()
		m.sources.memberChanged(eastKey)
		if got := asked(&m.recordQueue); len(got) != 1 {
			t.Errorf("when it is connected: decisions on %q", got)
		}
		m.members.of[eastKey].engaged.ctx = nil
		m.sources.memberChanged(eastKey)
		if got := asked(&m.recordQueue); len(got) != 1 {
			t.Errorf("when it is lost: decisions on %q", got)
		}
	})
}

// Should a standby be elected in the middle of a move, the Secret may be gone by then.
func TestAStandbyKnowsTheSealBeforeItIsElected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, standby := range map[string]bool{"a standby": true, "the elected one loads it when it needs it": false} {
			m := newMuster(t)
			if standby {
				m.standby()
			}
			hubOf(t, m.Controller) // it has a seal
			m.sources.warmSeal("fleet")
			secret := m.Client
			if err := secret.Delete(t.Context(), sealOf("fleet")); err != nil {
				t.Fatal(err)
			}
			found, err := m.Seals.Find(t.Context(), "fleet")
			if knows := err == nil && found.Largest().Duration > 0; knows != standby {
				t.Errorf("%s: the seal is known: %v (%v)", name, knows, err)
			}
		}
	})
}
