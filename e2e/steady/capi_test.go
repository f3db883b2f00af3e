package steady

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// TestTheHubAndClusterAPILeaveEachOtherAlone runs the hub beside the real Cluster API. In a steady minute nothing is
// written but renewals of the leader's Lease, of all that the hub and three members let one watch.
func TestTheHubAndClusterAPILeaveEachOtherAlone(t *testing.T) {
	t.Parallel()
	members := []string{"east", "west", "south"}
	w := newWorld(t, members...)
	manager := w.StartCoreManager()
	w.Provide("west", "50", true)
	w.Provide("south", "10", true)
	// The best cluster is one that Cluster API has no sight of.
	w.Provide("east", "100", false)
	w.Namespace("a", members...)
	w.policy("a")
	everything, watched := w.watchAllBut(leases)
	watchedWhatMatters(t, watched)
	begin := time.Now()
	w.startHub()

	epoch := w.leads("east", "a", 20*time.Second, members...)
	w.AwaitConditions("west", "RemoteConnectionProbe=True")
	w.AwaitConditions("east", "Available=False", "RemoteConnectionProbe=False")
	w.stillLeads("east", "a", epoch)
	t.Logf("%.1f s: east leads; Cluster API does not see it", time.Since(begin).Seconds())

	w.ChangeKubeconfig("east", func(s *corev1.Secret) {
		metav1.SetMetaDataLabel(&s.ObjectMeta, clusterv1.ClusterNameLabel, "east")
	})
	manager.Stop() // it tries again each 30 s only, or when it starts
	manager.Start()
	w.AwaitConditions("east", "RemoteConnectionProbe=True")
	w.stillLeads("east", "a", epoch)
	t.Logf("%.1f s: Cluster API sees east", time.Since(begin).Seconds())

	w.awaitKnown()
	everything.quiet(t, time.Now(), 3*time.Second, 45*time.Second)
	renewals, from := w.watchLeases(), time.Now()
	w.silent(everything, minute)
	w.stillLeads("east", "a", epoch)
	renewals.intact(t)
	seen := renewals.after(0)
	onlyKnownLeases(t, seen, map[string]string{"a": "east"})
	renewed(t, from, of(seen, "east", "a"))
	w.canaries(everything)
	w.trace(members...)
	t.Logf("%.1f s: silence for %v", time.Since(begin).Seconds(), minute)

	took := w.deleteCluster("east", "a", epoch)
	t.Logf("the Cluster was gone after %.1f s, west led after %.1f s, nothing was left in east after %.1f s",
		took[0].Seconds(), took[1].Seconds(), took[2].Seconds())
	everything.quiet(t, time.Now(), 5*time.Second, 30*time.Second)
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
	w.Must(w.Hub.Delete(w.T.Context(), w.KubeconfigSecret(name)))
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
		want := []string{"metadata/annotations/" + v1alpha1.ClusterUIDAnnotation,
			"metadata/annotations/" + v1alpha1.PinProofAnnotation}
		if got := w.writtenBy(harness.HubName, cluster); !slices.Equal(got, want) {
			w.T.Errorf("Cluster %s: the hub has written %q, want %q", name, got, want)
		}
		secret := w.KubeconfigSecret(name)
		w.Must(w.Hub.Get(w.T.Context(), client.ObjectKeyFromObject(secret), secret))
		if got := w.writtenBy(harness.HubName, secret); len(got) > 0 {
			w.T.Errorf("Secret %s: the hub has written %q", secret.Name, got)
		}
		if !metav1.IsControlledBy(secret, cluster) {
			w.T.Errorf("Secret %s is not controlled by its Cluster any more: %v", secret.Name, secret.OwnerReferences)
		}
	}
}

// writtenBy lists the fields of an object that a field manager owns.
func (w *world) writtenBy(manager string, o metav1.Object) (fields []string) {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == manager {
			tree := map[string]any{}
			w.Must(json.Unmarshal(entry.FieldsV1.GetRawBytes(), &tree))
			fields = append(fields, leaves(tree, "")...)
		}
	}
	slices.Sort(fields)
	return fields
}

// leaves lists the paths of a tree of managed fields, without the entries "." for the
// containers themselves.
func leaves(tree map[string]any, path string) (paths []string) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if key == "." {
			continue
		}
		below := path + strings.TrimPrefix(key, "f:")
		if children, ok := tree[key].(map[string]any); ok && len(children) > 0 {
			paths = append(paths, leaves(children, below+"/")...)
			continue
		}
		paths = append(paths, below)
	}
	return paths
}
