package clusterctlmove

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
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
	snapshot := musttest.Get(first.Fleet.Hub().Snapshot(t.Context()))(t)
	pause(t, first, "west", false)
	epoch := first.leads(t, late, "west")
	// A better cluster comes. It takes nothing over, then or after the restore.
	inEast := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: late}}
	musttest.Do(t, first.Members["east"].Create(t.Context(), inEast))
	first.Eventually(t, patience, "east follows in "+late, func(ctx context.Context) error {
		_, err := copyIn(ctx, "east", late)
		return err
	})

	first.kill(t)
	begin := harness.Now().Boot
	musttest.Do(t, first.Fleet.Hub().Restore(t.Context(), snapshot))
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

// nobodyLeads makes a namespace in west, which may not be chosen, and returns when the record says that nobody leads.
func (at site) nobodyLeads(t *testing.T, namespace string) {
	p := &v1alpha1.LeadershipPolicy{}
	key := client.ObjectKey{Namespace: harness.FleetNamespace, Name: harness.PolicyName}
	musttest.Do(t, at.Hub.Get(t.Context(), key, p))
	p.Spec.Namespaces.Names = append(p.Spec.Namespaces.Names, namespace)
	musttest.Do(t, at.Hub.Update(t.Context(), p))
	inWest := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	musttest.Do(t, first.Members["west"].Create(t.Context(), inWest))
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

// TestASourceThatDiesForGood: the hub of the source dies before the fleet moves. Its marks stay on the members' Leases.
// The other hub cannot know that it died, and reports OtherHub, also when all terms have ended. An operator who knows
// deletes the Leases in the members: in shop while the term lasts, elsewhere after the terms have ended. Then the other
// hub elects leaders, in no namespace earlier than ε after the end of the deleted term.
func TestASourceThatDiesForGood(t *testing.T) {
	before := first.begin(t)
	v := look(t)
	first.kill(t)
	provisioned(t, first)
	clusterctl(t, first, second)
	second.saysOtherHub(t, leaders)
	live, now := musttest.Get(copyIn(t.Context(), leaders["shop"], "shop"))(t), harness.Now().Wall
	ends := map[string]time.Time{"shop": live.RenewTime.Add(live.Duration)}
	if !live.Live(now) {
		t.Errorf("the term in shop ended at %v, before its Leases are deleted", ends["shop"])
	}
	t.Logf("the Leases of shop are deleted %.1f s before the term ends", ends["shop"].Sub(now).Seconds())
	deleteLeases(t, "shop")
	others := maps.Clone(leaders)
	delete(others, "shop")
	first.Eventually(t, timings.Duration+patience, "the other terms have ended", func(ctx context.Context) error {
		for namespace, leader := range others {
			c, err := copyIn(ctx, leader, namespace)
			if err != nil || c.Live(harness.Now().Wall) {
				return fmt.Errorf("%s: the Lease in %s is %+v (%w)", namespace, leader, c, err)
			}
			ends[namespace] = c.RenewTime.Add(c.Duration)
		}
		return nil
	})
	second.saysOtherHub(t, others)
	deleteLeases(t, slices.Collect(maps.Keys(others))...)
	deleted := harness.Now().Boot
	hub, best := second.hubID(t), maps.Clone(leaders)
	best["depot"] = "east" // no term keeps it in west
	first.Eventually(t, timings.Duration+timings.Skew+patience, "the other hub leads", func(ctx context.Context) error {
		for namespace, leader := range best {
			epoch, err := second.ledBy(ctx, hub, namespace, leader)
			if err == nil && epoch <= before[namespace] {
				err = fmt.Errorf("epoch %d after %d", epoch, before[namespace])
			}
			if err != nil {
				return fmt.Errorf("%s: %w", namespace, err)
			}
		}
		return nil
	})
	t.Logf("all namespaces were led %.1f s after the last Leases were deleted", (harness.Now().Boot - deleted).Seconds())
	for place, seen := range v.Terms() {
		for _, l := range seen {
			if wait := l.RenewTime.Sub(ends[place.Namespace]); l.Hub == hub && wait < timings.Skew {
				t.Errorf("%s: granted %v after the end of the deleted term, want %v", place, wait, timings.Skew)
			}
		}
	}
	v.harmless()
}

// deleteLeases deletes the hub's Leases of some namespaces in all members, as kubectl delete does.
func deleteLeases(t *testing.T, namespaces ...string) {
	for _, member := range first.Fleet.Members() {
		for _, namespace := range namespaces {
			musttest.Do(t, first.Members[member.Name()].DeleteAllOf(t.Context(), &coordinationv1.Lease{},
				client.InNamespace(namespace), client.MatchingLabels{v1alpha1.ManagedLabel: "true"}))
		}
	}
}
