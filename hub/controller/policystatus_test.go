package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/seal"
)

// claimed notes that policies claim a namespace. The first one owns it.
func claimed(t *testing.T, c *Controller, namespace string, names ...string) {
	t.Helper()
	v := &decide.Snapshot{Entry: entryOf(t, c, types.NamespacedName{Namespace: "fleet", Name: namespace})}
	defer c.ledger.Return(v.Entry)
	if ps := claims(names...); len(ps) > 0 {
		v.Policy, v.Losers = ps[0], ps[1:]
	}
	c.noteClaim(v)
}

func TestChangeOfAClaimTriggersPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestFleet(t)
		for _, step := range []struct{ now, want []string }{
			{[]string{"a", "b", "c"}, []string{"fleet/a", "fleet/b", "fleet/c"}},
			{[]string{"a", "b", "c"}, nil},
			{[]string{"a", "b"}, []string{"fleet/a", "fleet/b", "fleet/c"}},
			{[]string{"d"}, []string{"fleet/a", "fleet/b", "fleet/d"}},
			{nil, []string{"fleet/d"}},
			{nil, nil},
		} {
			claimed(t, m.Controller, "shop", step.now...)
			if got := asked(&m.policyQueue); !slices.Equal(got, step.want) {
				t.Errorf("claimed by %q now: policies %q, want %q", step.now, got, step.want)
			}
		}
		if m.ledger.Knows(shop) {
			t.Error("an unowned namespace is kept")
		}
	})
}

// status is the status of policy shops after one reconcile.
func (m *testFleet) status() (v1alpha1.LeadershipPolicyStatus, reconcile.Result) {
	m.t.Helper()
	result, err := m.statuses.reconcilePolicy(m.t.Context(), requestOf(shops))
	o := &v1alpha1.LeadershipPolicy{}
	if err == nil {
		err = m.api.Get(m.t.Context(), shops, o)
	}
	musttest.Do(m.t, err)
	return o.Status, result
}

// ill has a member be lost for some time, or be recovered for some time.
func (m *testFleet) ill(name string, lost, recovered time.Duration) {
	at := func(ago time.Duration) lease.Reading {
		return lease.Reading{Wall: testStart.Wall.Add(-ago), Boot: testStart.Boot - ago}
	}
	for _, kind := range []health.Kind{health.Read, health.Write} {
		m.member(name).Observe(health.Observation{Kind: kind, At: at(lost + time.Second), OK: true})
		if lost > 0 {
			m.member(name).Observe(health.Observation{
				Kind: kind, At: at(lost), Reason: reason.Unreachable, Message: "no answer",
			})
		}
		if lost == 0 || recovered > 0 {
			m.member(name).Observe(health.Observation{Kind: kind, At: at(recovered), OK: true})
			m.member(name).Observe(health.Observation{Kind: kind, At: at(0), OK: true})
		}
	}
	synctest.Wait()
}

func TestStatusOfAPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policyOf("fleet", "shops", "shop")
		p.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "here"}}
		p.Spec.Overrides = []v1alpha1.Override{{Namespace: "shop", Cluster: "c-elsewhere"}}
		p.Spec.Fencing = &v1alpha1.Fencing{
			Writes: []v1alpha1.WriteFence{{
				ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "checkout"}},
				Resources:       []v1alpha1.FencedResources{{Names: []string{"pods"}}},
			}},
			LeaderElectionLocks: []v1alpha1.LockFence{simLock},
		}
		here := func(name, priority string) *clusterv1.Cluster {
			c := clusterOf("fleet", name, priority)
			c.Labels["region"] = "here"
			return c
		}
		without := here("d-without", "")
		delete(without.Labels, v1alpha1.PriorityLabel)
		m := newTestFleet(t, p, here("a-gone", "5"), here("b-invalid", "high"), clusterOf("fleet", "c-elsewhere", "5"),
			without, here("east", "5"), here("west", "5"))
		m.loses("a-gone")
		claimed(t, m.Controller, "shop", "shops")
		claimed(t, m.Controller, "till", "shops")
		s, _ := m.status()
		if *s.Namespaces != 2 || *s.Clusters != 3 || s.ObservedGeneration != 7 || s.UnreachableAfterMilliseconds != 10_000 ||
			*s.RecoverAfterMilliseconds != 5000 {
			t.Errorf("%+v", s)
		}
		for kind, want := range map[string]string{
			v1alpha1.ConditionAccepted: "True Accepted the policy is valid and acted on; overrides name Clusters that take " +
				"no part, for shop (c-elsewhere)",
			v1alpha1.ConditionAllManaged:        "True AllManaged ",
			v1alpha1.ConditionReady:             "Unknown NotMeasured ",
			v1alpha1.ConditionClustersReachable: "True Reachable ",
			v1alpha1.ConditionClocksAgree:       "Unknown NotMeasured not measured closely enough yet: b-invalid, east, west",
			v1alpha1.ConditionFencesInForce:     "Unknown FenceUnchecked b-invalid (",
			v1alpha1.ConditionFenceTargetsFound: "Unknown LockUnseen nobody was seen to hold these locks since a cluster " +
				"leads: stock/stock",
		} {
			if got := inShort(s.Conditions, kind); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s, want %s", kind, got, want)
			}
		}
		for _, c := range s.Conditions {
			if c.ObservedGeneration != 7 {
				t.Errorf("%s is of generation %d", c.Type, c.ObservedGeneration)
			}
		}
		claimed(t, m.Controller, "shop", "older", "other", "shops")
		claimed(t, m.Controller, "bank", "older", "shops")
		s, _ = m.status()
		got := inShort(s.Conditions, v1alpha1.ConditionAccepted)
		if *s.Namespaces != 1 || !strings.HasSuffix(got, ": bank (to older), shop (to older)") {
			t.Errorf("%d namespaces, accepted: %s", *s.Namespaces, got)
		}
		older := fencing(decidetest.Locks(simLock))
		older.Name, older.Spec.Namespaces.Names = "older", []string{"other"}
		musttest.Do(t, m.api.Create(t.Context(), older))
		s, _ = m.status()
		const refused = "the policy older fences the lock stock/stock"
		if got := inShort(s.Conditions, v1alpha1.ConditionFencesInForce); !strings.Contains(got, refused) {
			t.Errorf("another policy fences its lock: %s", got)
		}
		musttest.Do(t, m.api.Get(t.Context(), shops, p))
		p.Spec.Fencing, p.Generation = nil, 8
		musttest.Do(t, m.api.Update(t.Context(), p))
		s, _ = m.status()
		for _, kind := range []string{v1alpha1.ConditionFencesInForce, v1alpha1.ConditionFenceTargetsFound} {
			if got := inShort(s.Conditions, kind); got != "nothing" {
				t.Errorf("without fences %s is %s", kind, got)
			}
		}
	})
}

// A tenure begins without claims. What an earlier one wrote stands until the records are decided on.
func TestPolicyStatusStandsBeforeTheFirstDecisions(t *testing.T) {
	decided := func(m *testFleet) { claimed(m.t, m.Controller, "shop", "shops") }
	passes := func(d time.Duration) func(*testFleet) {
		return func(m *testFleet) { m.Clock = fixedClock{Wall: testStart.Wall.Add(d), Boot: testStart.Boot + d} }
	}
	for name, test := range map[string]struct {
		change func(*testFleet)
		stands bool
	}{
		"nothing was decided":       {func(*testFleet) {}, true},
		"all records were decided":  {decided, false},
		"the policy was changed":    {func(m *testFleet) { m.edits(8) }, false},
		"no decision for 19.999 s":  {passes(decideTimeout - time.Millisecond), true},
		"no decision for 20 s":      {passes(decideTimeout), false},
		"a new policy, no Clusters": {func(m *testFleet) { m.edits(8); m.source = &fakeMembers{unsynced: true} }, true},
	} {
		inBubble(t, name, func(t *testing.T) {
			p, o, retired := policyOf("fleet", "shops", "shop"), recordOf("fleet", "shop"), recordOf("fleet", "old")
			p.Status = v1alpha1.LeadershipPolicyStatus{
				ObservedGeneration: 7, Namespaces: ptr.To[int32](2), Clusters: ptr.To[int32](3),
				Conditions: []metav1.Condition{{
					Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: "Conflict", Message: "till (to older)",
				}},
			}
			o.Spec, retired.Spec = said20(), said20()
			retired.Spec.State = v1alpha1.StateRetired
			m := newTestFleet(t, p, o, retired, clusterOf("fleet", "east", "5"))
			test.change(m)
			s, again := m.status()
			if stands := equality.Semantic.DeepEqual(s, p.Status); stands != test.stands {
				t.Errorf("it stands: %v; %+v", stands, s)
			}
			if test.stands && again.RequeueAfter != notYet {
				t.Errorf("again in %v", again.RequeueAfter)
			}
			if !test.stands && (*s.Clusters != 1 || inShort(s.Conditions, v1alpha1.ConditionClocksAgree) == "nothing") {
				t.Errorf("not all of it was written: %+v", s)
			}
		})
	}
}

// edits gives policy shops another generation.
func (m *testFleet) edits(generation int64) {
	changeStored(m.t, m.api, policyOf("fleet", "shops", ""), func(p *v1alpha1.LeadershipPolicy) {
		p.Generation = generation
	})
}

