package controller

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
)

// staying is a fleet that does not move.
type staying struct{ served }

func (staying) move(context.Context, string) (fleet.Move, error) { return fleet.Stays, nil }

// A Secret that was emptied while no hub ran holds no seal any more. The policies of the fleet show what is wrong and what
// to do, until it is put right.
func TestPoliciesShowThatTheSealIsLost(t *testing.T) {
	var requests []string
	c, _, _ := installation(t, "", &requests)
	c.source = staying{served{fleetSource{c.Fleet}, ""}}
	granted := func() metav1.Condition {
		t.Helper()
		if _, err := c.reconcilePolicy(t.Context(), mcreconcile.Request{Request: reconcile.Request{NamespacedName: shops}}); err != nil {
			t.Fatal(err)
		}
		var p v1alpha1.LeadershipPolicy
		if err := c.client.Get(t.Context(), shops, &p); err != nil {
			t.Fatal(err)
		}
		return *meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionSecretsGranted)
	}
	emptied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: seal.SecretName, Annotations: map[string]string{v1alpha1.HubAnnotation: c.HubID},
	}}
	if err := c.client.Create(t.Context(), emptied.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, ok := c.serve(t.Context(), "fleet"); ok {
			t.Fatal("the fleet is served by a seal that is lost")
		}
	}
	got := granted()
	if got.Status != metav1.ConditionFalse || got.Reason != string(reason.InvalidSeal) ||
		!strings.Contains(got.Message, "secret fleet/leasecast-seal") || !strings.Contains(got.Message, "must be restored, or deleted") {
		t.Errorf("%s %s: %s", got.Status, got.Reason, got.Message)
	}
	if err := client.IgnoreNotFound(c.client.Delete(t.Context(), emptied)); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.serve(t.Context(), "fleet"); !ok {
		t.Fatal("the fleet is not served")
	}
	if got := granted(); got.Status != metav1.ConditionTrue {
		t.Errorf("%s %s: %s", got.Status, got.Reason, got.Message)
	}
}
