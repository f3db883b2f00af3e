package fleet_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/fleet/secrets"
)

// tooMany is how many kubeconfigs are more than a fleet may have.
const tooMany = secrets.MaxKubeconfigs + 48

// each does something tooMany times, a few at once.
func each(t *testing.T, do func(n int) error) {
	t.Helper()
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for n := worker; n < tooMany; n += 8 {
				if err := do(n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// greedy is the name of one of the tenant's Clusters. It is the first in every list.
func greedy(n int) string { return fmt.Sprintf("a%d", n) }

// writeGreedily writes Secrets for the tenant's Clusters.
func writeGreedily(t *testing.T, namespace string) {
	t.Helper()
	c := hubClient(t)
	each(t, func(n int) error {
		return c.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: greedy(n) + secrets.KubeconfigSuffix},
			Data:       map[string][]byte{secrets.KubeconfigKey: make([]byte, secrets.MaxKubeconfig)},
		})
	})
}

// padded is a kubeconfig with as many bytes as are read.
func padded(kubeconfig []byte) []byte {
	return append(append(kubeconfig, "\n#"...), bytes.Repeat([]byte("x"), secrets.MaxKubeconfig-len(kubeconfig)-2)...)
}

func TestManyClustersStarveNoneThatWasSeenBefore(t *testing.T) {
	makeNamespace(t, "greedy")
	east := fleet.Key{Fleet: "greedy", Name: "east"}
	registerAs(t, east, padded(proxied(t, servers(t).Member("east"))))
	h := startHub(t, "greedy", true)
	h.awaitMember(t, east, "it is seen first", retryPause, connected)
	c := hubClient(t)
	each(t, func(n int) error {
		return c.Create(t.Context(), &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "greedy",
				Name:      greedy(n),
				Labels:    map[string]string{v1alpha1.PriorityLabel: "1"},
			},
			Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443}},
		})
	})
	writeGreedily(t, "greedy")
	refused := func(m fleet.Member) bool {
		return m.Problem.Reason == reason.InvalidKubeconfig && strings.Contains(m.Problem.Message, "others came first")
	}
	await(t, "as many are read as are kept", retryPause, func() string {
		if !slices.ContainsFunc(h.Members("greedy"), refused) {
			return "none is refused"
		}
		return ""
	})

	late := fleet.Key{Fleet: "greedy", Name: "late"}
	registerAs(t, late, padded(proxied(t, servers(t).Member("west"))))
	h.awaitMember(t, late, "it came last, and is shown why", retryPause, refused)
	h.awaitMember(t, east, "it was seen first", retryPause, connected)
	each(t, func(n int) error {
		return c.Delete(t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "greedy", Name: greedy(n)}})
	})
	h.awaitMember(t, late, "there is room again, although the Secrets of the others stay", retryPause, connected)
}
