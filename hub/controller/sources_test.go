package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
)

// newTestQueue is a work queue of a controller.
func newTestQueue(t *testing.T) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	t.Cleanup(q.ShutDown)
	return q
}

// The recorder counts what is recorded again.
func TestProblemOfAClusterIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestFleet(t, clusterOf("fleet", "east", "high"))
		records := func(when string, want ...string) {
			t.Helper()
			m.events.events = nil
			m.sources.memberChanged(eastKey)
			if !slices.Equal(m.events.events, want) {
				t.Errorf("%s: %q, want %q", when, m.events.events, want)
			}
		}
		const noKubeconfig = "*v1beta2.Cluster Warning NoKubeconfig: there is no Secret east-kubeconfig"
		const invalid = `*v1beta2.Cluster Warning InvalidPriority: the label leasecast.dev/priority is "high": set it to ` +
			"an integer from 0 to 2147483647"
		records("an invalid label", invalid)
		elected := m.Tenure
		m.standby()
		m.changes("east", func(c *clusterv1.Cluster) { c.Labels[v1alpha1.PriorityLabel] = "5" })
		records("a standby")
		m.Tenure = elected
		m.sources.recordProblems()
		if !slices.Equal(m.events.events, []string{noKubeconfig}) {
			t.Errorf("what was found before the election: %q", m.events.events)
		}
		m.isServed(false, "platform")
		records("an installation that stands back")
		m.isServed(false, "")
		records("it serves the fleet", noKubeconfig)
		musttest.Do(t, m.api.Delete(t.Context(), clusterOf("fleet", "east", "")))
		records("a Cluster that is gone")
		if m.sources.memberChanged(fleet.Key{Fleet: "fleet", Name: "north"}); len(m.members.of) != 1 {
			t.Errorf("members are %v, want the one that exists", m.members.of)
		}
	})
}

// What a member shows may concern everything in its fleet, and nothing elsewhere.
func TestDecisionsThatAMemberTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestFleet(t, clusterOf("fleet", "east", "5"), recordOf("fleet", "shop"), recordOf("fleet", "till"),
			recordOf("fleet2", "other"), policyOf("fleet", "shops", "shop"), policyOf("fleet2", "others", "other"))
		left := eastLease(20)
		left.Namespace = "left"
		east := publisherThatRead(t, testStart.Wall, testKey, left)
		a, b := &fakeWorker{publisher: east}, &fakeWorker{publisher: east}
		m.members.of[eastKey] = &memberState{worker: a, connected: true}
		m.members.of[fleet.Key{Fleet: "fleet2", Name: "west"}] = &memberState{worker: b}
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
		musttest.Do(t, m.SetupWithManager(&fakeManager{local: newFakeLocalManager(m.api)}))
		m.Controller.events, m.Client = m.events, bounded(m.api)
		m.changes("east", func(c *clusterv1.Cluster) { c.Labels[v1alpha1.PriorityLabel] = "6" })
		expects("a member changed", all, shops)
		if a.woken != 1 || b.woken != 0 || len(m.events.events) != 1 {
			t.Errorf("woken: %d in the fleet, %d elsewhere; events %q", a.woken, b.woken, m.events.events)
		}
		h := workersHub{m.Controller}
		h.Changed(eastKey, "shop")
		expects("a Lease changed", []string{"fleet/shop"}, nil)
		h.Changed(eastKey, "unowned")
		expects("an unowned Lease changed", nil, nil)
		h.Changed(eastKey, "")
		expects("a member was read", all, shops)
		h.FencesChanged(eastKey)
		expects("a fence changed", nil, shops)
		m.Client = m.api
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
		m.Client = failing(m.api, "list")
		m.sources.fleetChangedIn(0, "fleet")
		expects("nothing can be listed", []string{"fleet/left"}, nil)
	})
}

// Whoever may create Clusters can create hundreds that fail in another way each time.
func TestClustersThatWereNeverConnectedTriggerOneDecisionASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestFleet(t, clusterOf("fleet", "east", "5"), recordOf("fleet", "shop"), policyOf("fleet", "shops", "shop"))
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
		if decisions < 8 || decisions > 12 || len(m.members.of) != 1 {
			t.Errorf("%d decisions on one record and one policy in 5 s; %d members", decisions, len(m.members.of))
		}
		pass(time.Second)
		asked(&m.recordQueue)
		m.members.of[eastKey].engaged.ctx = t.Context()
		for _, when := range []string{"it is connected", "it is lost"} {
			m.sources.memberChanged(eastKey)
			if got := asked(&m.recordQueue); len(got) != 1 {
				t.Errorf("%s: decisions on %q", when, got)
			}
			m.members.of[eastKey].engaged.ctx = nil
		}
	})
}

