package beside

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

// minute is how long nothing may happen.
const minute = time.Minute

// TestTheHubAndClusterAPILeaveEachOtherAlone runs the hub beside the real Cluster API. In a steady minute nothing is
// written but renewals, on the hub and in three members.
func TestTheHubAndClusterAPILeaveEachOtherAlone(t *testing.T) {
	members := []string{"east", "west", "south"}
	w := newQuietWorld(t, members...)
	manager := w.startCoreManager()
	w.provide("west", "50", true)
	w.provide("south", "10", true)
	// The best cluster is one that Cluster API has no sight of.
	w.provide("east", "100", false)
	w.Namespace("a", members...)
	w.policy("a")
	begin := time.Now()
	w.startHub()

	epoch := w.leads("east", "a", 20*time.Second, members...)
	w.awaitConditions("west", "RemoteConnectionProbe=True")
	w.awaitConditions("east", "Available=False", "RemoteConnectionProbe=False")
	w.stillLeads("east", "a", epoch)
	t.Logf("%.1f s: east leads; Cluster API does not see it", time.Since(begin).Seconds())

	w.changeKubeconfig("east", func(s *corev1.Secret) {
		metav1.SetMetaDataLabel(&s.ObjectMeta, clusterv1.ClusterNameLabel, "east")
	})
	manager.Stop() // it tries again each 30 s only, or when it starts
	manager.Start()
	w.awaitConditions("east", "RemoteConnectionProbe=True")
	w.stillLeads("east", "a", epoch)
	t.Logf("%.1f s: Cluster API sees east", time.Since(begin).Seconds())

	w.awaitKnown()
	renewals := harness.Get(harness.Observe(t.Context(), w.Members["east"], &coordinationv1.LeaseList{},
		&coordinationv1.Lease{}, client.InNamespace("a")))(t)
	t.Cleanup(renewals.Stop)
	w.quiet("east", "a", 3*time.Second, 45*time.Second)
	from := time.Now()
	w.Must(process.Pass(t.Context(), minute))
	for _, is := range w.unexpected("east", "a", from) {
		t.Errorf("in what should be silence: %s", is)
	}
	w.stillLeads("east", "a", epoch)
	if left, err := harness.Unbroken(harness.LedIn(renewals.Seen())["a"], time.Now()); err != nil {
		t.Error(err)
	} else {
		t.Logf("the closest renewal came %v before the end of the term", left)
	}
	n := 0
	for _, is := range w.written(from) {
		if is.server == "east" && is.path == lease("a", v1alpha1.DefaultLeaseName) {
			n++
		}
	}
	if nominal := int(minute / renewInterval); n < nominal/2 || n > nominal*11/10 {
		t.Errorf("%d renewals in %v, want about %d", n, minute, nominal)
	}
	w.trace(members...)
	t.Logf("%.1f s: silence for %v", time.Since(begin).Seconds(), minute)

	took := w.deleteCluster("east", "a", epoch)
	t.Logf("the Cluster was gone after %.1f s, west led after %.1f s, nothing was left in east after %.1f s",
		took[0].Seconds(), took[1].Seconds(), took[2].Seconds())
	w.quiet("west", "a", 5*time.Second, 30*time.Second)
}

// awaitKnown waits until no condition of the policy is Unknown. On a busy machine clocks take a while to be measured.
func (w *world) awaitKnown() {
	w.T.Helper()
	w.Eventually("the conditions of the policy are known", time.Minute, func() error {
		var all v1alpha1.LeadershipPolicyList
		must.Do(w.Hub.List(w.T.Context(), &all))
		for _, is := range all.Items[0].Status.Conditions {
			if is.Status == metav1.ConditionUnknown {
				return fmt.Errorf("%+v", is)
			}
		}
		return nil
	})
}

