package guard_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// Words of the answers about what a registration holds.
const (
	oversized   = "a registration of a reader has at most"
	notWatching = "a registration may only name namespaces in which its writer may watch Leases"
)

// names are those of so many namespaces, in order.
func names(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("ns-%05d", i))
	}
	return strings.Join(all, ",")
}

func TestEverythingInARegistrationIsBoundedWhenItIsMadeAndLater(t *testing.T) {
	parallel(t)
	namespace := newNamespace(t)
	stored := account(t, "reader", rbacv1.PolicyRule{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "watch", "create", "update"},
	}).CoordinationV1().Leases(namespace)
	many := func(n int, value string) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprintf("example.com/%d", i)] = value
		}
		return m
	}
	for name, test := range map[string]struct {
		change  func(*coordinationv1.Lease)
		creates string
		updates string
	}{
		"nothing more than it needs": {asIs, allowed, allowed},
		"labels": {func(l *coordinationv1.Lease) {
			for k := range many(16, "") {
				l.Labels[k] = "x"
			}
		}, oversized, oversized},
		"annotations": {func(l *coordinationv1.Lease) {
			for k := range many(6, "") {
				l.Annotations[k] = "x"
			}
		}, oversized, oversized},
		"an annotation of somebody else": {annotated("example.com/a", strings.Repeat("x", 1025)), oversized, oversized},
		"what it has released":           {annotated(v1alpha1.ReaderReleasedAnnotation, strings.Repeat("x", 96<<10+1)), oversized, oversized},
		"finalizers": {func(l *coordinationv1.Lease) {
			l.Finalizers = append(l.Finalizers, "example.com/a", "example.com/b")
		}, oversized, oversized},
		"owners": {func(l *coordinationv1.Lease) {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod-1", UID: "uid"}}
		}, incompleteReader, oversized},
		"an identity of 1 MB":             {func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To(strings.Repeat("x", 1<<20)) }, oversized, identified},
		"more than 1000 namespaces":       {annotated(v1alpha1.ReaderNamespacesAnnotation, names(1001)), oversized, identified},
		"1000 namespaces":                 {annotated(v1alpha1.ReaderNamespacesAnnotation, names(1000)), allowed, identified},
		"a duration of more than an hour": {func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To[int32](3601) }, oversized, oversized},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			t.Cleanup(func() { removeAll(t, administrator(t).CoordinationV1().Leases(namespace)) })
			l := newRegistration(t, namespace, "made")
			test.change(l)
			_, err := stored.Create(ctx, l, metav1.CreateOptions{})
			mustAnswer(t, err, test.creates)
			l, err = stored.Create(ctx, newRegistration(t, namespace, "changed"), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			test.change(l)
			_, err = stored.Update(ctx, l, metav1.UpdateOptions{})
			mustAnswer(t, err, test.updates)
		})
	}
}

func TestARegistrationNamesOnlyNamespacesThatItsWriterMayWatch(t *testing.T) {
	parallel(t)
	namespace := newNamespace(t)
	own := namespace
	var others []string
	for range 17 {
		others = append(others, newNamespace(t))
	}
	leases := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}}
	editor := tenant(t, "nora", namespace, "edit")
	inMany := tenant(t, "mary", namespace, "edit")
	for _, n := range others {
		tenant(t, "mary", n, "edit")
	}
	anywhere := account(t, "anywhere", leases)
	const mary, nora = "mary", "nora"
	accountOf := map[*kubernetes.Clientset]string{editor: nora, inMany: mary, anywhere: "system:serviceaccount:leasecast-system:anywhere"}
	sorted := func(ns ...string) string {
		slices.Sort(ns)
		return strings.Join(ns, ",")
	}
	for name, test := range map[string]struct {
		writer *kubernetes.Clientset
		claims string
		want   string
	}{
		"an editor may name its namespace":                             {editor, own, allowed},
		"but not another one":                                          {editor, others[0], notWatching},
		"nor another one besides":                                      {editor, sorted(own, others[0]), notWatching},
		"nor one that does not exist":                                  {editor, "no-such-namespace", notWatching},
		"nor all":                                                      {editor, "*", notWatching},
		"nor all besides its own":                                      {editor, "*," + own, notWatching},
		"nor anything that is no namespace":                            {editor, own + ",,", notWatching},
		"an editor of 16 namespaces may name these":                    {inMany, sorted(others[:16]...), allowed},
		"a 17th needs the right in the whole cluster":                  {inMany, sorted(others[:17]...), notWatching},
		"each of the 16 counts, the last one too":                      {inMany, sorted(append(slices.Clone(others[:15]), "zzz")...), notWatching},
		"and the one before":                                           {inMany, sorted(append(slices.Clone(others[:14]), "zzy", others[14])...), notWatching},
		"who may watch Leases everywhere may name what it likes":       {anywhere, "*", allowed},
		"also namespaces that do not exist yet, because they may come": {anywhere, names(100), allowed},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			t.Cleanup(func() { removeAll(t, administrator(t).CoordinationV1().Leases(namespace)) })
			l := newRegistration(t, namespace, "reader-1")
			l.Annotations[v1alpha1.ReaderAccountAnnotation] = accountOf[test.writer]
			l.Annotations[v1alpha1.ReaderNamespacesAnnotation] = test.claims
			_, err := test.writer.CoordinationV1().Leases(namespace).Create(ctx, l, metav1.CreateOptions{})
			mustAnswer(t, err, test.want)
		})
	}
}

func TestAReaderThatLosesTheRightToWatchCannotConfirm(t *testing.T) {
	parallel(t)
	namespace := newNamespace(t)
	irma := tenant(t, "irma", namespace, "edit")
	l := newRegistration(t, namespace, "reader-1")
	l.Annotations[v1alpha1.ReaderAccountAnnotation] = "irma"
	l.Annotations[v1alpha1.ReaderNamespacesAnnotation] = namespace
	l, err := irma.CoordinationV1().Leases(namespace).Create(t.Context(), l, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admin := administrator(t)
	t.Cleanup(func() { removeAll(t, admin.CoordinationV1().Leases(namespace)) })
	if err := admin.RbacV1().RoleBindings(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	writes := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "writes", Namespace: namespace}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "update"},
	}}}
	if _, err := admin.RbacV1().Roles(namespace).Create(t.Context(), writes, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "writes", Namespace: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "writes"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "irma"}},
	}
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the confirmation is refused", func(ctx context.Context) error {
		now, err := admin.CoordinationV1().Leases(namespace).Get(ctx, l.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Spec.RenewTime.Time = now.Spec.RenewTime.Add(time.Second)
		_, err = irma.CoordinationV1().Leases(namespace).Update(ctx, now, metav1.UpdateOptions{})
		if err == nil || !strings.Contains(err.Error(), notWatching) {
			return fmt.Errorf("answered %w", err)
		}
		return nil
	})
}
