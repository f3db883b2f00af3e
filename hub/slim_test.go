package hub

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// The cache drops statuses, but for what metrics show: an alert asks for it.
func TestTheCacheKeepsTheConditionsThatMetricsShow(t *testing.T) {
	r := &v1alpha1.NamespaceLeader{}
	r.Status.Message = "west is lost"
	for kind, status := range map[string]metav1.ConditionStatus{
		v1alpha1.ConditionFailoverPending: metav1.ConditionTrue, v1alpha1.ConditionFrozen: metav1.ConditionFalse,
		v1alpha1.ConditionReady: metav1.ConditionTrue,
	} {
		meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: kind, Status: status, Message: "long"})
	}
	_ = musttest.Get(slimOwn(r))(t)
	kept := r.Status.Conditions
	if len(kept) != 1 || !meta.IsStatusConditionTrue(kept, v1alpha1.ConditionFailoverPending) || kept[0].Message != "" ||
		r.Status.Message != "" {
		t.Errorf("it keeps %+v", r.Status)
	}
}
