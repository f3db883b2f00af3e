package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/seal"
)

const (
	// leavePoll is how often run looks whether the pin is gone.
	leavePoll = time.Second
	// leaveMost bounds the pause between two tries to take the account out of the member.
	leaveMost = 30 * time.Second
)

// pin writes the UID on the Cluster. It returns false until the UID is seen there. A Cluster that does not
// take part is not pinned any more.
func (c *connection) pin(ctx context.Context) bool {
	s := c.get()
	key := c.p.sealKey(c.key.Fleet)
	switch {
	case !s.spec.takesPart():
		return true
	case s.spec.pin == "":
	case s.spec.pinProved, !s.pinned(), len(key) == 0:
		return true
	}
	if c.p.mayWrite(c.key.Fleet) {
		proof := ""
		if len(key) > 0 {
			proof = seal.Pin(key, c.key.Fleet, c.key.Name, s.uid)
		}
		if err := c.annotate(ctx, s.uid, proof); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "UID not pinned yet", "cluster", klog.KRef(c.key.Fleet, c.key.Name))
		}
	}
	return s.spec.pin != ""
}

// annotate sets the pin and its proof on the Cluster, or removes what is empty. It changes the version that the cache
// shows, or fails: another replica may have been faster.
func (c *connection) annotate(ctx context.Context, uid, proof string) error {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	local := c.p.mgr.GetLocalManager()
	var cached clusterv1.Cluster
	if err := local.GetCache().Get(ctx, client.ObjectKey{Namespace: c.key.Fleet, Name: c.key.Name}, &cached); err != nil {
		return fmt.Errorf("read Cluster %s: %w", c.key, err)
	}
	if cached.UID != c.get().spec.uid {
		return nil
	}
	changes := map[string]any{} // the cache holds a part of the annotations, so that a difference would remove others
	for annotation, value := range map[string]string{v1alpha1.ClusterUIDAnnotation: uid, v1alpha1.PinProofAnnotation: proof} {
		switch is, ok := cached.Annotations[annotation]; {
		case value == "" && ok:
			changes[annotation] = nil
		case is != value:
			changes[annotation] = value
		}
	}
	if len(changes) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": cached.ResourceVersion, "annotations": changes}})
	if err != nil {
		return fmt.Errorf("annotate Cluster %s with its UID: %w", c.key, err)
	}
	err = local.GetClient().Patch(ctx, &cached, client.RawPatch(types.MergePatchType, patch))
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("annotate Cluster %s with its UID: %w", c.key, err)
	}
	return nil
}

// leave removes what the fleet has left in the member and on its Cluster, and then the member. It returns
// true when that is done.
func (c *connection) leave(ctx context.Context, s state) (time.Duration, bool) {
	writes := c.p.mayWrite(c.key.Fleet)
	if !c.cleaned && writes && s.target != nil {
		// The manager works there by credentials that go with the account.
		c.end()
		if !s.spec.moved && c.leftAt == nil { // else it is the other hub's by now
			c.removeProbe(ctx)
		}
		if !c.removedAccount(ctx, s) {
			return c.leavePause(), false
		}
		c.cleaned = true
	}
	if !s.spec.gone && s.spec.pin != "" {
		if writes {
			if err := c.annotate(ctx, "", ""); err != nil {
				log.FromContext(ctx).Error(err, "Pin not removed yet", "cluster", klog.KRef(c.key.Fleet, c.key.Name))
			}
		}
		return leavePoll, false
	}
	c.end()
	if !c.p.remove(c.member) {
		return 0, false
	}
	log.FromContext(ctx).Info("Member forgotten", "cluster", klog.KRef(c.key.Fleet, c.key.Name))
	return forever, true
}

// removedAccount takes the account out of the member, or gives that up. It returns false to be called again.
func (c *connection) removedAccount(ctx context.Context, s state) bool {
	err := c.removeAccount(ctx)
	if err == nil {
		return true
	}
	now := c.p.clock.Now()
	first := c.leftAt == nil
	if first {
		c.leftAt = &now
	}
	again := c.removesAgain(s, err, now)
	if first || !again {
		log.FromContext(ctx).Info("The hub's own account is left in the member", "cluster", klog.KRef(c.key.Fleet, c.key.Name), "again", again,
			"error", transport.Shorten(err.Error()))
	}
	if again {
		c.showAccountLeft(err)
	}
	return !again
}

// leavePause is the pause until the next try to take the account out of the member. It grows with the time since the
// first one.
func (c *connection) leavePause() time.Duration {
	return min(max(leavePoll, c.p.clock.Now().Boot-c.leftAt.Boot), leaveMost)
}

// showAccountLeft shows what a member has answered that keeps the hub from forgetting it. Probes show one that is silent.
func (c *connection) showAccountLeft(err error) {
	p := Problem{}
	if answer, ok := answerOf(err); ok {
		const text = "the cluster does not let the hub remove its own account: %s; allow that, or delete the annotation %s"
		p = Problem{reason.AccountLeft, fmt.Sprintf(text, transport.Shorten(answer.Status().Message), v1alpha1.ClusterUIDAnnotation)}
	}
	c.change(func(s *state) { s.contact = p })
}

// removesAgain reports whether to try again what has failed with an error. Nothing holds a Cluster that is deleted, moves
// or has lost its pin. A member that does not answer, or does not know the kubeconfig any more, is given up after
// ForgottenAfter.
func (c *connection) removesAgain(s state, err error, now lease.Reading) bool {
	if s.spec.gone || s.spec.moved || s.spec.pin == "" {
		return false
	}
	_, answered := answerOf(err)
	return answered || now.Boot-c.leftAt.Boot < ForgottenAfter
}

// answerOf is what the member has answered to the user of the kubeconfig. It is false if there is no answer, or if the
// member does not know that user.
func answerOf(err error) (answer apierrors.APIStatus, answered bool) {
	answered = errors.As(err, &answer) && !apierrors.IsUnauthorized(err)
	return answer, answered
}

// removeProbe deletes the probe Lease, if the member answers in time. One that remains does no harm.
func (c *connection) removeProbe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	err := c.writer.CoordinationV1().Leases(probeNamespace).Delete(ctx, probeName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		log.FromContext(ctx).Info("Probe Lease left in the member", "cluster", klog.KRef(c.key.Fleet, c.key.Name), "error", transport.Shorten(err.Error()))
	}
}
