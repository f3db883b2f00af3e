package fleet_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
	e2e "github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
)

// silentServer completes TLS with whoever comes, and never says anything. It returns a kubeconfig
// for it.
func silentServer(t *testing.T) []byte {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(s.Close)
	return musttest.Get(e2e.TokenKubeconfig(s.URL, s.Certificate(), "token"))(t)
}

// badNeighbors registers one member of each kind that cannot be connected.
func badNeighbors(t *testing.T, namespace string) map[fleet.Key]reason.Reason {
	t.Helper()
	blackHole := musttest.Get(net.Listen("tcp", "127.0.0.1:0"))(t) // never accepts
	t.Cleanup(func() { _ = blackHole.Close() })
	west := proxied(t, servers(t).Member("west"))
	address := servers(t).Member("west").Proxy().Addr()
	kinds := map[fleet.Key]reason.Reason{}
	for name, bad := range map[string]struct {
		kubeconfig []byte
		want       reason.Reason
	}{
		"none":      {nil, reason.NoKubeconfig},
		"broken":    {[]byte("{"), reason.InvalidKubeconfig},
		"dead":      {replaced(west, address, "127.0.0.1:1"), reason.Unreachable},
		"deaf":      {replaced(west, address, blackHole.Addr().String()), reason.Unreachable},
		"silent":    {silentServer(t), reason.Unreachable},
		"forbidden": {account(t, servers(t).Member("west"), "nobody", nil), reason.Forbidden},
		"unwatched": {account(t, servers(t).Member("west"), "reader", []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		}), reason.Forbidden},
	} {
		k := fleet.Key{Fleet: namespace, Name: name}
		registerAs(t, k, bad.kubeconfig)
		kinds[k] = bad.want
	}
	return kinds
}

func TestBadMembersAreShownAndDelayNobody(t *testing.T) {
	makeNamespace(t, "bad")
	bad := badNeighbors(t, "bad")
	h := startHub(t, "bad", true)
	<-h.Synced()
	if got := len(h.Members("bad")); got != len(bad) {
		t.Errorf("%d members are known when synced, want %d", got, len(bad))
	}
	start := time.Now()
	east := register(t, servers(t).Member("east"), "bad", "100")
	h.awaitMember(t, east, "east is healthy beside them", 5*time.Second, healthy)
	t.Logf("east is healthy after %v", time.Since(start))

	for k, want := range bad {
		h.awaitMember(t, k, k.Name+" is shown as it is", 20*time.Second,
			hasProblem(want))
		m, _ := h.Member(k)
		t.Logf("%s: %s: %s", k.Name, m.Problem.Reason, m.Problem.Message)
		if m.Connected || m.Cluster() != nil || m.Health(thresholds).Answering {
			t.Errorf("%s: connected %v, health %+v", k.Name, m.Connected, m.Health(thresholds))
		}
	}
	if m, _ := h.Member(east); !healthy(m) {
		t.Errorf("east suffers from them: %+v", m.Health(thresholds))
	}
	// Two of them are mended, one after the other: both lead to west.
	mended := fleet.Key{Fleet: "bad", Name: "unwatched"}
	account(t, servers(t).Member("west"), "reader", enough) // the same token, with more rights
	h.awaitMember(t, mended, "it may be watched", 10*time.Second, healthy)
	musttest.Do(t, h.client.Delete(t.Context(), getCluster(t, mended)))
	h.awaitMember(t, mended, "it is gone", retryPause, hasProblem(reason.Gone))
	h.Forget(mended)
	h.awaitForgotten(t, mended)
	mended.Name = "silent"
	setKubeconfig(t, mended, proxied(t, servers(t).Member("west")))
	t.Logf("mended after %v", h.awaitMember(t, mended, "the silent one is mended", rotationBound, connected))

	start = time.Now()
	h.stop()
	if took := time.Since(start); took > 4500*time.Millisecond { // those who wait for an answer do so for 5 s
		t.Errorf("stopping took %v", took)
	}
}

