package config_test

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// Who may declare that a cluster is off. Everything else about Clusters is left to RBAC.
func TestFenceNeedsAVerbOfItsOwn(t *testing.T) {
	every := rbacv1.PolicyRule{
		APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"clusters"}, Verbs: []string{"*"},
	}
	fences := rbacv1.PolicyRule{
		APIGroups: []string{"leasecast.dev"}, Resources: []string{"clusters"}, Verbs: []string{"fence"},
	}
	operator := typed(t, management.granted(t, "fencing-operator", "fencing-operator", every, fences))
	controller := typed(t, management.granted(t, "some-controller", "some-controller", every))
	declared := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "off", Labels: map[string]string{"a": "b"},
	}}
	declared.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 1}
	plain := declared.DeepCopy()
	plain.Name = "plain"
	declared.Annotations = map[string]string{v1alpha1.FencedAnnotation: "uid"}
	created := func(c client.Client, o *clusterv1.Cluster) error {
		return c.Create(t.Context(), o.DeepCopy(), client.DryRunAll)
	}
	refused := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(),
			"needs the verb fence on clusters of leasecast.dev")
	}
	awaitEnforced(t, func(context.Context) bool {
		return refused(created(controller, declared)) && created(operator, declared) == nil
	})
	for _, o := range []*clusterv1.Cluster{declared, plain} {
		musttest.Do(t, operator.Create(t.Context(), o))
		t.Cleanup(func() { _ = operator.Delete(context.Background(), o) })
	}
	for name, test := range map[string]struct {
		of      *clusterv1.Cluster
		change  func(*clusterv1.Cluster)
		refused bool // for the controller; the operator may do all of it
	}{
		"a declaration": {plain, func(o *clusterv1.Cluster) { o.Annotations = declared.Annotations }, true},
		"a declaration of another": {declared, func(o *clusterv1.Cluster) {
			o.Annotations[v1alpha1.FencedAnnotation] = "other"
		}, true},
		"its end":            {declared, func(o *clusterv1.Cluster) { o.Annotations = nil }, false},
		"another annotation": {declared, func(o *clusterv1.Cluster) { o.Annotations["c"] = "d" }, false},
		"a label":            {plain, func(o *clusterv1.Cluster) { o.Labels["a"] = "c" }, false},
	} {
		for who, c := range map[string]client.Client{"the controller": controller, "the operator": operator} {
			o := test.of.DeepCopy()
			test.change(o)
			err := c.Update(t.Context(), o, client.DryRunAll)
			if want := test.refused && who == "the controller"; refused(err) != want || err != nil && !want {
				t.Errorf("%s by %s: %v", name, who, err)
			}
		}
	}
}
