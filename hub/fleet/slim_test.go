package fleet

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/seal"
)

// largeCluster is a Cluster in which everything is large that an API server stores, with a few things that count.
func largeCluster(change func(*clusterv1.Cluster)) *clusterv1.Cluster {
	const size = 200 << 10
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace:         "prod",
		Name:              "east",
		UID:               "uid",
		ResourceVersion:   "7",
		CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0)),
		Annotations: map[string]string{
			"example.com/large":        strings.Repeat("a", size),
			clusterv1.PausedAnnotation: strings.Repeat("p", size),
		},
		Labels: map[string]string{},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "m", FieldsV1: &metav1.FieldsV1{Raw: []byte(strings.Repeat("m", size))}},
		},
		Finalizers: []string{strings.Repeat("f", size)},
	}}
	c.Spec.ControlPlaneEndpoint.Host = strings.Repeat("h", size)
	c.Spec.Paused = ptr.To(true)
	c.Status.Phase = "Provisioned"
	c.Status.Conditions = []metav1.Condition{
		{Type: clusterv1.ClusterAvailableCondition, Status: metav1.ConditionTrue, Message: strings.Repeat("c", size)},
	}
	if change != nil {
		change(c)
	}
	return c
}

func labelled(c *clusterv1.Cluster) {
	c.Labels = map[string]string{v1alpha1.PriorityLabel: "5", "region": "here"}
}

// The hub reads the same of what is kept, and nobody fills its memory with the rest.
func TestWhatIsKeptOfACluster(t *testing.T) {
	key := seal.Key(strings.Repeat("k", 32))
	for name, test := range map[string]struct {
		change func(*clusterv1.Cluster)
		most   int // bytes
	}{
		"one that takes part": {labelled, 1 << 11},
		"one that the hub has pinned": {func(c *clusterv1.Cluster) {
			labelled(c)
			c.Annotations[v1alpha1.ClusterUIDAnnotation] = "u"
			c.Annotations[v1alpha1.PinProofAnnotation] = seal.Pin(key, "prod", "east", "u")
		}, 1 << 11},
		"one that is drained": {func(c *clusterv1.Cluster) {
			labelled(c)
			c.Annotations[v1alpha1.DrainUntilAnnotation] = "2026-01-31T18:00:00Z"
			c.Annotations[v1alpha1.DrainReasonAnnotation] = strings.Repeat("r", 200<<10)
		}, 3 << 10},
		"one that took part before": {
			change: func(c *clusterv1.Cluster) { c.Annotations[v1alpha1.ClusterUIDAnnotation] = "u" },
			most:   1 << 11,
		},
		"one that moves to another hub": {func(c *clusterv1.Cluster) {
			labelled(c)
			c.Annotations[deleteForMove] = ""
			c.DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(2e9, 0)))
		}, 1 << 11},
	} {
		t.Run(name, func(t *testing.T) {
			full := largeCluster(test.change)
			want := readSpec(full, key)
			got := slimmed(t, full)
			if is := readSpec(got, key); !is.equal(want) {
				t.Errorf("the hub reads %+v of it, and %+v of the whole", is, want)
			}
			if got.Namespace != "prod" || got.ResourceVersion != "7" {
				t.Errorf("it is %s/%s in version %s", got.Namespace, got.Name, got.ResourceVersion)
			}
			if n := sizeOf(t, got); n > test.most {
				t.Errorf("%d bytes are kept: at most %d are allowed", n, test.most)
			}
		})
	}
}

func TestLittleIsKeptOfAnUnownedCluster(t *testing.T) {
	none := slimmed(t, largeCluster(func(c *clusterv1.Cluster) { c.Labels["region"] = "here" }))
	if readSpec(none, nil).keeps() || len(none.Labels) > 0 {
		t.Errorf("kept is %+v", none)
	}
	shows := slimmed(t, largeCluster(func(c *clusterv1.Cluster) {
		c.Labels["region"], c.Labels[v1alpha1.LeaderLabelPrefix+"shop"] = "here", "true"
	}))
	if len(shows.Labels) != 1 || shows.Labels[v1alpha1.LeaderLabelPrefix+"shop"] != "true" {
		t.Errorf("of one that was shown as a leader is kept: %v", shows.Labels)
	}
	if n := sizeOf(t, none); n > 1<<11 {
		t.Errorf("%d bytes are kept", n)
	}
}

// Above a bound the priority alone counts.
func TestClusterWithAMegabyteOfLabelsKeepsItsPriority(t *testing.T) {
	got := slimmed(t, largeCluster(func(c *clusterv1.Cluster) {
		labelled(c)
		for i := range 10000 {
			c.Labels[fmt.Sprint("example.com/", i)] = strings.Repeat("v", 63)
		}
	}))
	if len(got.Labels) != 1 || got.Labels[v1alpha1.PriorityLabel] != "5" {
		t.Errorf("%d labels are kept", len(got.Labels))
	}
}

func slimmed(t *testing.T, full *clusterv1.Cluster) *clusterv1.Cluster {
	t.Helper()
	kept := musttest.Get(SlimCluster(full))(t)
	return kept.(*clusterv1.Cluster)
}

func sizeOf(t *testing.T, o any) int {
	t.Helper()
	text := musttest.Get(json.Marshal(o))(t)
	return len(text)
}