// A member can show a hundred thousand namespaces and Leases. An unowned one costs no call to the hub's API server.
func TestWhichNamespacesOfAMemberTriggerADecision(t *testing.T) {
	for name, test := range map[string]struct {
		member, namespace string
		refused           bool // the policies cannot be listed
		want              bool
		ofLease           bool // that a Lease there changed triggers one
	}{
		"a policy names it":                  {"fleet/east", "shop", false, true, true},
		"it has a record":                    {"fleet/east", "kept", false, true, true},
		"this tenure remembers it":           {"fleet/east", "remembered", false, true, true},
		"the hub may have written a Lease":   {"fleet/east", "written", false, false, true},
		"it is unowned":                      {"fleet/east", "flood", false, false, false},
		"a policy of another fleet names it": {"fleet/east", "desk", false, false, false},
		"the policies cannot be listed":      {"fleet/east", "flood", true, true, true},
		"the member's name is invalid":       {"no-member", "shop", false, false, true},
	} {
		inBubble(t, name, func(t *testing.T) {
			m := newTestFleet(t, policyOf("fleet", "shops", "shop"), policyOf("others", "desks", "desk"),
				recordOf("fleet", "kept"))
			m.ledger.Show(recordOf("fleet", "kept"), false)
			entryOf(t, m.Controller, types.NamespacedName{Namespace: "fleet", Name: "remembered"})
			written := eastLease(20)
			written.Namespace = "written"
			m.members.of[eastKey] = atWork(publisherThatRead(t, testStart.Wall, testKey, written))
			if m.Client = bounded(m.api); test.refused {
				m.Client = failing(m.api, "list")
			}
			q := newTestQueue(t)
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: test.namespace}}
			m.sources.mcNamespaces(multicluster.ClusterName(test.member), nil).Create(t.Context(),
				event.TypedCreateEvent[*corev1.Namespace]{Object: ns}, q)
			got := asked(&queue{q: q})
			if want := []string{"fleet/" + test.namespace}; len(got) > 0 != test.want || test.want && !slices.Equal(got, want) {
				t.Errorf("decisions on %q", got)
			}
			key := types.NamespacedName{Namespace: "fleet", Name: test.namespace}
			if got := m.sources.isConcerned(t.Context(), key); got != test.ofLease {
				t.Errorf("a Lease there triggers a decision: %v", got)
			}
		})
	}
}

// Events of members read the policies as the last event of a policy left them.
func TestAPolicyCountsFromItsEventOn(t *testing.T) {
	inBubble(t, "till", func(t *testing.T) {
		m := newTestFleet(t, policyOf("fleet", "shops", "shop"))
		p, key := policyOf("fleet", "tills", "till"), types.NamespacedName{Namespace: "fleet", Name: "till"}
		for _, step := range []struct {
			what   string
			change func() error
			want   bool
		}{
			{"before it is created", func() error { return nil }, false},
			{"created", func() error { return m.api.Create(t.Context(), p) }, true},
			{"deleted", func() error { return m.api.Delete(t.Context(), p) }, false},
		} {
			musttest.Do(t, step.change())
			m.sources.namespacesOfPolicy(t.Context(), p)
			if got := m.sources.isConcerned(t.Context(), key); got != step.want {
				t.Errorf("%s: its namespace is concerned: %v", step.what, got)
			}
		}
		lists := 0
		m.Client = checked(m.api, func(context.Context, string, runtime.Object) error {
			if lists++; lists == 1 {
				m.policies.changed("fleet") // while the list is under way
			}
			return nil
		})
		m.policies.changed("fleet")
		for range 3 {
			m.sources.isConcerned(t.Context(), key)
		}
		if lists != 2 {
			t.Errorf("policies are listed %d times, want twice: once more after the event of a policy", lists)
		}
	})
}

// What this tenure has read or written needs no decision. A deletion is always another client's: the hub forgets what
// it deletes.
func TestWhichEventsOfARecordTriggerADecision(t *testing.T) {
	for name, test := range map[string]struct {
		own      bool
		event    string
		triggers bool
	}{
		"this tenure has created it":    {true, "create", false},
		"this tenure has written it":    {true, "update", false},
		"another client has created it": {false, "create", true},
		"another client has written it": {false, "update", true},
		"another client has deleted it": {true, "delete", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, api := newTestHub(t)
			c.Clock = fixedClock(lease.Reading{Wall: testStart.Wall, Boot: testStart.Boot + time.Hour})
			entryOf(t, c, shop)
			o := recordOf("fleet", "shop")
			musttest.Do(t, api.Get(t.Context(), shop, o))
			if !test.own {
				o.ResourceVersion = "another"
			}
			o.Spec.State, o.Spec.Reason = v1alpha1.StateEnding, reason.Drained
			q := newTestQueue(t)
			switch h := c.sources.recordChanges(); test.event {
			case "create":
				h.Create(t.Context(), event.TypedCreateEvent[*v1alpha1.NamespaceLeader]{Object: o}, q)
			case "update":
				h.Update(t.Context(), event.TypedUpdateEvent[*v1alpha1.NamespaceLeader]{ObjectNew: o}, q)
			default:
				h.Delete(t.Context(), event.TypedDeleteEvent[*v1alpha1.NamespaceLeader]{Object: o}, q)
			}
			if counts := c.moves.of[shop] != ""; counts != (test.event == "create") {
				t.Errorf("a planned change that the first list shows counts: %v", counts)
			}
			if got := asked(&queue{q: q}); (len(got) == 1 && got[0] == "fleet/shop") != test.triggers || len(got) > 1 {
				t.Errorf("decisions on %q", got)
			}
			var n traffic
			if c.Live = n.to(api); entryOf(t, c, shop) == nil || (n.reads > 0) != test.triggers {
				t.Errorf("the record is read %d times", n.reads)
			}
		})
	}
}
