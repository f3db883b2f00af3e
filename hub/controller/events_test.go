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
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
)

var eastKey = fleet.Key{Fleet: "fleet", Name: "east"}

func TestWhatTheOwnerOfAClusterIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, clusterOf("fleet", "east", "high"))
		tells := func(when string, want ...string) {
			t.Helper()
			m.events.events = nil
			m.recordProblem(eastKey)
			if !slices.Equal(m.events.events, want) {
				t.Errorf("%s: %q, want %q", when, m.events.events, want)
			}
		}
		invalid := func(label string) string {
			return fmt.Sprintf("*v1beta2.Cluster Warning InvalidPriority: the label leasecast.dev/priority is %q: set it to an integer from 0 to 2147483647", label)
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
		m.recordProblems()
		if !slices.Equal(m.events.events, []string{noKubeconfig}) {
			t.Errorf("what was found out before is told by the elected one: %q", m.events.events)
		}
		m.source = served{fleetSource{m.Fleet}, besideMark}
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
		m.recordProblem(eastKey)
		if len(m.events.events) > 0 {
			t.Errorf("told: %q", m.events.events)
		}
		if _, noted := m.members[eastKey]; !noted {
			t.Error("a member is forgotten that there is")
		}
		m.recordProblem(fleet.Key{Fleet: "fleet", Name: "north"})
		if len(m.members) != 1 {
			t.Errorf("noted: %v, want the one member that there is", m.members)
		}
	})
}

// besideMark is that of another installation on the management cluster of a muster.
var besideMark = seal.Mark("uid", "platform")

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
			"nothing":                      {with(fleet.Problem{}, ""), fleet.Problem{}},
			"it was not reached yet":       {with(problem(reason.NeverReached), ""), fleet.Problem{}},
			"it is being deleted":          {with(problem(reason.Deleting), ""), fleet.Problem{}},
			"it is gone":                   {with(problem(reason.Gone), ""), fleet.Problem{}},
			"it has no priority":           {with(problem(reason.Unreachable), reason.NoPriority), problem(reason.Unreachable)},
			"a priority comes first":       {with(problem(reason.Gone), reason.InvalidPriority), fleet.Problem{Reason: reason.InvalidPriority, Message: invalidPriority("x")}},
			"it does not answer":           {with(problem(reason.Unreachable), ""), problem(reason.Unreachable)},
			"it refuses: what is to do is": {with(problem(reason.Forbidden), ""), fleet.Problem{Reason: reason.Forbidden, Message: "the words; grant the hub's user there the rules of config/member"}},
		} {
			if got := problemOf(test.member); got != test.want {
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
		m := newMuster(t, clusterOf("fleet", "east", "5"), record("fleet", "shop"), record("fleet", "till"), record("fleet2", "other"),
			policyOf("fleet", "shops", "shop"), policyOf("fleet2", "others", "other"))
		east := publisherThatRead(t, musterStart.Wall, testKey, lease.Content{
			Namespace: "left", Name: "leasecast", Cluster: eastKey.Identity(), ClusterUID: "uid", Hub: "this",
			Term: lease.Term{Epoch: 20, AcquireTime: musterStart.Wall, RenewTime: musterStart.Wall, Duration: 15 * time.Second},
		})
		a, b := &laborer{publisher: east}, &laborer{publisher: east}
		m.members[eastKey], m.members[fleet.Key{Fleet: "fleet2", Name: "west"}] = &memberState{worker: a}, &memberState{worker: b}
		m.members[fleet.Key{Fleet: "fleet", Name: "south"}] = atWork(nil)
		m.members[fleet.Key{Fleet: "fleet", Name: "north"}] = &memberState{}
		asked(&m.records)
		expects := func(what string, records, policies []string) {
			t.Helper()
			if got := asked(&m.records); !slices.Equal(got, records) {
				t.Errorf("%s: decisions on %q, want %q", what, got, records)
			}
			if got := asked(&m.policies); !slices.Equal(got, policies) {
				t.Errorf("%s: policies %q, want %q", what, got, policies)
			}
		}
		all, shops := []string{"fleet/left", "fleet/shop", "fleet/till"}, []string{"fleet/shops"}
		m.memberChanged(eastKey)
		expects("a member changed", all, shops)
		if a.woken != 1 || b.woken != 0 {
			t.Errorf("woken: %d in the fleet, %d elsewhere", a.woken, b.woken)
		}
		if len(m.events.events) != 1 {
			t.Errorf("told: %q", m.events.events)
		}
		m.leaseChanged(eastKey, "shop")
		expects("a Lease changed", []string{"fleet/shop"}, nil)
		m.client = bounded{m.api}
		m.leaseChanged(eastKey, "nobody's")
		expects("a Lease that is nobody's changed", nil, nil)
		m.client = m.api
		m.leaseChanged(eastKey, "")
		expects("a member was read", all, shops)
		var named []string
		for _, r := range m.namespacesOfPolicy(t.Context(), policyOf("fleet2", "others", "other")) {
			named = append(named, r.Namespace+"/"+r.Name)
		}
		if slices.Sort(named); !slices.Equal(named, []string{"fleet2/left", "fleet2/other"}) {
			t.Errorf("for a policy: %q", named)
		}
		if got := m.publishers("fleet"); len(got) != 1 || got[0] != east {
			t.Errorf("publishers: %v", got)
		}
	})
}

// Whoever may make Clusters can make hundreds that fail in another way each time.
func TestClustersThatWereNeverConnectedAskForOneDecisionASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shop"}}
		m := newMuster(t, clusterOf("fleet", "east", "5"), record, policyOf("fleet", "shops", "shop"))
		asked(&m.records)
		asked(&m.policies)
		decisions := 0
		for range 100 {
			for n := range 50 {
				m.memberChanged(eastKey)
				m.memberChanged(fleet.Key{Fleet: "fleet", Name: fmt.Sprint("gone-", n)})
			}
			pass(50 * time.Millisecond)
			decisions += len(asked(&m.records)) + len(asked(&m.policies))
		}
		if decisions < 8 || decisions > 12 {
			t.Errorf("%d decisions on one record and one policy in 5 s", decisions)
		}
		for n := range 50 {
			if _, kept := m.members[fleet.Key{Fleet: "fleet", Name: fmt.Sprint("gone-", n)}]; kept {
				t.Fatal("a member is remembered that there is not")
			}
		}
		pass(time.Second)
		asked(&m.records)
		m.members[eastKey].engaged.ctx = t.Context()
		m.memberChanged(eastKey)
		if got := asked(&m.records); len(got) != 1 {
			t.Errorf("when it is connected: decisions on %q", got)
		}
		m.members[eastKey].engaged.ctx = nil
		m.memberChanged(eastKey)
		if got := asked(&m.records); len(got) != 1 {
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
			m.warmSeal("fleet")
			secret := m.client
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
