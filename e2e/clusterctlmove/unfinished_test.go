package clusterctlmove

import (
	"context"
	"fmt"
	"maps"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

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
		if r := must.Get(first.Record(ctx, namespace)); r.Spec.State != v1alpha1.StateDraining {
			return fmt.Errorf("leader %q, state %s", r.Spec.Leader, r.Spec.State)
		}
		return nil
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
