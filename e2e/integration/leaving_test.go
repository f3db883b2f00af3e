package integration

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// awaitPhase waits until a record is in a phase.
func (w *world) awaitPhase(namespace string, phase v1alpha1.RecordState) {
	w.Eventually(fmt.Sprintf("%s is %s", namespace, phase), soon, func() error {
		r := must.Get(w.Record(namespace))
		return must.ErrorIf(r.Spec.State != phase, "%s, leader %q, %s", r.Spec.State, r.Spec.Leader, r.Status.Message)
	})
}

// awaitUnpinned waits until a Cluster carries nothing of the hub's any more.
func (w *world) awaitUnpinned(cluster string) {
	w.Eventually("Cluster "+cluster+" is not pinned", soon, func() error {
		uid, pinned := w.cluster(cluster).Annotations[v1alpha1.ClusterUIDAnnotation]
		return must.ErrorIf(pinned, "to %s", uid)
	})
}

func TestAClusterThatLeavesWhileItIsAwayIsClearedUpWhenItReturns(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, brief)
	last := w.follow("east", a)
	w.Servers.Member("east").Proxy().BlackHole()
	w.removePriority("east")
	w.handedOver(a, "west", epoch, last, "west", "south")
	w.StopHub()
	w.startHub()
	if _, err := w.LeaseIn("east", a); err != nil {
		t.Fatalf("the Lease in the member that is away: %v", err)
	}
	w.Servers.Member("east").Proxy().Heal()
	w.noLease("east", a, soon)
	w.left("east")
	w.awaitUnpinned("east")
}

func TestAClusterThatThePolicyNoLongerSelectsLosesItsLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, three)
	for _, m := range all {
		w.editCluster(m, func(c *clusterv1.Cluster) { c.Labels["tier"] = "gold" })
	}
	a, b := w.namespace("a", all...), w.namespace("b", all...)
	p := w.NewPolicy("gold", a)
	p.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
	w.Must(w.Hub.Create(t.Context(), p))
	w.Policy("everybody", b)
	w.startHub()
	epoch := w.Leads("east", a, firstElection, all...)
	w.Leads("east", b, firstElection, all...)
	last := w.follow("east", a)
	w.Servers.Member("east").Proxy().BlackHole() // the leader is away, and the follower is not
	w.editCluster("east", func(c *clusterv1.Cluster) { c.Labels["tier"] = "silver" })
	w.awaitUnfit("east", a, reason.NotSelected, "clusterSelector")
	w.handedOver(a, "west", epoch, last, "west", "south")
	w.Servers.Member("east").Proxy().Heal()
	w.noLease("east", a, soon)
	// The other policy still has its Leases there.
	if _, err := w.LeaseIn("east", b); err != nil {
		t.Errorf("the Lease of the other policy: %v", err)
	}
	j := w.keeps("west", a)
	w.editCluster("south", func(c *clusterv1.Cluster) { c.Labels["tier"] = "silver" })
	w.noLease("south", a, soon)
	j.check()
}

// longSeconds is D of longPolicy.
const longSeconds = 10

// longPolicy is Policy with so long a D that a record that retires is there to be seen for a while.
func (w *world) longPolicy(name string, namespaces ...string) {
	p := w.NewPolicy(name, namespaces...)
	p.Spec.Timings.LeaseDurationMilliseconds = 1000 * longSeconds
	w.Must(w.Hub.Create(w.T.Context(), p))
}

// A record is kept until all that it promised has passed and the seconds since 2025 exceed its
// epoch, so that the next epoch cannot be a lower one.
func TestWhatLeavesForGoodIsRetiredAndItsRecordGoesOnceItsEpochIsOutlived(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, three)
	deleted, unlabelled := w.namespace("deleted", all...), w.namespace("unlabelled", all...)
	dropped, stays := w.namespace("dropped", all...), w.namespace("stays", all...)
	for _, m := range all {
		w.label(m, unlabelled, "led-by", w.Fleet)
	}
	w.Policy("names", deleted)
	w.steadyPolicy("stays", stays)
	w.longPolicy("drop", dropped)
	w.policyBySelector("labels", &metav1.LabelSelector{MatchLabels: map[string]string{"led-by": w.Fleet}})
	w.startHub()
	leave := []string{deleted, unlabelled, dropped}
	epochs := map[string]int64{}
	for _, ns := range append([]string{stays}, leave...) {
		epochs[ns] = w.Leads("east", ns, firstElection, all...)
	}
	j := w.keeps("east", stays)

	w.Servers.Member("west").Proxy().BlackHole() // away while all this happens
	w.deleteNamespace(deleted, "east", "south")
	w.label("east", unlabelled, "led-by", "")
	w.label("south", unlabelled, "led-by", "")
	w.deletePolicy("drop")
	w.awaitPhase(dropped, v1alpha1.StateRetired)
	w.namespaceGone(deleted, "east", "south")
	// A member that cannot be asked keeps its last answer: these two stay managed.
	for _, ns := range []string{deleted, unlabelled} {
		r := harness.Get(w.Record(ns))(w.T)
		if r.Spec.State == v1alpha1.StateRetired {
			t.Errorf("%s is retired although west, which cannot be asked, has it", ns)
		}
	}
	w.deleteNamespace(deleted, "west")
	w.label("west", unlabelled, "led-by", "")
	w.namespaceGone(deleted, "west")
	w.Servers.Member("west").Proxy().Heal()
	for _, ns := range leave {
		w.Eventually(ns+" is retired, or gone already", w.silent(), func() error {
			r, err := w.Record(ns)
			if apierrors.IsNotFound(err) || err == nil && r.Spec.State == v1alpha1.StateRetired {
				return nil
			}
			return fmt.Errorf("%w, %s", unawaited(err), r.Status.Message)
		})
	}
	for _, ns := range []string{unlabelled, dropped} {
		for _, m := range all {
			w.noLease(m, ns, soon)
		}
	}
	for _, ns := range leave {
		w.Eventually("the record of "+ns+" goes", time.Minute, func() error {
			r, err := w.Record(ns)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("%w, %s", unawaited(err), r.Status.Message)
		})
	}
	j.check()
	// What comes back under the old name begins above all that it ever was.
	w.Policy("again", dropped)
	if epoch := w.Leads("east", dropped, firstElection, all...); epoch <= epochs[dropped] {
		t.Errorf("epoch %d, was %d", epoch, epochs[dropped])
	}
}
