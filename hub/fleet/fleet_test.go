package fleet_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/seal"
)

func TestMembersAreConnectedPinnedAndProbed(t *testing.T) {
	h := startHub(t, "connect", true)
	east := register(t, servers(t).Member("east"), "connect", "100")
	well := func(m fleet.Member) bool { return healthy(m) && m.Problem == (fleet.Problem{}) }
	took := h.awaitMember(t, east, "east is healthy", retryPause, well)
	t.Logf("healthy after %v", took)

	m, _ := h.Member(east)
	if m.Priority != 100 || m.PriorityReason != "" || m.Identity() != "east.connect" {
		t.Errorf("%+v", m)
	}
	kubeSystem := musttest.Get(
		m.Writer().CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{}),
	)(t)
	if m.UID != string(kubeSystem.UID) || getCluster(t, east).Annotations[v1alpha1.ClusterUIDAnnotation] != m.UID {
		t.Errorf("UID %q is not that of kube-system, %q, or not pinned", m.UID, kubeSystem.UID)
	}
	probe := musttest.Get(m.Writer().CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(),
		"leasecast-hub-probe", metav1.GetOptions{}))(t)
	if _, managed := probe.Labels[v1alpha1.ManagedLabel]; managed || *probe.Spec.HolderIdentity != "hub-of-"+t.Name() {
		t.Errorf("probe Lease: labels %v, holder %v", probe.Labels, *probe.Spec.HolderIdentity)
	}
	awaitEngaged(t, &h.engaged, east)
	if cl, err := h.Get(t.Context(), east.ClusterName()); err != nil || cl != m.Cluster() {
		t.Errorf("Get: %v, %v", cl, err)
	}
	if got := h.Members("connect"); len(got) != 1 || got[0].Key != east {
		t.Errorf("Members: %v", got)
	}
	if got := h.Members("elsewhere"); len(got) != 0 {
		t.Errorf("Members of another fleet: %v", got)
	}
}

// Otherwise the owner of another Cluster could take the UID once the hub is started again while the member is away.
func TestAPinGetsItsProofThoughTheFirstWritesFail(t *testing.T) {
	h := startHub(t, "proved", true)
	east := register(t, servers(t).Member("east"), "proved", "100")
	h.awaitMember(t, east, "it is pinned without a key", retryPause, connected)
	h.refused.Store(2) // the Secret is seen twice: its metadata, and then its key
	key := bytes.Repeat([]byte("k"), 32)
	musttest.Do(t, h.client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "proved", Name: seal.SecretName}, Data: map[string][]byte{"key": key},
	}))
	m, _ := h.Member(east)
	await(t, "the pin is proved", 5*time.Second, func() error {
		proof := getCluster(t, east).Annotations[v1alpha1.PinProofAnnotation]
		proved := seal.IsPin(key, "proved", "east", m.UID, proof) && h.refused.Load() < 0
		return must.ErrorIf(!proved, "the proof is %s", proof)
	})
}

func TestHubIsReadyOnceItsFleetIsGranted(t *testing.T) {
	user := musttest.Get(servers(t).Hub().UserConfig("hub"))(t)
	h, mgr := newHubAs(t, user, "granted", true, manager.Options{})
	h.start(t, mgr)
	awaitReady := func(want string) {
		t.Helper()
		await(t, want, retryPause, func() error {
			got := fmt.Sprint(h.Ready())
			return must.ErrorIf(!strings.Contains(got, want), "%s", got)
		})
	}
	awaitReady("Secrets in namespace granted")
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hub"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "hub"}},
	}
	bindings := direct(t, servers(t).Hub()).RbacV1().RoleBindings("granted")
	_ = musttest.Get(bindings.Create(t.Context(), binding, metav1.CreateOptions{}))(t)
	awaitReady("<nil>")
}

