package clusterctlmove

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
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
	first.saysOtherHub(t)
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
	first.saysOtherHub(t)
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
	harness.Must(t, writer.Kill())
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
		harness.Must(t, from.Hub.List(t.Context(), list, client.InNamespace(harness.FleetNamespace)))
		objects := harness.Get(meta.ExtractList(list))(t)
		for _, o := range objects {
			object := o.(client.Object)
			object.SetResourceVersion("")
			object.SetUID("")
			object.SetOwnerReferences(nil)
			object.SetManagedFields(nil)
			harness.Must(t, to.Hub.Create(t.Context(), object))
		}
	}
}

// saysOtherHub returns when the hub at a site reports for each namespace that another hub writes there, and that
// it leads nothing.
func (at site) saysOtherHub(t *testing.T) {
	first.Eventually(t, patience, "the hub at the "+at.name+" site says OtherHub", func(ctx context.Context) error {
		for namespace := range leaders {
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

// TestAMoveInTheMiddleOfAHandover moves the fleet during a handover. The move drops the record's status: the handover,
// its earliest end and the new priority. The old leader keeps its term, or the better cluster leads after the term.
// The other namespaces are unaffected. Raising the priority once more repeats the handover.
func TestAMoveInTheMiddleOfAHandover(t *testing.T) {
	const namespace, successor = "shop", "west"
	epochs := first.begin(t)
	provisioned(t, first)
	v := look(t)
	harness.Must(t, first.SetPriority(t.Context(), successor, 200))
	first.Eventually(t, patience, "the leader is being replaced", func(ctx context.Context) error {
		r := must.Get(first.Record(ctx, namespace))
		return must.ErrorIf(r.Spec.State != v1alpha1.StateDraining, "leader %q, state %s", r.Spec.Leader, r.Spec.State)
	})
	began := harness.Now().Boot
	clusterctl(t, first, second)
	moved := harness.Now().Boot
	hub := second.hubID(t)
	var epoch int64
	var leader string
	first.Eventually(t, timings.Duration+timings.Skew+patience, "the old term goes on, or the better cluster leads",
		func(ctx context.Context) (err error) {
			for _, leader = range []string{leaders[namespace], successor} {
				if epoch, err = second.ledBy(ctx, hub, namespace, leader); err == nil {
					return nil
				}
			}
			return err
		})
	if same := leader == leaders[namespace]; same && epoch != epochs[namespace] || !same && epoch <= epochs[namespace] {
		t.Errorf("%s leads in epoch %d; %s led in %d", leader, epoch, leaders[namespace], epochs[namespace])
	}
	t.Logf("clusterctl took %.1f s; after it %s leads in epoch %d, was %d",
		(moved - began).Seconds(), leader, epoch, epochs[namespace])
	v.markedBy(hub)

	harness.Must(t, second.SetPriority(t.Context(), successor, 201))
	first.Eventually(t, timings.Duration+timings.Skew+patience, "the better cluster leads",
		func(ctx context.Context) (err error) {
			epoch, err = second.ledBy(ctx, hub, namespace, successor)
			return err
		})
	if epoch <= epochs[namespace] {
		t.Errorf("epoch %d after %d", epoch, epochs[namespace])
	}
	v.settled(namespace)
	v.unbroken(epochs, namespace)
	v.harmless()
}

// TestASourceThatDiesForGood: the hub of the source dies before the fleet moves. Its marks stay on the members' Leases.
// The other hub cannot know that it died, and reports OtherHub, also when all terms have ended. An operator who knows
// deletes the Leases in the members. Then the other hub waits for all that may have been promised, and elects leaders.
func TestASourceThatDiesForGood(t *testing.T) {
	best := maps.Clone(leaders)
	best["shop"] = "west" // since the test before this one
	before := map[string]int64{}
	hub := second.hubID(t)
	first.Eventually(t, patience, "all namespaces are led", func(ctx context.Context) (err error) {
		for namespace, leader := range best {
			if before[namespace], err = second.ledBy(ctx, hub, namespace, leader); err != nil {
				return fmt.Errorf("%s: %w", namespace, err)
			}
		}
		return nil
	})
	v := look(t)
	second.kill(t)
	provisioned(t, second)
	clusterctl(t, second, first)
	first.saysOtherHub(t)
	first.Eventually(t, timings.Duration+patience, "all terms have ended", func(ctx context.Context) error {
		for namespace, leader := range best {
			if c, err := copyIn(ctx, leader, namespace); err != nil || c.Live(harness.Now().Wall) {
				return fmt.Errorf("%s: the Lease in %s is %+v (%w)", namespace, leader, c, err)
			}
		}
		return nil
	})
	first.saysOtherHub(t)

	for _, member := range first.Fleet.Members() {
		for namespace := range best {
			harness.Must(t, first.Members[member.Name()].DeleteAllOf(t.Context(), &coordinationv1.Lease{},
				client.InNamespace(namespace), client.MatchingLabels{v1alpha1.ManagedLabel: "true"}))
		}
	}
	deleted := harness.Now().Boot
	hub = first.hubID(t)
	first.Eventually(t, timings.Duration+timings.Skew+patience, "the other hub leads", func(ctx context.Context) error {
		for namespace, leader := range best {
			epoch, err := first.ledBy(ctx, hub, namespace, leader)
			if err == nil && epoch <= before[namespace] {
				err = fmt.Errorf("epoch %d after %d", epoch, before[namespace])
			}
			if err != nil {
				return fmt.Errorf("%s: %w", namespace, err)
			}
		}
		return nil
	})
	t.Logf("all namespaces were led %.1f s after the Leases were deleted", (harness.Now().Boot - deleted).Seconds())
	v.harmless()
}
