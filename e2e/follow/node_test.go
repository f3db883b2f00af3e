package follow

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

const (
	nodeName = "node"
	// stopping is how long a container runs after SIGTERM, at least. Whole seconds of the API server's are added.
	stopping = time.Second
)

// fakeNode is the scheduler and the only kubelet of a member. Containers exist as the status of their Pod alone.
type fakeNode struct{ client.Client }

// startNode runs a node until the test ends. It reaches the API server directly, however the hub's link is.
func startNode(t *testing.T, member *fleet.Server) {
	mgr := musttest.Get(ctrl.NewManager(member.AdminConfig(), ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // one in each member
	}))(t)
	n := &fakeNode{mgr.GetClient()}
	musttest.Do(t, n.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}))
	musttest.Do(t, ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(n))
	musttest.Start(t, mgr.Start)
}

// Reconcile takes a Pod one step on.
func (n *fakeNode) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := n.Get(ctx, req.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	deleted := pod.DeletionTimestamp != nil
	switch {
	case pod.Spec.NodeName == "":
		to := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}
		return ctrl.Result{}, client.IgnoreNotFound(n.SubResource("binding").Create(ctx, pod, to))
	case hasEnded(pod) && deleted:
		return ctrl.Result{}, client.IgnoreNotFound(n.Delete(ctx, pod, client.GracePeriodSeconds(0),
			client.Preconditions{UID: &pod.UID}))
	case deleted:
		grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
		if left := pod.DeletionTimestamp.Add(stopping - grace).Sub(harness.Now().Wall); left > 0 {
			return ctrl.Result{RequeueAfter: left}, nil
		}
		pod.Status.Phase = corev1.PodSucceeded
		return ctrl.Result{}, client.IgnoreNotFound(n.Status().Update(ctx, pod))
	case pod.Status.Phase == corev1.PodPending:
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(harness.Now().Wall),
		})
		return ctrl.Result{}, client.IgnoreNotFound(n.Status().Update(ctx, pod))
	}
	return ctrl.Result{}, nil
}

// hasEnded reports whether no container of a Pod runs any more.
func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
