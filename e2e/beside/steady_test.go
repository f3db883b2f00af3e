package beside

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
	"github.com/leasecast/leasecast/hub"
)

// TestTheHubAndClusterAPILeaveEachOtherAlone runs the hub, with the rights of an installed one, beside the real Cluster
// API. In a steady minute nothing is written but renewals, on the hub and in three members, by their audit logs.
func TestTheHubAndClusterAPILeaveEachOtherAlone(t *testing.T) {
	audited := fleet.NewWith(t, fleet.Options{Members: all, Audit: true})
	w := &world{harness.NewWorld(t, audited, harness.FleetNamespace, harness.HubNamespace,
		// It renews as often as the fast profile, but is patient: a busy machine must not break the silence.
		harness.PolicyTimings(10*time.Second, time.Second, 3*time.Second, 250*time.Millisecond))}
	w.Must(harness.Apply(t.Context(), audited.Hub(), "rbac", "fleet"))
	w.startCoreManager()
	for i, name := range all {
		w.provide(name, fmt.Sprint(100-i))
	}
	w.Namespace("a", all...)
	p := w.NewPolicy("steady", "a")
	p.Spec.Health.UnreachableAfterMilliseconds = 10_000
	w.Must(w.Hub.Create(t.Context(), p))
	config := harness.Get(audited.Hub().ServiceAccountConfig(t.Context(), w.System, harness.HubName, nil))(t)
	config.UserAgent = harness.HubName
	w.StartHub(config)
	epoch := w.Leads("east", "a", soon, all...)
	for _, name := range all {
		w.awaitConditions(name, "RemoteConnectionProbe=True")
	}
	w.awaitKnown()
	renewals := harness.Get(harness.Observe(t.Context(), w.Members["east"], &coordinationv1.LeaseList{},
		&coordinationv1.Lease{}, client.InNamespace("a")))(t)
	t.Cleanup(renewals.Stop)
	w.awaitQuiet(3 * time.Second)
	from := time.Now()
	w.Must(process.Pass(t.Context(), time.Minute))
	for _, is := range w.unexpected(from) {
		t.Errorf("in what should be silence: %s", is)
	}
	if now := harness.Get(w.Leading("east", "a", all...))(t); now != epoch {
		t.Errorf("epoch %d after %d", now, epoch)
	}
	if left, err := harness.Unbroken(harness.LedIn(renewals.Seen())["a"], time.Now()); err != nil {
		t.Error(err)
	} else {
		t.Logf("the closest renewal came %v before the end of the term", left)
	}
	w.trace(all...)
}

// unexpected returns the writes since an instant other than renewals of the leader's Lease, of the hub's election, and
// the probes of the members' write path. Writes of the API servers themselves, and those that store nothing, do not
// count.
func (w *world) unexpected(since time.Time) (all []fleet.Request) {
	known := []string{
		leasePath(harness.HubNamespace, hub.ElectionName), leasePath("a", v1alpha1.DefaultLeaseName),
		leasePath(metav1.NamespaceSystem, "leasecast-hub-probe"),
	}
	for _, s := range w.Servers.Servers() {
		for _, r := range harness.Get(s.Requests())(w.T) {
			path, query, _ := strings.Cut(r.URI, "?")
			storesNothing := strings.Contains(query, "dryRun=All") || strings.HasSuffix(path, "reviews")
			isFollower := path == known[1] && s.Name() != "east"
			if r.Writes() && r.Received.After(since) && r.User != "system:apiserver" && !storesNothing &&
				(isFollower || !slices.Contains(known, path)) {
				all = append(all, r)
			}
		}
	}
	return all
}

func leasePath(namespace, name string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/" + name
}

// awaitQuiet waits until nothing unexpected has been written for a while.
func (w *world) awaitQuiet(span time.Duration) {
	w.T.Helper()
	since := time.Now()
	w.Eventually("quiet for "+span.String(), soon, func() error {
		if all := w.unexpected(since); len(all) > 0 {
			since = all[len(all)-1].Received
			must.Fail("%v", all)
		}
		return must.ErrorIf(time.Since(since) < span, "since %v", since)
	})
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
