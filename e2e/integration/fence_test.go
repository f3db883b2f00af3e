package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
)

// fence declares that a cluster is off, as kubectl annotate does; empty: no longer.
func (w *world) fence(cluster, uid string) {
	w.editCluster(cluster, func(c *clusterv1.Cluster) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1alpha1.FencedAnnotation, uid)
		if uid == "" {
			delete(c.Annotations, v1alpha1.FencedAnnotation)
		}
	})
}

// No reader acts in east, so it is as if the cluster were off.
func TestAClusterThatIsDeclaredToBeOffIsReplacedBeforeItsTermHasExpired(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, steady)
	uid := w.cluster("east").Annotations[v1alpha1.ClusterUIDAnnotation]
	j := w.keeps("east", a)
	w.fence("east", "another")
	w.awaitEvent("east", reason.InvalidFence, `"another"`, uid)
	j.check()

	last := w.follow("east", a)
	w.Servers.Member("east").Proxy().BlackHole()
	w.fence("east", uid)
	if now := w.Leads("west", a, w.lost(), "west", "south"); now <= epoch {
		t.Errorf("epoch %d after %d", now, epoch)
	}
	r := must.Get(w.Record(a))
	if bound := last().Add(w.term()); !r.Spec.AcquireTime.Time.Before(bound) {
		t.Errorf("granted at %v, after the term had expired at %v", r.Spec.AcquireTime, bound)
	}
	w.awaitHistory(a, reason.Fenced, "")
	w.awaitUnfit("east", a, reason.Fenced, "declared that it is off")

	w.Servers.Member("east").Proxy().Heal()
	w.fence("east", "")
	w.awaitEligible("east", a)
}