// A hub that is cut off and restarted has not reached them yet. At the start that shows nothing.
func TestPolicyShowsThatMostClustersAreLostSinceARestart(t *testing.T) {
	for name, test := range map[string]struct {
		began time.Duration // before now
		want  string
		again time.Duration
	}{
		"10 s later":       {10 * time.Second, "False MostUnreachable ", 0},
		"just before 10 s": {9 * time.Second, "True Reachable ", time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			objects := []client.Object{policyOf("fleet", "shops", "shop"), clusterOf("fleet", "north", "5")}
			for _, name := range []string{"east", "west"} {
				cl := clusterOf("fleet", name, "5")
				cl.Annotations = map[string]string{v1alpha1.ClusterUIDAnnotation: name}
				objects = append(objects, cl)
			}
			m := newTestFleet(t, objects...)
			m.ill("north", 0, 0)
			m.ill("west", 14*time.Second, 0)
			began := lease.Reading{Wall: testStart.Wall.Add(-test.began), Boot: testStart.Boot - test.began}
			m.Tenure = succeeding(t, began, time.Minute, -time.Hour)
			s, result := m.status()
			if got := inShort(s.Conditions, v1alpha1.ConditionClustersReachable); !strings.HasPrefix(got, test.want) ||
				test.again > 0 && result.RequeueAfter != test.again {
				t.Errorf("%q, again in %v; want %q, %v", got, result.RequeueAfter, test.want, test.again)
			}
		})
	}
}

func TestPolicyIsReconciledAgainWhenTimeAloneMayChangeIt(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*testFleet)
		want   time.Duration
	}{
		"namespaces are left out": {func(m *testFleet) {
			m.lone.of[shops] = &loneSet{left: map[string]int{"east": 3}}
		}, countAgain},
		"bounds in the seal may fall": {func(m *testFleet) {
			musttest.Do(m.t, m.Seals.Raise(m.t.Context(), "fleet", "deleted", seal.Bounds{Duration: 15 * time.Second}))
		}, lowersAfter},
		"a fence has a minute to be checked": {func(m *testFleet) {
			m.Clock = fixedClock{Wall: testStart.Wall.Add(50 * time.Second), Boot: testStart.Boot + 50*time.Second}
			changeStored(m.t, m.api, policyOf("fleet", "shops", ""), func(p *v1alpha1.LeadershipPolicy) {
				p.Spec.Fencing = decidetest.Locks(simLock)
			})
		}, 10 * time.Second},
		"the first of two clusters may recover": {func(m *testFleet) {
			m.ill("east", time.Minute, 2*time.Second)
			m.ill("west", time.Minute, time.Second)
		}, 3 * time.Second},
		"nothing may change": {func(*testFleet) {}, 0},
	} {
		inBubble(t, name, func(t *testing.T) {
			m := newTestFleet(t, policyOf("fleet", "shops", "shop"), clusterOf("fleet", "east", "5"),
				clusterOf("fleet", "west", "5"))
			m.Clock = fixedClock{Wall: testStart.Wall.Add(time.Hour), Boot: testStart.Boot + time.Hour}
			test.change(m)
			if _, result := m.status(); result.RequeueAfter != test.want {
				t.Errorf("again in %v, want %v", result.RequeueAfter, test.want)
			}
		})
	}
}

// An answer that comes later than a policy allows counts for no decision of that policy.
func TestMembersAreJudgedByTheTimeoutsOfPolicies(t *testing.T) {
	for took, counts := range map[time.Duration]bool{time.Second: true, 2 * time.Second: false} {
		inBubble(t, took.String(), func(t *testing.T) {
			p := policyOf("fleet", "shops", "shop")
			p.Spec.Timings.RequestTimeoutMilliseconds = 1000
			m := newTestFleet(t, p, clusterOf("fleet", "east", "5"))
			m.status()
			for _, kind := range []health.Kind{health.Read, health.Write} {
				m.member("east").Observe(health.Observation{Kind: kind, At: testStart, Took: took, OK: true})
			}
			synctest.Wait()
			is := m.member("east").Health(decide.ParsePolicy(p).Thresholds)
			if (is.State == health.Healthy) != counts {
				t.Errorf("it is %+v after an answer in %v", is, took)
			}
		})
	}
}

// The status says why the seal cannot be used: it must not wait for the seal.
func TestPolicyStatusIsWrittenWhileBoundsCannotBeLowered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestFleet(t, policyOf("fleet", "shops", "shop"), clusterOf("fleet", "east", "5"))
		bounds := map[string]seal.Bounds{"shops": decide.ParsePolicy(policyOf("fleet", "shops", "shop")).Bounds()}
		var answer error
		broken := refusing(m.api, &answer, "get")
		m.Seals = seal.NewStore(broken, broken)
		musttest.Do(t, m.Seals.Raise(t.Context(), "fleet", "shops", bounds["shops"]))
		m.seals.setLowering("fleet", &lowering{before: bounds, after: bounds, begun: true})
		now := m.Clock.Now()
		now.Boot += m.Tenure.EarlierEndIn(now, bounds["shops"].Skew)
		m.Clock = fixedClock(now)
		answer = errRefused
		_, err := m.statuses.reconcilePolicy(t.Context(), requestOf(shops))
		is := &v1alpha1.LeadershipPolicy{}
		musttest.Do(t, m.api.Get(t.Context(), shops, is))
		if !errors.Is(err, errRefused) || len(is.Status.Conditions) == 0 {
			t.Errorf("%v, and the status is %+v", err, is.Status)
		}
	})
}

func TestPolicyStatusIsWrittenWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestFleet(t, policyOf("fleet", "shops", "shop"), clusterOf("fleet", "east", "5"))
		var w traffic
		var answer error
		m.Client = w.to(refusing(m.api, &answer, "status"))
		for range 2 {
			if m.status(); w.statuses != 1 {
				t.Errorf("it was written %d times, want once", w.statuses)
			}
		}
		for name, test := range map[string]struct {
			answer error
			fails  bool
		}{
			"conflict": {apierrors.NewConflict(recordResource, "shops", errRefused), false}, // an event will come
			"gone":     {apierrors.NewNotFound(recordResource, "shops"), false},
			"failure":  {errors.New("no answer"), true},
		} {
			answer = test.answer
			claimed(t, m.Controller, name, "shops")
			if _, err := m.statuses.reconcilePolicy(t.Context(), requestOf(shops)); (err != nil) != test.fails {
				t.Errorf("%s: %v", name, err)
			}
		}
		answer = nil
		n := w.statuses
		changeStored(t, m.api, policyOf("fleet", "shops", ""), func(p *v1alpha1.LeadershipPolicy) {
			p.Finalizers = []string{"example.com/x"}
		})
		musttest.Do(t, m.api.Delete(t.Context(), policyOf("fleet", "shops", "")))
		if _, result := m.status(); result != (reconcile.Result{}) || w.statuses != n {
			t.Errorf("a policy that is being deleted: %+v, %d writes", result, w.statuses-n)
		}
		gone := requestOf(types.NamespacedName{Namespace: "fleet", Name: "gone"})
		m.statuses.lone.of[gone.NamespacedName] = &loneSet{}
		if result, err := m.statuses.reconcilePolicy(t.Context(), gone); err != nil || result != (reconcile.Result{}) {
			t.Errorf("a deleted policy: %+v, %v", result, err)
		}
		if m.statuses.lone.of[gone.NamespacedName] != nil {
			t.Error("what was counted of a deleted policy is kept")
		}
		m.standby()
		if result, err := m.statuses.reconcilePolicy(t.Context(), requestOf(shops)); err != nil ||
			result.RequeueAfter != notYet || w.statuses != n {
			t.Errorf("a standby: %+v, %v, %d writes", result, err, w.statuses-n)
		}
	})
}

// What the hub's API server did not answer is asked again. Each request has a deadline.
func TestReconcileOfAPolicyFails(t *testing.T) {
	for name, test := range map[string]struct {
		change func(testAPI) testAPI
		fails  error
	}{
		"each request has a deadline":   {bounded, nil},
		"the policy cannot be read":     {func(api testAPI) testAPI { return failing(api, "get") }, errRefused},
		"the policies cannot be listed": {func(api testAPI) testAPI { return failing(api, "list") }, errRefused},
		"the status cannot be written":  {func(api testAPI) testAPI { return failing(api, "status") }, errRefused},
	} {
		inBubble(t, name, func(t *testing.T) {
			m := newTestFleet(t, policyOf("fleet", "shops", "shop"))
			m.Client = test.change(m.api)
			if _, err := m.statuses.reconcilePolicy(t.Context(), requestOf(shops)); !errors.Is(err, test.fails) {
				t.Errorf("%v, want %v", err, test.fails)
			}
		})
	}
}

func TestPoliciesAreListedOldestFirst(t *testing.T) {
	of := func(name string, age time.Duration) *v1alpha1.LeadershipPolicy {
		p := policyOf("fleet", name, "shop")
		p.CreationTimestamp = metav1.NewTime(testStart.Wall.Add(-age))
		return p
	}
	deleted := of("a-deleted", 3*time.Hour)
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: testStart.Wall}, []string{"example.com/x"}
	api := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(of("b", time.Hour), of("a", time.Hour),
		of("z", 2*time.Hour), deleted, policyOf("fleet2", "elsewhere", "shop")).Build()
	ps, err := listPolicies(t.Context(), api, "fleet")
	var names []string
	for _, p := range ps {
		names = append(names, p.Name)
	}
	if err != nil || !slices.Equal(names, []string{"z", "a", "b"}) {
		t.Errorf("%q, %v", names, err)
	}
}
