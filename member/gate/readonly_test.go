package gate_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/leasecast/leasecast/member/gate"
)

func TestReadOnlyReadsAndRefusesEveryWrite(t *testing.T) {
	ctx := t.Context()
	stored := object(ns, "a")
	inner := fake.NewClientBuilder().WithObjects(stored).Build()
	c := gate.ReadOnly(inner)
	o := object(ns, "a")
	o.Data = map[string]string{"changed": "true"}
	apply := applycorev1.ConfigMap("a", ns).WithData(o.Data)
	patch := client.MergeFrom(object(ns, "a"))
	for name, write := range map[string]func() error{
		"create":       func() error { return c.Create(ctx, object(ns, "b")) },
		"update":       func() error { return c.Update(ctx, o) },
		"patch":        func() error { return c.Patch(ctx, o, patch) },
		"apply":        func() error { return c.Apply(ctx, apply, client.FieldOwner("x")) },
		"delete":       func() error { return c.Delete(ctx, o) },
		"deleteAllOf":  func() error { return c.DeleteAllOf(ctx, o, client.InNamespace(ns)) },
		"statusCreate": func() error { return c.Status().Create(ctx, o, o) },
		"statusUpdate": func() error { return c.Status().Update(ctx, o) },
		"statusPatch":  func() error { return c.Status().Patch(ctx, o, patch) },
		"statusApply":  func() error { return c.Status().Apply(ctx, apply) },
		"scaleUpdate":  func() error { return c.SubResource("scale").Update(ctx, o) },
	} {
		if err := write(); !errors.Is(err, gate.ErrReadOnly) {
			t.Errorf("%s: err = %v, want ErrReadOnly", name, err)
		}
	}
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list); err != nil || len(list.Items) != 1 || list.Items[0].Data != nil {
		t.Errorf("afterwards: %v, err %v, want the one object unchanged", list.Items, err)
	}
	const want = "this client is read-only, because only the leader cluster may write: " +
		"refused to update *v1.ConfigMap shop/a"
	if got := c.Update(ctx, o).Error(); got != want {
		t.Errorf("err = %s", got)
	}
}
