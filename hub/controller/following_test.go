package controller

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
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
		"its term ends": {func(s *v1alpha1.NamespaceLeaderSpec) { s.State = v1alpha1.StateDraining },
			follow.Place{Managed: true, Clusters: covered}},
		"its term ends, and it leads on in a new one": {
			func(s *v1alpha1.NamespaceLeaderSpec) { s.State, s.Next = v1alpha1.StateDraining, "east" },
			follow.Place{Managed: true, Leader: "east", Epoch: 20, Clusters: covered}},
		"its term ends, and west leads next": {
			func(s *v1alpha1.NamespaceLeaderSpec) { s.State, s.Next = v1alpha1.StateDraining, "west" },
			follow.Place{Managed: true, Clusters: covered}},
		"another policy owns it": {func(s *v1alpha1.NamespaceLeaderSpec) { s.Policy = "desks" },
			follow.Place{Managed: true, Leader: "east", Epoch: 20, Clusters: map[string]bool{}}},
		"its policy is gone": {func(s *v1alpha1.NamespaceLeaderSpec) { s.Policy = "gone" },
			follow.Place{Leader: "east", Epoch: 20}},
		"no policy owns it": {func(s *v1alpha1.NamespaceLeaderSpec) { s.State = v1alpha1.StateRetired }, follow.Place{}},
	} {
		t.Run(name, func(t *testing.T) {
			c, f, api := newTestHub(t)
			f.shown = append(f.shown, fleet.Member{Key: westKey, PriorityReason: reason.NoPriority})
			desks := policyOf("fleet", "desks", "desk")
			desks.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"desks": "true"}}
			must(t, api.Create(t.Context(), desks))
			changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) { test.change(&o.Spec) })
			if got, err := c.following.place(t.Context(), shop); err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, %v; want %+v", got, err, test.want)
			}
			c.policies.changed("fleet")
			c.Client = failing(api, "list")
			if _, err := c.following.place(t.Context(), shop); err == nil && test.want.Clusters != nil {
				t.Error("the policies cannot be listed, and there is no error")
			}
		})
	}
}
