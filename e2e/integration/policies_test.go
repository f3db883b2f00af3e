package integration

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

func TestTimingsThatBreakTheRuleAreRefusedAndThoseInForceStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, three)
	a := w.namespace("a", all...)
	p := w.Policy("p", a)
	w.startHub()
	w.Leads("east", a, firstElection, all...)
	j := w.keeps("east", a)

	bad := w.NewPolicy("bad", w.Fleet+"-b")
	bad.Spec.Timings.RequestTimeoutMilliseconds = 13000 // 2 × 1s + 13s + 0.25s > 15s
	refused := func(err error) {
		t.Helper()
		if !apierrors.IsInvalid(err) {
			t.Fatalf("want a refusal, got %v", err)
		}
		w.Must(contains(
			err.Error(),
			"renewIntervalMilliseconds twice, requestTimeoutMilliseconds and maxClockSkewMilliseconds "+
				"must not add up to more than leaseDurationMilliseconds",
			"raise leaseDurationMilliseconds",
		))
	}
	refused(w.Hub.Create(t.Context(), bad))
	w.Must(w.Hub.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	p.Spec.Timings.LeaseDurationMilliseconds = 7000
	refused(w.Hub.Update(t.Context(), p))
	j.check()
}

// later waits until what is created next is younger by the API server's clock, which
// counts seconds.
func (w *world) later(than metav1.Object) {
	w.Eventually("a second has passed", 3*time.Second, func() error {
		if wait := time.Until(than.GetCreationTimestamp().Add(time.Second)); wait > 0 {
			return fmt.Errorf("%v are left", wait)
		}
		return nil
	})
}

func TestTheOlderOfTwoPoliciesOwnsANamespaceAndTheOtherSaysSoUntilItTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, three)
	a, b := w.namespace("a", all...), w.namespace("b", all...)
	older := w.Policy("z-older", a)
	w.later(older)
	w.startHub()
	w.Leads("east", a, firstElection, all...)
	j := w.keeps("east", a)

	w.Policy("a-newer", a, b)
	epoch := w.Leads("east", b, soon, all...)
	w.awaitPolicy("a-newer", v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Conflict", a, "z-older")
	w.awaitPolicy("z-older", v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")
	r := harness.Get(w.Record(a))(w.T)
	if r.Spec.Policy != "z-older" {
		t.Errorf("the record names policy %q", r.Spec.Policy)
	}
	// It asks for the same Lease and the same D: its readers notice nothing.
	w.deletePolicy("z-older")
	w.awaitPolicy("a-newer", v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")
	w.Eventually("the record names the other policy", soon, func() error {
		if r := must.Get(w.Record(a)); r.Spec.Policy != "a-newer" {
			return fmt.Errorf("%s", r.Spec.Policy)
		}
		return nil
	})
	j.check()
	if got := w.Leads("east", b, soon, all...); got != epoch {
		t.Errorf("epoch %d of the namespace beside it, was %d", got, epoch)
	}
}

func TestAPolicyWithAnotherLeaseNameTakesOverInANewTermAfterTheBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, three)
	w.Timings = brief
	a, b := w.namespace("a", all...), w.namespace("b", all...)
	older := w.Policy("older", a)
	w.later(older)
	newer := w.NewPolicy("newer", a, b)
	newer.Spec.LeaseName = "other"
	w.Must(w.Hub.Create(t.Context(), newer))
	w.startHub()
	epoch := w.Leads("east", a, firstElection, all...)
	w.awaitPolicy("newer", v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Conflict", a)

	last := w.follow("east", a)
	w.deletePolicy("older")
	other := &coordinationv1.Lease{}
	w.Eventually("the other Lease names east", w.ordered(), func() error {
		err := w.Members["east"].Get(t.Context(), types.NamespacedName{Namespace: a, Name: "other"}, other)
		if err == nil && *other.Spec.HolderIdentity != "east."+w.Fleet {
			err = fmt.Errorf("holder %q", *other.Spec.HolderIdentity)
		}
		return err
	})
	if *other.Spec.LeaseTransitions <= int32(epoch) {
		t.Errorf("epoch %d after %d", *other.Spec.LeaseTransitions, epoch)
	}
	if bound := last().Add(w.term()); other.Spec.AcquireTime.Time.Before(bound) {
		t.Errorf("granted at %v, before the bound %v", other.Spec.AcquireTime, bound)
	}
	for _, m := range all {
		w.noLease(m, a, soon)
	}
	w.awaitPolicy("newer", v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")
}

func TestAPolicyThatSelectsOtherClustersHandsOverWhenItTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, three)
	w.Timings = brief
	a, b := w.namespace("a", all...), w.namespace("b", all...)
	for _, m := range []string{"west", "south"} {
		w.editCluster(m, func(c *clusterv1.Cluster) { c.Labels["side"] = "left" })
	}
	older := w.Policy("older", a)
	w.later(older)
	newer := w.NewPolicy("newer", a, b)
	newer.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"side": "left"}}
	w.Must(w.Hub.Create(t.Context(), newer))
	w.startHub()
	epoch := w.Leads("east", a, firstElection, all...)
	w.Leads("west", b, firstElection, "west", "south")
	j := w.keeps("west", b)
	last := w.follow("east", a)
	w.deletePolicy("older")
	w.handedOver(a, "west", epoch, last, "west", "south")
	w.noLease("east", a, soon)
	j.check()
}

func TestThePolicyThatIsDeletedWhileAMemberIsAwayIsClearedUpThereToo(t *testing.T) {
	for name, restart := range map[string]bool{"by the same hub": false, "by a hub that was restarted": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, three)
			a, b := w.namespace("a", all...), w.namespace("b", "east", "west")
			w.longPolicy("p", a)
			w.steadyPolicy("stays", b)
			w.startHub()
			w.Leads("east", a, firstElection, all...)
			w.Leads("east", b, firstElection, "east", "west")
			j := w.keeps("east", b)
			w.Servers.Member("south").Proxy().BlackHole()
			w.awaitUnfit("south", a, reason.Unreachable)
			w.deletePolicy("p")
			w.noLease("east", a, soon)
			w.noLease("west", a, soon)
			w.Eventually("the record is retired", soon, func() error {
				if r := must.Get(w.Record(a)); r.Spec.State != v1alpha1.StateRetired {
					return fmt.Errorf("%+v", r.Status)
				}
				return nil
			})
			if restart {
				w.StopHub()
				w.startHub()
			}
			if _, err := w.LeaseIn("south", a); err != nil {
				t.Fatalf("the Lease in the member that is away: %v", err)
			}
			w.Servers.Member("south").Proxy().Heal()
			w.noLease("south", a, soon)
			j.check()
		})
	}
}
