package controller

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
)

// A Secret that was emptied while no hub ran holds no seal any more. The policies of the fleet show what is wrong and
// what to do, until it is repaired.
func TestPolicyShowsThatTheSealIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestFleet(t, policyOf("fleet", "shops", "shop"))
		m.isServed(false, "")
		emptied := sealOf("fleet")
		emptied.Annotations = map[string]string{v1alpha1.HubAnnotation: m.HubID}
		musttest.Do(t, m.api.Create(t.Context(), emptied.DeepCopy()))
		for range 2 {
			if _, ok := m.seals.serve(t.Context(), "fleet"); ok {
				t.Fatal("the fleet is served by a seal that is lost")
			}
		}
		s, _ := m.status()
		got := inShort(s.Conditions, v1alpha1.ConditionSecretsGranted)
		if !strings.HasPrefix(got, "False InvalidSeal ") || !strings.Contains(got, "secret fleet/leasecast-seal") ||
			!strings.Contains(got, "kubectl -n fleet annotate secret leasecast-seal") {
			t.Error(got)
		}
		musttest.Do(t, m.api.Delete(t.Context(), emptied))
		_, ok := m.seals.serve(t.Context(), "fleet")
		s, _ = m.status()
		if got := inShort(s.Conditions, v1alpha1.ConditionSecretsGranted); !ok || got != "True Granted " {
			t.Errorf("served: %v, %s", ok, got)
		}
	})
}

// counted is a context whose log counts errors.
func counted(t *testing.T) (ctx context.Context, errors *int) {
	errors = new(int)
	return log.IntoContext(t.Context(), funcr.New(func(_, line string) {
		if strings.Contains(line, `"error"`) {
			*errors++
		}
	}, funcr.Options{})), errors
}

// sealRefused is an answer to an update of a seal that only people can change.
var sealRefused = apierrors.NewForbidden(corev1.Resource("secrets"), seal.SecretName, errRefused)

func TestSealThatCannotBeWrittenIsReportedOnce(t *testing.T) {
	c, _, api := newTestHub(t)
	changeStored(t, api, sealOf("fleet"), func(s *corev1.Secret) {
		s.Data["policies"] = boundsOf("5s", "1s", "0s", "shops")
	})
	var answer error
	c.Seals = seal.NewStore(api, refusing(api, &answer, "update"))
	for raises, use := range map[bool]func(context.Context) bool{
		false: func(ctx context.Context) bool {
			_, ok := c.seals.serve(ctx, "fleet")
			return ok
		},
		true: func(ctx context.Context) bool {
			again, err := c.reconcileNamespace(ctx, aboutShop)
			if err != nil || again.RequeueAfter <= 0 {
				t.Errorf("%+v, %v", again, err)
			}
			s, err := c.Seals.Find(ctx, "fleet")
			return err == nil && s.Largest().Duration >= 15*time.Second
		},
	} {
		answer = sealRefused
		ctx, lines := counted(t)
		for range 3 {
			if use(ctx) {
				t.Fatalf("raises %v: done, although nothing is stored", raises)
			}
		}
		c.seals.note(ctx, useOfSeal{"fleet", !raises}, nil) // another use that succeeds hides nothing
		is := c.seals.why("fleet")
		if *lines != 1 || !strings.Contains(is, "if it is immutable, delete it") {
			t.Errorf("raises %v: logged %d times: %q", raises, *lines, is)
		}
		answer = nil
		if !use(ctx) || c.seals.why("fleet") != "" {
			t.Errorf("raises %v: it can be written now: %q", raises, c.seals.why("fleet"))
		}
	}
}

// Whether the seal can be used changes what a worker does in the fleet. Decisions check again by themselves. A passing
// error neither hides nor repairs what people have to repair.
func TestWhoIsNotifiedOfASealThatCannotBeUsed(t *testing.T) {
	broken, none := fmt.Errorf("%w: it is short", seal.ErrBroken), []string(nil)
	records, policies := []string{"fleet/shop"}, []string{"fleet/shops"}
	type notified struct {
		log               int
		records, policies []string
	}
	for name, test := range map[string]struct {
		raise       bool
		was, is     error
		want        notified
		shown, ends bool // the decision
	}{
		"it is broken":                           {false, nil, broken, notified{1, records, policies}, true, true},
		"it cannot be raised":                    {true, nil, broken, notified{1, none, policies}, true, true},
		"it is whole again":                      {false, broken, nil, notified{0, records, policies}, false, false},
		"it can be raised again":                 {true, broken, nil, notified{0, none, policies}, false, false},
		"it cannot be read now":                  {false, nil, errRefused, notified{1, none, none}, false, false},
		"it cannot be raised now, as a decision": {true, nil, errRefused, notified{0, none, none}, false, false},
		"another installation was faster":        {false, nil, seal.ErrServed, notified{0, none, none}, false, false},
		"it is broken, and cannot be read now":   {false, broken, errRefused, notified{1, none, none}, true, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			m := newTestFleet(t, recordOf("fleet", "shop"), policyOf("fleet", "shops", "shop"),
				policyOf("fleet2", "others", "other"))
			use := useOfSeal{"fleet", test.raise}
			m.seals.note(t.Context(), use, test.was)
			asked(&m.recordQueue)
			asked(&m.policyQueue)
			ctx, lines := counted(t)
			ends := m.seals.note(ctx, use, test.is)
			got := notified{*lines, asked(&m.recordQueue), asked(&m.policyQueue)}
			if shown := m.seals.why("fleet") != ""; !reflect.DeepEqual(got, test.want) || shown != test.shown ||
				ends != test.ends {
				t.Errorf("%+v, shown: %v, ends a decision: %v; want %+v", got, shown, ends, test)
			}
		})
	}
}

