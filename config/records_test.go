package config_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// Who may do what to a record. What is free for an administrator is what moves, restores and acts need.
func TestSpecOfARecordIsChangedByHubsOnly(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	as := func(config *rest.Config) client.Client {
		c, err := client.New(config, client.Options{Scheme: scheme})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	admin, hub := as(management.config), as(management.as(t, hubNamespace, hubAccount))
	granted := func(account, role string) client.Client {
		_, err := management.client.CoreV1().ServiceAccounts("default").Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := management.kubectl(t.Context(), "create", "rolebinding", account, "--namespace=default",
			"--clusterrole="+role, "--serviceaccount=default:"+account); err != nil {
			t.Fatal(err)
		}
		return as(management.as(t, "default", account))
	}
	_, err := management.client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "records-editor"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"leasecast.dev"}, Resources: []string{"namespaceleaders", "namespaceleaders/status"},
			Verbs: strings.Fields(everyVerb),
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second, editor := granted("second-hub", "leasecast-hub"), granted("records-editor", "records-editor")
	if _, err := management.kubectl(t.Context(), "create", "clusterrole", "records-patcher",
		"--verb=get,update,patch", "--resource=namespaceleaders.leasecast.dev"); err != nil {
		t.Fatal(err)
	}
	operator := granted("records-patcher", "records-patcher") // as who freezes and moves

	since := metav1.NowMicro()
	o := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "edited"}}
	o.Spec = v1alpha1.NamespaceLeaderSpec{
		Leader: "east", State: v1alpha1.StateLeading, Epoch: 7, Since: &since, LeaseDurationSeconds: 15,
		LeaseName: v1alpha1.DefaultLeaseName, Hub: "this",
	}
	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.Background(), o) })

	// A copy has the annotation of another record, and one that a hub has written has its own UID there.
	copied, written := o.DeepCopy(), o.DeepCopy()
	copied.Name, written.Name = "copied", "written"
	for _, r := range []*v1alpha1.NamespaceLeader{copied, written} {
		r.ResourceVersion, r.UID = "", ""
		r.Annotations = map[string]string{v1alpha1.RecordAnnotation: string(o.UID)}
		if err := admin.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(context.Background(), r) })
	}
	written.Annotations[v1alpha1.RecordAnnotation] = string(written.UID)
	if err := admin.Update(t.Context(), written); err != nil {
		t.Fatal(err)
	}

	update := func(change func(*v1alpha1.NamespaceLeader)) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			changed := o.DeepCopy()
			change(changed)
			return c.Update(ctx, changed, client.DryRunAll)
		}
	}
	leader := update(func(o *v1alpha1.NamespaceLeader) { o.Spec.Leader = "west" })
	// API servers learn of an admission policy and of a binding a second later.
	enforced := func(ctx context.Context) (bool, error) {
		return leader(ctx, admin) != nil && leader(ctx, second) == nil &&
			strings.Contains(leader(ctx, editor).Error(), "leasecast-records"), nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, timeout, true, enforced); err != nil {
		t.Fatalf("%v: the administrator: %v; another hub: %v; whoever may update: %v", err,
			leader(t.Context(), admin), leader(t.Context(), second), leader(t.Context(), editor))
	}
	everybody := []client.Client{hub, second, admin, editor, operator}
	replacers := everybody[:4] // may create and delete records
	for name, test := range map[string]struct {
		does func(context.Context, client.Client) error
		by   []client.Client // the others are refused
	}{
		"another leader": {leader, everybody[:2]},
		"the next epoch": {update(func(o *v1alpha1.NamespaceLeader) { o.Spec.Epoch++ }), everybody[:2]},
		"no mark":        {update(func(o *v1alpha1.NamespaceLeader) { o.Spec.Hub = "" }), everybody[:2]},
		"the record of another hub": {update(func(o *v1alpha1.NamespaceLeader) {
			o.Spec.Leader, o.Spec.Hub = "west", "another"
		}), replacers},
		"another leader in a copy": {func(ctx context.Context, c client.Client) error {
			changed := copied.DeepCopy()
			changed.Spec.Leader = "west"
			return c.Update(ctx, changed, client.DryRunAll)
		}, replacers},
		"another leader in a record that a hub has written": {func(ctx context.Context, c client.Client) error {
			changed := written.DeepCopy()
			changed.Spec.Leader = "west"
			return c.Update(ctx, changed, client.DryRunAll)
		}, everybody[:2]},
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