func TestCachesHoldNamespacesAndManagedLeasesOnly(t *testing.T) {
	h := startHub(t, "caches", true)
	east := register(t, servers(t).Member("east"), "caches", "100")
	h.awaitMember(t, east, "east is connected", retryPause, connected)
	m, _ := h.Member(east)
	leases := m.Writer().CoordinationV1().Leases(metav1.NamespaceDefault)
	for name, labels := range map[string]map[string]string{
		"managed": {v1alpha1.ManagedLabel: "true"},
		"foreign": nil,
	} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		_ = musttest.Get(leases.Create(t.Context(), lease, metav1.CreateOptions{}))(t)
		t.Cleanup(func() {
			if err := leases.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	cached := m.Cluster().GetClient()
	var seen coordinationv1.LeaseList
	await(t, "the managed Lease is cached", retryPause, func() error {
		must.Do(cached.List(t.Context(), &seen))
		return must.ErrorIf(len(seen.Items) == 0, "no Lease")
	})
	if len(seen.Items) != 1 || seen.Items[0].Name != "managed" || seen.Items[0].ManagedFields != nil {
		t.Errorf("cached: %v", seen.Items)
	}
	var namespaces corev1.NamespaceList
	if err := cached.List(t.Context(), &namespaces); err != nil || len(namespaces.Items) < 4 {
		t.Errorf("namespaces: %v, %v", namespaces.Items, err)
	}
	if err := cached.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "x"}, &corev1.ConfigMap{}); err == nil {
		t.Error("a ConfigMap could be read, so an informer was started")
	}
	live := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: "default", Name: "foreign"}
	if err := m.Cluster().GetAPIReader().Get(t.Context(), key, live); err != nil {
		t.Errorf("a live read does not see the foreign Lease: %v", err)
	}
}

// Other faults of the way to a member, and of its API server: make chaos.
func TestLostMemberIsNoticedAndComesBack(t *testing.T) {
	server := servers(t).Member("east")
	h := startHub(t, "lost-member", true)
	t.Cleanup(server.Proxy().Heal)
	east := register(t, server, "lost-member", "100")
	west := register(t, servers(t).Member("west"), "lost-member", "50")
	h.awaitMember(t, east, "east is healthy", retryPause, healthy)
	h.awaitMember(t, west, "west is healthy", retryPause, healthy)

	server.Proxy().BlackHole()
	took := h.awaitMember(t, east, "east is unhealthy", 10*time.Second, func(m fleet.Member) bool {
		return m.Health(thresholds).State == health.Unhealthy
	})
	t.Logf("unhealthy after %v, with a threshold of %v", took, thresholds.UnreachableAfter)
	m, _ := h.Member(east)
	if !m.Connected || m.Problem.Reason != reason.Unreachable {
		t.Errorf("connected %v, problem %v", m.Connected, m.Problem)
	}
	h.awaitMember(t, east, "the watches are lost too", retryPause, func(m fleet.Member) bool {
		v := m.Health(thresholds)
		return v.State == health.Unhealthy && time.Since(v.Since.Wall) > 4*time.Second
	})
	var namespaces corev1.NamespaceList
	if err := m.Cluster().GetClient().List(t.Context(), &namespaces); err != nil || len(namespaces.Items) < 4 {
		t.Errorf("the caches lost their last answer: %v, %v", namespaces.Items, err)
	}
	if w, _ := h.Member(west); w.Health(thresholds).State != health.Healthy {
		t.Errorf("west suffers from it: %+v", w.Health(thresholds))
	}

	server.Proxy().Heal()
	took = h.awaitMember(t, east, "east answers", 5*time.Second, func(m fleet.Member) bool {
		return m.Health(thresholds).Answering
	})
	t.Logf("answers %v after the return; caches follow %v later", took, awaitCached(t, h, east, server))
	h.awaitMember(t, east, "east is healthy again", 10*time.Second, healthy)
	if begun, ended := h.engaged.count(east); begun != 1 || ended != 0 {
		t.Errorf("engaged %d times, ended %d times", begun, ended)
	}
}
