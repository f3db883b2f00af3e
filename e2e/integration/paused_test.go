package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
)

// pause sets or clears what clusterctl move sets.
func (w *world) pause(cluster string, on bool) {
	w.editCluster(cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(on) })
}

func TestAPausedClusterKeepsWhatItLeadsAndIsNeverNewlyChosen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, three)
	w.Timings = brief
	a := w.namespace("a", all...)
	w.Policy("p", a)
	w.pause("west", true)
	w.startHub()
	w.Leads("east", a, firstElection, all...)
	j := w.keeps("east", a)
	w.awaitUnfit("west", a, reason.Paused, "keeps what it has", "never newly chosen")
	w.pause("east", true)
	w.awaitUnfit("east", a, reason.Paused)
	w.setPriority("west", "1000") // nor does an edit choose it
	j.outlive()
	j.check()

	// The other way to pause a Cluster.
	w.editCluster("south", func(c *clusterv1.Cluster) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterv1.PausedAnnotation, "")
	})
	w.awaitUnfit("south", a, reason.Paused)
	w.editCluster("south", func(c *clusterv1.Cluster) { delete(c.Annotations, clusterv1.PausedAnnotation) })
	w.awaitEligible("south", a)

	// The loss of the leader passes over the paused cluster, good as it is.
	w.pause("east", false)
	w.awaitEligible("east", a)
	w.Servers.Member("east").Proxy().BlackHole()
	w.Leads("south", a, w.lost(), "west", "south")
	// Unpausing moves nothing; an edit of a cluster that may lead does.
	w.pause("west", false)
	w.awaitEligible("west", a)
	w.keeps("south", a).check()
	w.setPriority("west", "2000")
	w.Leads("west", a, w.ordered(), "west", "south")
}
