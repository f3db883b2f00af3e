package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/fleet/secrets"
)

// The Secrets of Clusters that are gone may stay.
func TestManyClustersLeaveNoRoomUntilTheyGo(t *testing.T) {
	h, c := startHub(t, "greedy", true), hubClient(t)
	each := func(do func(name string) error) {
		var group errgroup.Group
		group.SetLimit(8)
		for n := range secrets.MaxKubeconfigs {
			group.Go(func() error { return do(fmt.Sprint("greedy-", n)) })
		}
		must(t, group.Wait())
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "greedy", Name: name, Labels: map[string]string{v1alpha1.PriorityLabel: "1"}}
	}
	each(func(name string) error {
		endpoint := clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443}
		return errors.Join(c.Create(t.Context(), &clusterv1.Cluster{
			ObjectMeta: meta(name), Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: endpoint},
		}), c.Create(t.Context(), &corev1.Secret{
			ObjectMeta: meta(name + secrets.KubeconfigSuffix),
			Data:       map[string][]byte{secrets.KubeconfigKey: make([]byte, secrets.MaxKubeconfig)},
		}))
	})
	await(t, "all are read", retryPause, func() string {
		members := h.Members("greedy")
		if len(members) < secrets.MaxKubeconfigs {
			return fmt.Sprintf("%d are known", len(members))
		}
		for _, m := range members {
			if m.Problem.Reason != reason.InvalidKubeconfig {
				return fmt.Sprintf("%s: %v", m.Name, m.Problem)
			}
		}
		return ""
	})
	late := fleet.Key{Fleet: "greedy", Name: "late"}
	registerAs(t, late, proxied(t, servers(t).Member("west")))
	h.awaitMember(t, late, "it came last, and is shown why", retryPause, func(m fleet.Member) bool {
		return m.Problem.Reason == reason.InvalidKubeconfig && strings.Contains(m.Problem.Message, "others came first")
	})
	each(func(name string) error { return c.Delete(t.Context(), &clusterv1.Cluster{ObjectMeta: meta(name)}) })
	h.awaitMember(t, late, "there is room again", retryPause, connected)
}
