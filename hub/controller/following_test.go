package controller

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/follow"
)

// Resource sets go where the record and its policy say. The record of shop names east, in epoch 20.
func TestPlaceOfResourceSets(t *testing.T) {
	covered := map[string]bool{"east": true}
	for name, test := range map[string]struct {
		change func(*v1alpha1.NamespaceLeaderSpec)
		want   follow.Place
	}{
		"east leads": {func(*v1alpha1.NamespaceLeaderSpec) {},
			follow.Place{Managed: true, Leader: "east", Epoch: 20, Clusters: covered}},
		"its term ends": {func(s *v1alpha1.NamespaceLeaderSpec) { s.State = v1alpha1.StateEnding },
			follow.Place{Managed: true, Clusters: covered}},
		"its term ends, and it leads on in a new one": {
			func(s *v1alpha1.NamespaceLeaderSpec) { s.State, s.Next = v1alpha1.StateEnding, "east" },
			follow.Place{Managed: true, Leader: "east", Epoch: 20, Clusters: covered}},
		"its term ends, and west leads next": {
			func(s *v1alpha1.NamespaceLeaderSpec) { s.State, s.Next = v1alpha1.StateEnding, "west" },
			follow.Place{Managed: true, Clusters: covered}},
		"another policy owns it": {func(s *v1alpha1.NamespaceLeaderSpec) { s.Policy = "desks" },
			follow.Place{Managed: true, Leader: "east", Epoch: 20, Clusters: map[string]bool{}}},
		"its policy is gone": {func(s *v1alpha1.NamespaceLeaderSpec) { s.Policy = "gone" },
			follow.Place{Leader: "east", Epoch: 20}},
		"its policy was never valid": {func(s *v1alpha1.NamespaceLeaderSpec) { s.Policy = "broken" },
			follow.Place{Leader: "east", Epoch: 20}},
		"no policy owns it": {func(s *v1alpha1.NamespaceLeaderSpec) { s.State = v1alpha1.StateRetired }, follow.Place{}},
	} {
		t.Run(name, func(t *testing.T) {
			c, f, api := newTestHub(t)
			f.shown = append(f.shown, fleet.Member{Key: westKey, PriorityReason: reason.NoPriority})
			desks := policyOf("fleet", "desks", "desk")
			desks.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"desks": "true"}}
			broken := policyOf("fleet", "broken", "bench")
			broken.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"desks": "no value"}}
			musttest.Do(t, errors.Join(api.Create(t.Context(), desks), api.Create(t.Context(), broken)))
			changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) { test.change(&o.Spec) })
			if got, err := c.following.place(t.Context(), shop); err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, %v; want %+v", got, err, test.want)
			}
			none, err := c.following.place(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "new"})
			if err != nil || !reflect.DeepEqual(none, follow.Place{}) {
				t.Errorf("without a record: %+v, %v", none, err)
			}
			c.policies.changed("fleet")
			c.Client = failing(api, "list")
			if _, err := c.following.place(t.Context(), shop); err == nil && test.want.Clusters != nil {
				t.Error("the policies cannot be listed, and there is no error")
			}
		})
	}
}

// What an earlier replica wrote stands until this one has the right to write and has decided on the namespace. A record
// whose leader was not read yet may come from a backup.
func TestStatusOfAResourceSetIsWrittenOnceTheNamespaceIsDecidedOn(t *testing.T) {
	testStatusOfAResourceSet(t, v1alpha1.StateVacant, "", "Unknown Applying ")
	testStatusOfAResourceSet(t, v1alpha1.StateLeading, "east", "nothing")
}

func testStatusOfAResourceSet(t *testing.T, state v1alpha1.RecordState, leader, want string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		record := recordOf("fleet", "shop")
		record.Spec.Policy, record.Spec.State, record.Spec.Leader = "shops", state, leader
		record.Spec.Epoch, record.Spec.LeaseDurationSeconds = 20, 15
		m, ready := newFollowedFleet(t, pinned("east"), policyOf("fleet", "shops", "shop"), record)
		shows := func(when, want string) {
			t.Helper()
			if got := ready(); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
		}
		shows("nothing is decided", "nothing")
		_, err := m.reconcileNamespace(t.Context(), aboutShop)
		musttest.Do(t, err)
		elected := m.Tenure
		m.standby()
		shows("a standby", "nothing")
		m.Tenure = elected
		shows("it is decided on", want)
	})
}

// newFollowedFleet is a testFleet with a seal and a resource set without objects. ready reconciles the set, and returns
// its condition Ready.
func newFollowedFleet(t *testing.T, objects ...client.Object) (m *testFleet, ready func() string) {
	t.Helper()
	set, secret := follows.DeepCopy(), sealOf("fleet")
	set.Spec.Resources = nil
	secret.Data = map[string][]byte{"key": testKey, "policies": boundsOf("15s", "1s", "0s", "shops")}
	m = newTestFleet(t, append(objects, set, secret)...)
	mgr := &fakeManager{local: newFakeLocalManager(m.api)}
	musttest.Do(t, m.following.setup(mgr))
	sets := mgr.added[0].(reconcile.TypedReconciler[mcreconcile.Request])
	return m, func() string {
		t.Helper()
		_, err := sets.Reconcile(t.Context(), requestOf(client.ObjectKeyFromObject(set)))
		musttest.Do(t, err)
		musttest.Do(t, m.api.Get(t.Context(), client.ObjectKeyFromObject(set), set))
		return inShort(set.Status.Conditions, v1alpha1.ConditionReady)
	}
}

// A record that comes back may be old, as after a restore. What the status shows stands until this replica has decided
// on it, also if it has decided without a record in between.
func TestStatusOfAResourceSetStandsUntilARecordThatCameBackIsDecidedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := recordOf("fleet", "shop")
		record.Spec = said20()
		record.Spec.Policy, record.Spec.State, record.Spec.Leader = "gone", v1alpha1.StateRetired, ""
		m, ready := newFollowedFleet(t, policyOf("fleet", "shops", "till"), record)
		for range 2 { // the watch shows the deletion after the first one
			_, err := m.reconcileNamespace(t.Context(), aboutShop)
			musttest.Do(t, err)
			m.ledger.Show(record, true)
		}
		back := recordOf("fleet", "shop")
		back.Spec.Policy, back.Spec.State = "shops", v1alpha1.StateVacant
		musttest.Do(t, m.api.Create(t.Context(), back))
		if got := ready(); got != "nothing" {
			t.Errorf("before the record is decided on, the status is written: %s", got)
		}
	})
}
