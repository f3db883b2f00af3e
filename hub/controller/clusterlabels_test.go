package controller

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// A Cluster has a label for each namespace that it leads, where the policy asks for that. Its other labels stay.
func TestLabelsOfAClusterShowWhatItLeads(t *testing.T) {
	const leadsShop = v1alpha1.LeaderLabelPrefix + "shop"
	record := func(change func(*v1alpha1.NamespaceLeaderSpec)) func(*testing.T, *fakeMembers, client.Client) {
		return func(t *testing.T, _ *fakeMembers, api client.Client) {
			changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) { change(&o.Spec) })
		}
	}
	for name, test := range map[string]struct {
		change func(*testing.T, *fakeMembers, client.Client)
		leads  bool
		keeps  bool // the Cluster stays as it is
		again  time.Duration
	}{
		"it leads":      {record(func(*v1alpha1.NamespaceLeaderSpec) {}), true, false, 0},
		"another leads": {record(func(s *v1alpha1.NamespaceLeaderSpec) { s.Leader = "west" }), false, false, 0},
		"its term ends": {
			record(func(s *v1alpha1.NamespaceLeaderSpec) { s.State = v1alpha1.StateEnding }), false, false, 0,
		},
		"the record names another policy": {
			record(func(s *v1alpha1.NamespaceLeaderSpec) { s.Policy = "desks" }), false, false, 0,
		},
		"the policy does not ask for labels": {func(t *testing.T, _ *fakeMembers, api client.Client) {
			changeStored(t, api, policyOf("fleet", "shops", ""), func(p *v1alpha1.LeadershipPolicy) {
				p.Spec.Publish.ClusterLabels = nil
			})
		}, false, false, 0},
		"the Cluster is paused": {func(t *testing.T, _ *fakeMembers, api client.Client) {
			changeStored(t, api, clusterOf("fleet", "east", ""), func(o *clusterv1.Cluster) { o.Spec.Paused = ptr.To(true) })
		}, false, true, 0},
		"another installation serves the fleet": {
			func(_ *testing.T, f *fakeMembers, _ client.Client) { f.other = "platform" }, false, true, notYet,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, f, api := newTestHub(t)
			changeStored(t, api, policyOf("fleet", "shops", ""), func(p *v1alpha1.LeadershipPolicy) {
				p.Spec.Publish.ClusterLabels = ptr.To(true)
			})
			east := clusterOf("fleet", "east", "5")
			east.Labels[v1alpha1.LeaderLabelPrefix+"till"] = "true" // by hand, or from an earlier term
			musttest.Do(t, api.Create(t.Context(), east))
			test.change(t, f, api)
			labels := clusterLabels{c.hub, c.policies}
			c.Client = bounded(api)
			want := map[string]string{v1alpha1.PriorityLabel: "5"}
			if test.keeps {
				want = maps.Clone(east.Labels)
			} else if test.leads {
				want[leadsShop] = "true"
			}
			for range 2 {
				got, err := labels.reconcile(t.Context(), requestOf(client.ObjectKeyFromObject(east)))
				musttest.Do(t, err)
				musttest.Do(t, api.Get(t.Context(), client.ObjectKeyFromObject(east), east))
				if !maps.Equal(east.Labels, want) || got.RequeueAfter != test.again {
					t.Errorf("labels %v, again in %v; want %v, %v", east.Labels, got.RequeueAfter, want, test.again)
				}
				c.Client = failing(bounded(api), "patch") // nothing has changed since
			}
			if gone, err := labels.reconcile(t.Context(), requestOf(shops)); err != nil || gone.RequeueAfter != 0 {
				t.Errorf("a Cluster that is gone: %+v, %v", gone, err)
			}
		})
	}
}

func TestWhatTriggersTheLabelsOfACluster(t *testing.T) {
	c, _, api := newTestHub(t)
	for _, cluster := range []*clusterv1.Cluster{clusterOf("fleet", "east", "5"), clusterOf("fleet2", "west", "5")} {
		musttest.Do(t, api.Create(t.Context(), cluster))
	}
	led, p := recordOf("fleet", "shop"), policyOf("fleet", "shops", "shop")
	led.Spec.Leader = "east"
	labels := clusterLabels{c.hub, c.policies}
	east := []mcreconcile.Request{requestOf(types.NamespacedName{Namespace: "fleet", Name: "east"})}
	for what, test := range map[string]struct{ got, want []mcreconcile.Request }{
		"a record with a leader":    {leaderOf(t.Context(), led), east},
		"a record without a leader": {leaderOf(t.Context(), recordOf("fleet", "shop")), nil},
		"a policy of the fleet":     {labels.clustersOf(t.Context(), p), east},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s triggers %v, want %v", what, test.got, test.want)
		}
	}
	_, err := labels.reconcile(t.Context(), east[0])
	musttest.Do(t, err)
	changeStored(t, api, p, func(p *v1alpha1.LeadershipPolicy) {
		p.Spec.Publish.ClusterLabels, p.Generation = ptr.To(true), 8
	})
	for _, verb := range []string{"get", "list", "patch"} {
		c.Client = failing(api, verb)
		labels.clustersOf(t.Context(), p)
		if _, err := labels.reconcile(t.Context(), east[0]); !errors.Is(err, errRefused) {
			t.Errorf("without an answer to %s: %v", verb, err)
		}
	}
}
