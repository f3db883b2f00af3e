package clusterctlmove

import (
	"context"
	"fmt"
	"maps"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// late is a namespace that gets its leader after the hub's snapshot was taken.
const late = "late"

// TestARestoredHubKeepsEveryLeader restores the hub's etcd to a time before one of the namespaces had a leader. The
// record and the election's Lease are older than the members' Leases. No term ends, and no epoch falls.
func TestARestoredHubKeepsEveryLeader(t *testing.T) {
	epochs := first.led(t)
	v := look(t)
	pause(t, first, "west", true)
	first.nobodyLeads(t, late)
	snapshot := harness.Get(first.Fleet.Hub().Snapshot(t.Context()))(t)
	pause(t, first, "west", false)
	epoch := first.leads(t, late, "west")
	// A better cluster comes. It takes nothing over, then or after the restore.
	inEast := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: late}}
	harness.Must(t, first.Members["east"].Create(t.Context(), inEast))
	first.Eventually(t, patience, "east follows in "+late, func(ctx context.Context) error {
		_, err := copyIn(ctx, "east", late)
		return err
	})

	first.kill(t)
	begin := harness.Now().Boot
	harness.Must(t, first.Fleet.Hub().Restore(t.Context(), snapshot))
	first.startHub(t)
	if got := first.leads(t, late, "west"); got != epoch {
		t.Errorf("%s: epoch %d, was %d", late, got, epoch)
	}
	first.goesOn(t, epochs)
	t.Logf("%.1f s after the loss all is as it was", (harness.Now().Boot - begin).Seconds())
	v.settled()
	t.Logf("the closest renewal came %.1f s before the end of its term; the longest pause between two acts was %.2f s",
		v.unbroken(epochs).Seconds(), v.undisturbed().Seconds())
	pause(t, first, "west", false)
}

// TestARecordFromABackupIsARecord restores objects as a backup tool does, without their status. The hub decides by the
// record's spec alone, so every term goes on with its reason.
func TestARecordFromABackupIsARecord(t *testing.T) {
	epochs := first.led(t)
	v := look(t)
	first.kill(t)
	var list v1alpha1.NamespaceLeaderList
	harness.Must(t, first.Hub.List(t.Context(), &list, client.InNamespace(harness.FleetNamespace)))
	before := map[string]v1alpha1.NamespaceLeaderSpec{}
	for i := range list.Items {
		lost := &list.Items[i]
		before[lost.Name] = lost.Spec
		harness.Must(t, first.Hub.Delete(t.Context(), lost))
		harness.Must(t, first.Hub.Create(t.Context(), &v1alpha1.NamespaceLeader{
			ObjectMeta: metav1.ObjectMeta{Namespace: lost.Namespace, Name: lost.Name, Labels: lost.Labels}, Spec: lost.Spec,
		}))
	}
	first.startHub(t)
	v.settled()
	first.goesOn(t, epochs)
	first.Eventually(t, patience, "each record has a status again", func(ctx context.Context) error {
		must.Do(first.Hub.List(ctx, &list, client.InNamespace(harness.FleetNamespace)))
		for _, r := range list.Items {
			if r.Status.Message == "" {
				return fmt.Errorf("%s has none", r.Name)
			}
		}
		return nil
	})
	for _, r := range list.Items {
		if was := before[r.Name]; r.Spec.Reason != was.Reason || !r.Spec.Since.Equal(was.Since) {
			t.Errorf("%s: %s since %v, was %s since %v", r.Name, r.Spec.Reason, r.Spec.Since, was.Reason, was.Since)
		}
	}
	v.unbroken(epochs)
	v.undisturbed()
}

// nobodyLeads makes a namespace in west, which may not be chosen, and returns when the record says that nobody leads.
func (at site) nobodyLeads(t *testing.T, namespace string) {
	p := &v1alpha1.LeadershipPolicy{}
	key := client.ObjectKey{Namespace: harness.FleetNamespace, Name: harness.PolicyName}
	harness.Must(t, at.Hub.Get(t.Context(), key, p))
	p.Spec.Namespaces.Names = append(p.Spec.Namespaces.Names, namespace)
	harness.Must(t, at.Hub.Update(t.Context(), p))
	inWest := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	harness.Must(t, first.Members["west"].Create(t.Context(), inWest))
	first.Eventually(t, patience, "nobody leads "+namespace, func(ctx context.Context) error {
		r := must.Get(at.Record(ctx, namespace))
		return must.ErrorIf(r.Spec.State != v1alpha1.StateVacant, "state %q", r.Spec.State)
	})
}

// leads returns the epoch in which a cluster leads a namespace, once it does.
func (at site) leads(t *testing.T, namespace, leader string) (epoch int64) {
	hub := at.hubID(t)
	first.Eventually(t, patience, leader+" leads "+namespace, func(ctx context.Context) (err error) {
		epoch, err = at.ledBy(ctx, hub, namespace, leader)
		return err
	})
	return epoch
}

// pause sets or clears what clusterctl sets.
func pause(t *testing.T, at site, cluster string, value bool) {
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"paused":%t}}`, value))
	first.Eventually(t, patience, "the hub's API server answers", func(ctx context.Context) error {
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: cluster}}
		err := at.Hub.Patch(ctx, c, patch)
		if apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err
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
