package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/seal"
)

// leavePoll is the pause until run checks again whether the pin is gone.
const leavePoll = time.Second

// pin writes the UID on the Cluster. It returns false until the UID is seen there. A Cluster that does not
// take part is not pinned any more. One without a usable kubeconfig is not pinned yet: the target in use may belong to
// an earlier Cluster of this name.
func (c *connection) pin(ctx context.Context) bool {
	s := c.get()
	switch {
	case !s.spec.takesPart():
		return true
	case s.spec.pin == "" && s.kubeconfig.Reason != "":
		return false
	case s.spec.pin != "" && !c.isUnproved(s):
		return true
	}
	if c.mayWrite(c.key.Fleet) {
		proof := ""
		if key := c.sealKey(c.key.Fleet); len(key) > 0 {
			proof = seal.Pin(key, c.key.Fleet, c.key.Name, s.uid)
		}
		if err := c.annotate(ctx, s.uid, proof); err != nil && ctx.Err() == nil {
			c.logger().Error(err, "UID not pinned yet")
		}
	}
	return s.spec.pin != ""
}

// isUnproved reports whether the pin of a Cluster that takes part has no proof yet, and could get one.
func (c *connection) isUnproved(s state) bool {
	return s.spec.takesPart() && s.pinned() && !s.spec.pinProved && len(c.sealKey(c.key.Fleet)) > 0
}

// annotate sets the pin and its proof on the Cluster, or removes what is empty. It changes the version that the cache
// shows, or fails: another replica may have been faster.
func (c *connection) annotate(ctx context.Context, uid, proof string) error {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	local := c.mgr.GetLocalManager()
	var cached clusterv1.Cluster
	if err := local.GetCache().Get(ctx, client.ObjectKey{Namespace: c.key.Fleet, Name: c.key.Name}, &cached); err != nil {
		return fmt.Errorf("read Cluster %s: %w", c.key, err)
	}
	if cached.UID != c.get().spec.uid {
		return nil
	}
	desired := map[string]any{v1alpha1.ClusterUIDAnnotation: uid, v1alpha1.PinProofAnnotation: proof}
	for annotation, value := range desired {
		if value == "" {
			desired[annotation] = nil
		}
	}
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // texts always marshal
		"resourceVersion": cached.ResourceVersion, "annotations": desired,
	}})
	err := local.GetClient().Patch(ctx, &cached, client.RawPatch(types.MergePatchType, patch))
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("annotate Cluster %s with its UID: %w", c.key, err)
	}
	return nil
}

// leave removes what the fleet has left in the member and on its Cluster, and then the member. It returns
// true when that is done.
func (c *connection) leave(ctx context.Context, s state) (time.Duration, bool) {
	writes := c.mayWrite(c.key.Fleet)
	if !c.cleaned && writes && s.target != nil {
		c.end()            // the manager works there with these rights
		if !s.spec.moved { // else it is the other hub's by now
			c.removeProbe(ctx)
		}
		c.removeRights(ctx, s.target)
		c.cleaned = true
	}
	if !s.spec.gone && s.spec.pin != "" {
		if writes {
			if err := c.annotate(ctx, "", ""); err != nil {
				c.logger().Error(err, "Pin not removed yet")
			}
		}
		return leavePoll, false
	}
	c.end()
	if !c.members.remove(c.member) {
		return 0, false
	}
	c.logger().Info("Member forgotten")
	return forever, true
}

// removeProbe deletes the probe Lease, if the member answers in time. One that remains does no harm.
func (c *connection) removeProbe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	err := c.writer.CoordinationV1().Leases(probeNamespace).Delete(ctx, probeName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		c.logger().Info("Probe Lease left in the member", "error", transport.Shorten(err.Error()))
	}
}
