package leadership

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
)

func TestAPausedClusterKeepsWhatItLeadsAndIsNeverNewlyChosen(t *testing.T) {
	pauses := map[string]func(c *clusterv1.Cluster, on bool){
		"by its spec, as clusterctl move does": func(c *clusterv1.Cluster, on bool) { c.Spec.Paused = ptr.To(on) },
		"by annotation": func(c *clusterv1.Cluster, on bool) {
			if delete(c.Annotations, clusterv1.PausedAnnotation); on {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterv1.PausedAnnotation, "")
			}
		},
	}
	for name, pause := range pauses {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, three)
			set := func(cluster string, on bool) {
				w.editCluster(cluster, func(c *clusterv1.Cluster) { pause(c, on) })
			}
			a := w.namespace("a", all...)
			w.policy("p", a)
			w.released()
			set("west", true)
			w.startHub()
			w.leads("east", a, 15*time.Second, all...)
			j := w.keeps("east", a)
			w.awaitUnfit("west", a, reason.Paused, "keeps what it has", "never newly chosen")
			set("east", true)
			w.awaitUnfit("east", a, reason.Paused)
			w.labelPriority("west", "1000") // nor does an edit choose it
			j.grow(4)                       // longer than D
			j.check()
			// The loss of the leader passes over the paused cluster, good as it is.
			set("east", false)
			w.awaitEligible("east", a)
			shared.Member("east").Proxy().BlackHole()
			w.leads("south", a, soon, "west", "south")
			// Unpausing moves nothing; an edit of a cluster that may lead does.
			set("west", false)
			w.awaitEligible("west", a)
			w.keeps("south", a).check()
			w.labelPriority("west", "2000")
			w.leads("west", a, soon, "west", "south")
		})
	}
}