func TestWrongAndDuplicateClusters(t *testing.T) {
	makeNamespace(t, "identity")
	wrong := fleet.Key{Fleet: "identity", Name: "wrong"}
	registerAs(t, wrong, proxied(t, servers(t).Member("west")))
	edit(t, wrong, func(c *clusterv1.Cluster) {
		c.Annotations = map[string]string{"leasecast.dev/cluster-uid": "the-uid-of-a-cluster-that-was"}
	})
	removeProbe(t, servers(t).Member("west"))
	h := startHub(t, "identity", true)
	h.awaitMember(t, wrong, "another UID than the pinned one", retryPause,
		hasProblem(reason.WrongCluster))
	if m, _ := h.Member(wrong); m.Connected || m.Pinned {
		t.Errorf("connected %v, pinned %v", m.Connected, m.Pinned)
	}
	if probeOf(t, servers(t).Member("west")) {
		t.Error("the hub wrote into the wrong cluster")
	}

	first := register(t, servers(t).Member("east"), "identity", "100")
	h.awaitMember(t, first, "the first Cluster of east", retryPause, healthy)
	second := fleet.Key{Fleet: "identity", Name: "also-east"}
	registerAs(t, second, proxied(t, servers(t).Member("east")))
	h.awaitMember(t, second, "the second Cluster of east", retryPause,
		hasProblem(reason.DuplicateCluster))
	pin := getCluster(t, second).Annotations["leasecast.dev/cluster-uid"]
	if m, _ := h.Member(second); m.Connected || m.Pinned || pin != "" {
		t.Errorf("connected %v, pinned %v", m.Connected, m.Pinned)
	}
	if m, _ := h.Member(first); !healthy(m) || m.Problem.Reason != "" {
		t.Errorf("the first one suffers: %v, %+v", m.Problem, m.Health(thresholds))
	}

	// The operator says that the rebuilt cluster is right.
	edit(t, wrong, func(c *clusterv1.Cluster) { delete(c.Annotations, "leasecast.dev/cluster-uid") })
	h.awaitMember(t, wrong, "the rebuilt cluster", retryPause, healthy)
	// And that of the two only the second one is meant.
	edit(t, first, func(c *clusterv1.Cluster) { delete(c.Labels, "leasecast.dev/priority") })
	h.awaitMember(t, first, "it takes no part", retryPause,
		takesNoPart)
	h.Forget(first)
	h.awaitMember(t, second, "the second Cluster takes its place", retryPause, healthy)
}

// Behind an address there can be another cluster at any time: restored, rebuilt, or the load balancer
// of somebody else.
func TestAnotherClusterBehindTheSameAddressIsNotWrittenTo(t *testing.T) {
	for space, answer := range map[string]http.HandlerFunc{
		"replaced-refuses-lists": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"replaced-never-lists":   func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(space, func(t *testing.T) { replaceCluster(t, space, answer) })
	}
}

// replaceCluster puts another cluster behind the address of one whose lists are answered like this.
func replaceCluster(t *testing.T, space string, lists http.HandlerFunc) {
	var uid atomic.Value
	uid.Store("the-first")
	var strayed atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v1/namespaces/kube-system":
			ns := &corev1.Namespace{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
				ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(uid.Load().(string))},
			}
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			_ = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(ns, w) // the client may have gone
		case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
			w.WriteHeader(http.StatusForbidden)
		case r.Method == http.MethodDelete && uid.Load() == "the-second":
			strayed.Add(1)
		default:
			lists(w, r)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	k := fleet.Key{Fleet: space, Name: "fake"}
	registerAs(t, k, musttest.Get(e2e.TokenKubeconfig(server.URL, server.Certificate(), "token"))(t))
	h := startHub(t, space, true)
	h.awaitMember(t, k, "it is pinned", retryPause,
		func(m fleet.Member) bool { return m.Pinned && m.UID == "the-first" })

	uid.Store("the-second")
	took := h.awaitMember(t, k, "the other cluster is noticed", 5*time.Second, func(m fleet.Member) bool {
		return m.Problem.Reason == reason.WrongCluster && m.UID == "the-first"
	})
	t.Logf("after %v", took)
	m, _ := h.Member(k)
	err := m.Writer().CoordinationV1().Leases("default").Delete(t.Context(), "x", metav1.DeleteOptions{})
	if err == nil || strayed.Load() != 0 {
		t.Errorf("a write got through: %v", err)
	}
	uid.Store("the-first")
	h.awaitMember(t, k, "the first is back", 5*time.Second,
		func(m fleet.Member) bool { return m.Problem.Reason != reason.WrongCluster })
	uid.Store("the-second")
	h.awaitMember(t, k, "the other cluster is noticed again", 5*time.Second,
		hasProblem(reason.WrongCluster))
	edit(t, k, func(c *clusterv1.Cluster) { delete(c.Annotations, "leasecast.dev/cluster-uid") })
	h.awaitMember(t, k, "the operator says that it is right", 5*time.Second,
		func(m fleet.Member) bool { return m.Pinned && m.UID == "the-second" })
}
