package clusterctlmove

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// TestAMoveIsInvisible: clusterctl move takes a fleet to a hub that runs already. No term lapses, no
// leader changes, no epoch does; guestbooks go on.
func TestAMoveIsInvisible(t *testing.T) {
	epochs := first.begin(t)
	first.moves(t, second, epochs)
}

// TestTwoHubsWithTheSameClusters copies a moved fleet back to the first hub while the second hub runs, as an
// interrupted move does. The hub whose mark the Leases carry goes on, also
// after a kill. The other one reports OtherHub. Then the move is finished.
func TestTwoHubsWithTheSameClusters(t *testing.T) {
	epochs := second.led(t)
	v := look(t)
	duplicate(t, second, first)
	first.saysOtherHub(t, leaders)
	v.settled()
	v.unbroken(epochs)
	t.Logf("with two hubs the longest pause between two acts was %.2f s", v.undisturbed().Seconds())

	second.kill(t)
	second.startHub(t)
	after := second.led(t)
	for namespace, epoch := range after {
		if epoch < epochs[namespace] {
			t.Errorf("%s: epoch %d after %d", namespace, epoch, epochs[namespace])
		}
	}
	first.saysOtherHub(t, leaders)
	v.markedBy(second.hubID(t))
	v.harmless()
	t.Logf("killed and restarted: epochs were %v, are %v", epochs, after)

	// The source is lost once more when the move begins. Its standby goes on with whatever is left to do.
	writer := second.LatestHub()
	second.startHub(t)
	first.Eventually(t, patience, "the second hub has a standby", func(context.Context) error {
		log := must.Get(os.ReadFile(second.LatestHub().Log()))
		return must.ErrorIf(strings.Count(string(log), "Credentials in use") < len(first.Fleet.Members()), "it is not warm")
	})
	musttest.Do(t, writer.Kill())
	second.moves(t, first, after)
}

// moves runs clusterctl, and fails the test if anybody but the hubs could have noticed.
func (at site) moves(t *testing.T, to site, epochs map[string]int64) {
	t.Helper()
	provisioned(t, at)
	v := look(t)
	before := harness.Now().Boot
	clusterctl(t, at, to)
	moved := harness.Now().Boot
	to.goesOn(t, epochs)
	t.Logf("clusterctl took %.1f s; %.1f s after that all records and leaders' Leases are those of the %s hub",
		(moved - before).Seconds(), (harness.Now().Boot - moved).Seconds(), to.name)
	v.markedBy(to.hubID(t))
	v.settled()
	if names := left(t, at); len(names) > 0 {
		t.Errorf("left at the %s site: %v", at.name, names)
	}
	t.Logf("the closest renewal came %.1f s before the end of its term; the longest pause between two acts was %.2f s",
		v.unbroken(epochs).Seconds(), v.undisturbed().Seconds())
}

// duplicate Leases the objects of a fleet to another site, as a backup does.
func duplicate(t *testing.T, from, to site) {
	for _, list := range []client.ObjectList{
		&corev1.SecretList{}, &v1alpha1.NamespaceLeaderList{}, &v1alpha1.LeadershipPolicyList{}, &clusterv1.ClusterList{},
	} {
		musttest.Do(t, from.Hub.List(t.Context(), list, client.InNamespace(harness.FleetNamespace)))
		objects := musttest.Get(meta.ExtractList(list))(t)
		for _, o := range objects {
			object := o.(client.Object)
			object.SetResourceVersion("")
			object.SetUID("")
			object.SetOwnerReferences(nil)
			object.SetManagedFields(nil)
			musttest.Do(t, to.Hub.Create(t.Context(), object))
		}
	}
}

// saysOtherHub returns when the hub at a site reports for each of these namespaces that another hub writes there, and
// that it leads nothing.
func (at site) saysOtherHub(t *testing.T, among map[string]string) {
	first.Eventually(t, patience, "the hub at the "+at.name+" site says OtherHub", func(ctx context.Context) error {
		for namespace := range among {
			r := must.Get(at.Record(ctx, namespace))
			c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionLeasesInPlace)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != string(reason.OtherHub) {
				return fmt.Errorf("%s: condition %+v", namespace, c)
			}
			if r.Spec.Hub == at.hubID(t) {
				return fmt.Errorf("%s: state %s of the hub %s", namespace, r.Spec.State, r.Spec.Hub)
			}
		}
		return nil
	})
}
