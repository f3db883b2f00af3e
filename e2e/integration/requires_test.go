package integration

import (
	"encoding/json"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// deployment creates a Deployment with the label, whose status says whether it is Available.
func (w *world) deployment(member, namespace string, available bool) {
	labels := map[string]string{"app": "shop"}
	o := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "shop", Labels: map[string]string{v1alpha1.RequiredLabel: "true"},
		},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "shop", Image: "shop"}}},
			},
		},
	}
	w.Must(w.Members[member].Create(w.T.Context(), o))
	w.setAvailable(member, namespace, available)
}

// setAvailable does what the Deployment controller does: these API servers have none.
func (w *world) setAvailable(member, namespace string, available bool) {
	status := metav1.ConditionFalse
	if available {
		status = metav1.ConditionTrue
	}
	patch, err := json.Marshal(map[string]any{"status": appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionStatus(status)},
	}}})
	w.Must(err)
	o := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}}
	w.Must(w.Members[member].Status().Patch(w.T.Context(), o, client.RawPatch(types.MergePatchType, patch)))
}

// awaitReason waits until the record has a reason for a Cluster that may lead.
func (w *world) awaitReason(cluster, namespace string, why reason.Reason, words ...string) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("%s is %s", cluster, why), soon, func() error {
		c, err := w.Candidate(namespace, cluster)
		if err != nil || c.Reason != why {
			return fmt.Errorf("%+v: %w", c, err)
		}
		return contains(c.Message, words...)
	})
}

func TestALeaderWhoseProgramIsNotHealthyIsReplaced(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, brief)
	w.allow("requires", all...)
	w.editPolicy("p", func(s *v1alpha1.LeadershipPolicySpec) {
		s.Requires = &v1alpha1.Requires{UnhealthyAfterSeconds: 2, Resources: []v1alpha1.RequiredResources{
			{Group: "apps", Names: []string{"deployments"}},
		}}
	})
	w.deployment("west", a, false)
	w.deployment("south", a, true)
	w.awaitReason("west", a, reason.RequiredUnhealthy, "deployments.apps shop is not Available")
	w.awaitReason("south", a, reason.Eligible)
	j := w.keeps("east", a) // where no object has the label
	j.outlive()
	j.check()
	last := w.follow("east", a)
	w.deployment("east", a, false)
	w.handedOver(a, "south", epoch, last, all...) // west ranks higher
	w.awaitHistory(a, reason.RequiredUnhealthy, "deployments.apps shop is not Available")

	t.Log("it is healthy again: nothing moves back")
	j = w.keeps("south", a)
	w.setAvailable("east", a, true)
	w.awaitReason("east", a, reason.Eligible)
	j.outlive()
	j.check()
}
