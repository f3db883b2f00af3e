package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/tenure"
)

// failingOnce fails one list.
type failingOnce struct {
	client.Client
	list int // which
}

func (f *failingOnce) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if f.list--; f.list == 0 {
		return errRefused
	}
	return f.Client.List(ctx, l, opts...)
}

// What the hub's API server did not answer is asked again.
func TestALookAtAPolicyThatFails(t *testing.T) {
	request := mcreconcile.Request{Request: reconcile.Request{NamespacedName: shops}}
	for name, test := range map[string]struct {
		change func(*muster)
		fails  error
	}{
		"it is answered in time": {func(m *muster) { m.Client = bounded{m.api} }, nil},
		"the policy cannot be read": {
			func(m *muster) { m.Client = failing{Client: m.api, get: errRefused} }, errRefused,
		},
		"the policies cannot be listed": {
			func(m *muster) { m.Client = failing{Client: m.api, list: errRefused} }, errRefused,
		},
		"they cannot for what is probed": {
			func(m *muster) { m.Client = &failingOnce{Client: m.api, list: 1} }, errRefused,
		},
		"they cannot for what is said of one": {
			func(m *muster) { m.Client = &failingOnce{Client: m.api, list: 2} }, errRefused,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMuster(t, policyOf("fleet", "shops", "shop"))
				test.change(m)
				if _, err := m.statuses.reconcilePolicy(t.Context(), request); !errors.Is(err, test.fails) {
					t.Errorf("%v, want %v", err, test.fails)
				}
			})
		})
	}
}

// A cluster that is gone is none of the policy's, although its connection is kept.
func TestAClusterThatIsGoneIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, policyOf("fleet", "shops", "shop"), pinned("east"), clusterOf("fleet", "west", "5"))
		m.loses("east")
		if east := m.member("east"); !east.Gone || east.PriorityReason != "" {
			t.Fatalf("%+v", east)
		}
		if s, _ := m.status(); *s.Clusters != 1 {
			t.Errorf("%d clusters", *s.Clusters)
		}
	})
}

// A health that does not change by time alone asks for no look.
func TestAHealthThatStaysPutsNoLookOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, policyOf("fleet", "shops", "shop"), clusterOf("fleet", "east", "5"),
			clusterOf("fleet", "west", "5"))
		ill(m.member("east"), false, time.Second)
		th := decide.ParsePolicy(policyOf("fleet", "shops", "shop")).Thresholds
		if m.member("west").Health(th).Next != 0 {
			t.Fatal("west changes by itself")
		}
		if _, result := m.status(); result.RequeueAfter != m.member("east").Health(th).Next {
			t.Errorf("again in %v", result.RequeueAfter)
		}
	})
}

// Two that were lost one after the other, within the time that a cluster takes to count as lost, were lost at once.
func TestClustersThatWereLostWithinOneWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, policyOf("fleet", "shops", "shop"), clusterOf("fleet", "east", "5"),
			clusterOf("fleet", "west", "5"))
		for name, ago := range map[string]time.Duration{"east": time.Minute, "west": time.Minute + 5*time.Second} {
			at := func(d time.Duration) lease.Reading {
				return lease.Reading{Wall: musterStart.Wall.Add(-d), Boot: musterStart.Boot - d}
			}
			for _, kind := range []health.Kind{health.Read, health.Write} {
				m.member(name).Observe(health.Observation{Kind: kind, At: at(ago + time.Second), OK: true})
				m.member(name).Observe(health.Observation{Kind: kind, At: at(ago), Reason: reason.Unreachable, Message: "silence"})
			}
		}
		synctest.Wait()
		if s, _ := m.status(); judged(s, v1alpha1.ConditionClustersReachable) != "False MostUnreachable" {
			t.Error(judged(s, v1alpha1.ConditionClustersReachable))
		}
	})
}

// What is asked of the hub's API server on the side is bounded, too.
func TestWhatEventsAskForIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shop"}}
		m := newMuster(t, clusterOf("fleet", "east", "high"), policyOf("fleet", "shops", "shop"), record)
		asked(&m.recordQueue)
		asked(&m.policyQueue)
		m.Client = bounded{m.api}
		m.members.of[eastKey] = &memberState{connected: true}
		m.sources.memberChanged(eastKey)
		if len(m.events.events) != 1 || len(asked(&m.recordQueue)) != 1 || len(asked(&m.policyQueue)) != 1 {
			t.Errorf("told %q", m.events.events)
		}
		m.Client = failing{Client: m.api, list: errRefused}
		if m.sources.fleetChangedIn(0, "fleet"); len(asked(&m.policyQueue)) > 0 {
			t.Error("policies that could not be listed are looked at")
		}
		if keys := m.sources.namespacesOf(t.Context(), "fleet"); len(keys) > 0 {
			t.Errorf("namespaces that could not be listed: %v", keys)
		}
	})
}

// A standby looks at the seal when a member changes, for as long as it may.
func TestAStandbyLooksAtTheSealWhenAMemberChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, clusterOf("fleet", "east", "5"))
		hubOf(t, m.Controller)
		m.Tenure = tenure.New(fixedClock(musterStart), 6*time.Second)
		api := m.Client
		m.Seals = seal.NewStore(bounded{api}, bounded{api})
		m.sources.memberChanged(eastKey)
		if err := api.Delete(t.Context(), sealOf("fleet")); err != nil {
			t.Fatal(err)
		}
		if s, err := m.Seals.Find(t.Context(), "fleet"); err != nil || s.Largest().Duration == 0 {
			t.Errorf("it is not known: %+v, %v", s, err)
		}
	})
}