// The installation that serves a fleet claims its seal for its workers, while it has the right to write. A seal that a
// move took away belongs to the hub that the fleet has moved to.
func TestWhenTheSealOfAFleetIsClaimed(t *testing.T) {
	moves := func(to fleet.Move) func(*testFleet) {
		return func(m *testFleet) {
			m.seals.serve(m.t.Context(), "fleet")
			musttest.Do(m.t, m.api.Delete(m.t.Context(), sealOf("fleet")))
			m.source = &fakeMembers{moves: to}
		}
	}
	for name, test := range map[string]struct {
		change                      func(*testFleet)
		writes, hasSeal, is, marked bool // is: it has served the fleet
	}{
		"this installation serves": {func(m *testFleet) { m.isServed(true, "") }, true, true, true, true},
		"no installation serves":   {func(m *testFleet) { m.isServed(false, "") }, true, true, false, true},
		"another installation serves": {
			func(m *testFleet) { m.isServed(false, "platform") }, false, false, false, false,
		},
		"this replica is a standby": {
			func(m *testFleet) { m.isServed(true, ""); m.standby() }, false, false, true, false,
		},
		"the Secret is there: its Clusters are not listed": {
			func(m *testFleet) {
				m.seals.serve(m.t.Context(), "fleet")
				m.source = &fakeMembers{unmoved: errRefused}
			}, true, true, true, true,
		},
		"the Secret is deleted, its Clusters cannot be listed": {
			func(m *testFleet) {
				moves(fleet.Stays)(m)
				m.source = &fakeMembers{unmoved: errRefused}
			}, true, false, true, false,
		},
		"the Secret is deleted":     {moves(fleet.Stays), true, true, true, true},
		"a move deletes the Secret": {moves(fleet.Moving), true, true, true, false},
		"the fleet has moved away":  {moves(fleet.MovedAway), true, true, true, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			m := newTestFleet(t, clusterOf("fleet", "east", "5"))
			test.change(m)
			h := workersHub{m.Controller}
			key, hasSeal := h.Serve(t.Context(), "fleet")
			if hasSeal != test.hasSeal || (len(key) > 0) != test.hasSeal || h.Served("fleet") != test.is ||
				h.Serves("fleet") != test.writes || h.MayWrite("fleet", testStart) != test.writes {
				t.Errorf("has the seal: %v, served %v, serves %v, may write %v", hasSeal, h.Served("fleet"), h.Serves("fleet"),
					h.MayWrite("fleet", testStart))
			}
			secret := sealOf("fleet")
			_ = m.api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)
			if marked := secret.Annotations[v1alpha1.HubAnnotation] == m.HubID; marked != test.marked {
				t.Errorf("marked %q", secret.Annotations)
			}
		})
	}
}

// A standby may be elected in the middle of a move, when the Secret is already gone.
func TestStandbyLoadsTheSealBeforeItIsElected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, standby := range map[string]bool{"a standby": true, "the elected replica": false} {
			m := newTestFleet(t, clusterOf("fleet", "east", "5"))
			if standby {
				m.standby()
			}
			api := withTestAPI(t, m.Controller)
			m.Seals = seal.NewStore(bounded(api), bounded(api))
			m.sources.memberChanged(eastKey)
			musttest.Do(t, api.Delete(t.Context(), sealOf("fleet")))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s, err := m.Seals.Find(ctx, "fleet")
			if known := err == nil && s.Largest().Duration > 0; known != standby {
				t.Errorf("%s: the seal is known: %v (%v)", name, known, err)
			}
		}
	})
}

// One installation serves a fleet. Another one on the same management cluster changes nothing there, and explains why
// in an event.
func TestInstallationStandsBackWhereAnotherOneServes(t *testing.T) {
	for name, test := range map[string]struct {
		here   bool
		other  string
		events []string
	}{
		"this one serves": {here: true},
		"none serves yet": {},
		"another one serves": {other: "platform", events: []string{"*v1alpha1.LeadershipPolicy Warning OtherHub: " +
			"the hub in namespace platform serves the Clusters of this namespace, so the one in leasecast-system changes " +
			"nothing for them. If the one in leasecast-system is to serve them: stop the other one for good; in every " +
			"cluster run kubectl delete leases -A -l leasecast.dev/managed; then run kubectl -n fleet annotate secret " +
			"leasecast-seal leasecast.dev/hub-"}},
	} {
		inBubble(t, name, func(t *testing.T) {
			m := newTestFleet(t, policyOf("fleet", "shops", "shop"))
			m.isServed(test.here, test.other)
			stands := test.other != ""
			var n, live traffic
			m.Client, m.Live = n.to(m.api), live.to(m.api)
			again, err := m.reconcileNamespace(t.Context(), aboutShop)
			if err != nil || (live.reads == 0) != stands || stands && again.RequeueAfter != notYet {
				t.Errorf("%+v, %v; %d reads of the record", again, err, live.reads)
			}
			again, err = m.statuses.reconcilePolicy(t.Context(), requestOf(shops))
			if err != nil || stands && again.RequeueAfter != standBackAgain {
				t.Errorf("%+v, %v", again, err)
			}
			if !slices.Equal(m.events.events, test.events) {
				t.Errorf("events %q, want %q", m.events.events, test.events)
			}
			if (n.statuses == 0) != stands || m.MayWrite("fleet", testStart) == stands {
				t.Errorf("%d writes of the status, may write: %v", n.statuses, m.MayWrite("fleet", testStart))
			}
		})
	}
}
