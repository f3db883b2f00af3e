package guard_test

import (
	"context"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/hub/guard"
)

// A real API server has to know the selector.
func TestGuardedLeavesOutTheClustersOwnNamespaces(t *testing.T) {
	admin := administrator(t)
	for _, namespace := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "labelled-", Labels: map[string]string{"guarded": "test"}}}
		l, err := admin.CoordinationV1().Leases(namespace).Create(t.Context(), l, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			err := admin.CoordinationV1().Leases(namespace).Delete(context.Background(), l.Name, metav1.DeleteOptions{})
			if err != nil {
				t.Error(err)
			}
		})
	}
	list, err := admin.CoordinationV1().Leases(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{
		LabelSelector: "guarded=test", FieldSelector: guard.Guarded().String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var in []string
	for i := range list.Items {
		in = append(in, list.Items[i].Namespace)
	}
	if !slices.Equal(in, []string{metav1.NamespaceDefault}) {
		t.Errorf("it selects Leases in %q", in)
	}
}
