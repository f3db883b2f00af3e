package integration

import (
	"testing"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
)

// awaitUnpinned waits until a Cluster carries nothing of the hub's any more.
func (w *world) awaitUnpinned(cluster string) {
	w.Eventually("Cluster "+cluster+" is not pinned", soon, func() error {
		uid, pinned := w.cluster(cluster).Annotations[v1alpha1.ClusterUIDAnnotation]
		return must.ErrorIf(pinned, "to %s", uid)
	})
}

func TestAClusterThatLeavesWhileItIsAwayIsClearedUpWhenItReturns(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, brief)
	last := w.follow("east", a)
	w.Servers.Member("east").Proxy().BlackHole()
	w.removePriority("east")
	w.handedOver(a, "west", epoch, last, "west", "south")
	w.StopHub()
	w.startHub()
	if _, err := w.LeaseIn("east", a); err != nil {
		t.Fatalf("the Lease in the member that is away: %v", err)
	}
	w.Servers.Member("east").Proxy().Heal()
	w.noLease("east", a, soon)
	w.left("east")
	w.awaitUnpinned("east")
}