// stillLeads checks that a term goes on.
func (w *world) stillLeads(leader, namespace string, epoch int64) {
	w.T.Helper()
	r := harness.Get(w.Record(namespace))(w.T)
	if s := r.Spec; s.Leader != leader || s.Epoch != epoch || s.State != v1alpha1.StateLeading {
		w.T.Fatalf("want that %s leads in epoch %d; got %s in epoch %d, state %s, reason %s", leader, epoch, s.Leader,
			s.Epoch, s.State, s.Reason)
	}
}

// deleteCluster deletes the Cluster of a leader, and its Secret as the garbage collector
// does, and returns when Cluster API had let it go, when the next cluster led, and when the hub
// had cleaned up behind it.
func (w *world) deleteCluster(name, namespace string, epoch int64) (took [3]time.Duration) {
	w.T.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: name}}
	begin := time.Now()
	w.Must(w.Hub.Delete(w.T.Context(), cluster))
	w.Eventually("the Cluster is gone", 20*time.Second, func() error {
		return gone(w.Hub.Get(w.T.Context(), client.ObjectKeyFromObject(cluster), cluster))
	})
	took[0] = time.Since(begin)
	w.Must(w.Hub.Delete(w.T.Context(), w.kubeconfigSecret(name)))
	if after := w.leads("west", namespace, 30*time.Second, "west", "south"); after <= epoch {
		w.T.Errorf("epoch %d after %d", after, epoch)
	}
	took[1] = time.Since(begin)
	w.Eventually("the Lease in "+name+" is gone", 20*time.Second, func() error {
		_, err := w.LeaseIn(name, namespace)
		return gone(err)
	})
	took[2] = time.Since(begin)
	return took
}

// gone turns the outcome of a read around.
func gone(err error) error {
	switch {
	case err == nil:
		return errors.New("it is still there")
	case apierrors.IsNotFound(err):
		return nil
	default:
		return err
	}
}

// trace checks that the hub has written its annotations on each Cluster, nothing else
// there, and nothing on the kubeconfigs.
func (w *world) trace(members ...string) {
	w.T.Helper()
	for _, name := range members {
		system := &corev1.Namespace{}
		w.Must(w.Members[name].Get(w.T.Context(), types.NamespacedName{Name: metav1.NamespaceSystem}, system))
		cluster := &clusterv1.Cluster{}
		w.Must(w.Hub.Get(w.T.Context(), types.NamespacedName{Namespace: harness.FleetNamespace, Name: name}, cluster))
		if got := cluster.Annotations[v1alpha1.ClusterUIDAnnotation]; got != string(system.UID) {
			w.T.Errorf("Cluster %s: pinned to %q, want %s", name, got, system.UID)
		}
		if !slices.Contains(cluster.Finalizers, clusterv1.ClusterFinalizer) {
			w.T.Errorf("Cluster %s: finalizers %v: Cluster API does not hold it", name, cluster.Finalizers)
		}
		want := fmt.Sprintf(`{"f:metadata":{"f:annotations":{"f:%s":{},"f:%s":{}}}}`,
			v1alpha1.ClusterUIDAnnotation, v1alpha1.PinProofAnnotation)
		if got := writtenBy(harness.HubName, cluster); got != want {
			w.T.Errorf("Cluster %s: the hub has written %s, want %s", name, got, want)
		}
		secret := w.kubeconfigSecret(name)
		w.Must(w.Hub.Get(w.T.Context(), client.ObjectKeyFromObject(secret), secret))
		if got := writtenBy(harness.HubName, secret); got != "" {
			w.T.Errorf("Secret %s: the hub has written %s", secret.Name, got)
		}
		if !metav1.IsControlledBy(secret, cluster) {
			w.T.Errorf("Secret %s is not controlled by its Cluster any more: %v", secret.Name, secret.OwnerReferences)
		}
	}
}

// writtenBy returns the fields of an object that a field manager owns, without the containers themselves.
func writtenBy(manager string, o metav1.Object) (fields string) {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == manager {
			fields += strings.ReplaceAll(entry.FieldsV1.GetRawString(), `".":{},`, "")
		}
	}
	return fields
}
