package config_test

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// Who may declare that a cluster is off. Everything else about Clusters is left to RBAC.
func TestFenceNeedsAVerbOfItsOwn(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	as := func(account, role string) client.Client {
		for _, args := range [][]string{
			{"create", "serviceaccount", account},
			{"create", "clusterrole", role, "--verb=*", "--resource=clusters.cluster.x-k8s.io"},
			{"create", "rolebinding", account, "--clusterrole=" + role, "--serviceaccount=default:" + account},
		} {
			if _, err := management.kubectl(t.Context(), append(args, "--namespace=default")...); err != nil {
				t.Fatal(err)
			}
		}
		c, err := client.New(management.as(t, "default", account), client.Options{Scheme: scheme})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	operator, controller := as("fencing-operator", "fencing-operator"), as("some-controller", "some-controller")
	const rule = `[{"op":"add","path":"/rules/-",` +
		`"value":{"apiGroups":["leasecast.dev"],"resources":["clusters"],"verbs":["fence"]}}]`
	_, err := management.kubectl(t.Context(), "patch", "clusterrole", "fencing-operator", "--type=json", "-p", rule)
	if err != nil {
		t.Fatal(err)
	}
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
	enforced := func(context.Context) (bool, error) {
		return refused(created(controller, declared)) && created(operator, declared) == nil, nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, timeout, true, enforced); err != nil {
		t.Fatalf("the controller: %v; the operator: %v", created(controller, declared), created(operator, declared))
	}
	for _, o := range []*clusterv1.Cluster{declared, plain} {
		if err := operator.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
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
