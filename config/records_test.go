package config_test

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// Who may do what to a record. What is free for an administrator is what moves, restores and acts need.
func TestSpecOfARecordIsChangedByHubsOnly(t *testing.T) {
	admin, hub := typed(t, management.config), typed(t, management.as(t, hubNamespace, hubAccount))
	second := typed(t, management.granted(t, "second-hub", "leasecast-hub"))
	editor := typed(t, management.granted(t, "records-editor", "records-editor", rbacv1.PolicyRule{
		APIGroups: []string{"leasecast.dev"}, Resources: []string{"namespaceleaders", "namespaceleaders/status"},
		Verbs: strings.Fields(everyVerb),
	}))
	operator := typed(t, management.granted(t, "records-operator", "records-operator", rbacv1.PolicyRule{
		APIGroups: []string{"leasecast.dev"}, Resources: []string{"namespaceleaders"},
		Verbs: []string{"get", "update", "patch"},
	})) // as who freezes and moves

	since := metav1.NowMicro()
	o := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "edited"}}
	o.Spec = v1alpha1.NamespaceLeaderSpec{
		Leader: "east", State: v1alpha1.StateLeading, Epoch: 7, Since: &since, LeaseDurationSeconds: 15,
		LeaseName: v1alpha1.DefaultLeaseName, Hub: "this",
	}
	musttest.Do(t, admin.Create(t.Context(), o))
	t.Cleanup(func() { _ = admin.Delete(context.Background(), o) })

	// A copy has the annotation of another record, and one that a hub has written has its own UID there.
	copied, written := o.DeepCopy(), o.DeepCopy()
	copied.Name, written.Name = "copied", "written"
	for _, r := range []*v1alpha1.NamespaceLeader{copied, written} {
		r.ResourceVersion, r.UID = "", ""
		r.Annotations = map[string]string{v1alpha1.RecordAnnotation: string(o.UID)}
		musttest.Do(t, admin.Create(t.Context(), r))
		t.Cleanup(func() { _ = admin.Delete(context.Background(), r) })
	}
	written.Annotations[v1alpha1.RecordAnnotation] = string(written.UID)
	musttest.Do(t, admin.Update(t.Context(), written))

	type action = func(context.Context, client.Client) error
	updateOf := func(o *v1alpha1.NamespaceLeader, change func(*v1alpha1.NamespaceLeader)) action {
		return func(ctx context.Context, c client.Client) error {
			changed := o.DeepCopy()
			change(changed)
			return c.Update(ctx, changed, client.DryRunAll)
		}
	}
	update := func(change func(*v1alpha1.NamespaceLeader)) action { return updateOf(o, change) }
	west := func(o *v1alpha1.NamespaceLeader) { o.Spec.Leader = "west" }
	leader := update(west)
	awaitEnforced(t, func(ctx context.Context) bool {
		return leader(ctx, admin) != nil && leader(ctx, second) == nil &&
			strings.Contains(leader(ctx, editor).Error(), "leasecast-records")
	})
	everybody := []client.Client{hub, second, admin, editor, operator}
	replacers := everybody[:4] // may create and delete records
	for name, test := range map[string]struct {
		does action
		by   []client.Client // the others are refused
	}{
		"another leader": {leader, everybody[:2]},
		"the next epoch": {update(func(o *v1alpha1.NamespaceLeader) { o.Spec.Epoch++ }), everybody[:2]},
		"no mark":        {update(func(o *v1alpha1.NamespaceLeader) { o.Spec.Hub = "" }), everybody[:2]},
		"the record of another hub": {update(func(o *v1alpha1.NamespaceLeader) {
			o.Spec.Leader, o.Spec.Hub = "west", "another"
		}), replacers},
		"another leader in a copy":                          {updateOf(copied, west), replacers},
		"another leader in a record that a hub has written": {updateOf(written, west), everybody[:2]},
		"metadata": {update(func(o *v1alpha1.NamespaceLeader) {
			o.Labels, o.Finalizers = map[string]string{"team": "shop"}, []string{"example.com/backup"}
		}), everybody},
		"the status": {func(ctx context.Context, c client.Client) error {
			changed := o.DeepCopy()
			changed.Status.Message = "new"
			return c.Status().Update(ctx, changed, client.DryRunAll)
		}, replacers},
		"deletion": {func(ctx context.Context, c client.Client) error {
			return c.Delete(ctx, o.DeepCopy(), client.DryRunAll)
		}, replacers},
		"creation, with any leader": {func(ctx context.Context, c client.Client) error {
			another := &v1alpha1.NamespaceLeader{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "another"}, Spec: o.Spec,
			}
			return c.Create(ctx, another, client.DryRunAll)
		}, replacers},
	} {
		t.Run(name, func(t *testing.T) {
			for i, c := range everybody {
				err := test.does(t.Context(), c)
				// What the operator may not do at all, RBAC refuses.
				refused := apierrors.IsForbidden(err) && (c == operator || strings.Contains(err.Error(), "leasecast-records"))
				if may := i < len(test.by); may && err != nil || !may && !refused {
					t.Errorf("%s: %v", []string{
						"the hub", "a hub of another name", "an administrator", "an editor", "an operator",
					}[i], err)
				}
			}
		})
	}
}
