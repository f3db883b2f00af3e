package controller

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
)

// landlord shows each fleet its own members.
type landlord struct{ *scene }

func (l landlord) members(fleetName string) (ms []fleet.Member) {
	for _, m := range l.shown {
		if m.Fleet == fleetName {
			ms = append(ms, m)
		}
	}
	return ms
}

// A tenant with policies in one namespace of the hub reaches no Cluster of another one, whatever the policies say.
func TestAPolicyNeverTouchesTheClustersOfAnotherNamespace(t *testing.T) {
	for name, test := range map[string]struct {
		of     string // the namespace of the policy
		leader bool
	}{
		"a policy beside the Clusters":     {"fleet", true},
		"a policy in the tenant's own one": {"fleet2", false},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, api := onScene(t)
			c.source = landlord{s}
			s.shown[0].Priority, s.verdict.Answering = 5, true
			east := c.members.of[eastKey].worker.Publisher()
			before := east.Queue.Len() // what was read there
			if err := api.Create(t.Context(), policyOf(test.of, "greedy", "till")); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				for _, of := range []string{"fleet", "fleet2"} {
					key := types.NamespacedName{Namespace: of, Name: "till"}
					if _, err := c.reconcileNamespace(t.Context(),
						mcreconcile.Request{Request: reconcile.Request{NamespacedName: key}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			record := &v1alpha1.NamespaceLeader{}
			err := api.Get(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "till"}, record)
			if leads := err == nil && record.Spec.Leader == "east"; leads != test.leader {
				t.Errorf("east leads: %v (%+v, %v)", leads, record.Spec, err)
			}
			if assigned := east.Queue.Len() > before; assigned != test.leader {
				t.Errorf("something is to be written into east: %v", assigned)
			}
			other := &v1alpha1.NamespaceLeader{}
			if err := api.Get(t.Context(), types.NamespacedName{Namespace: "fleet2", Name: "till"},
				other); !apierrors.IsNotFound(err) {
				t.Errorf("a namespace without Clusters has a record: %+v, %v", other.Spec, err)
			}
		})
	}
}
