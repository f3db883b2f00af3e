package guard_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// Words of the answers about registrations.
const (
	notTheReader     = "only the user named in the annotation reader.leasecast.dev/account writes or deletes this registration"
	becameAnother    = "a Lease does not become a registration of a reader, or cease to be one"
	identified       = "the identity, namespaces and account of a registration never change"
	incompleteReader = "a registration of a reader needs the label"
)

// reader is the user whose registration it is.
const reader = "system:serviceaccount:leasecast-system:reader"

// newRegistration is what the reader writes.
func newRegistration(t *testing.T, namespace, name string) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := wire.WriteRegistration(lease.Registration{
		Identity: "pod-1_6f1c", Namespaces: []string{"shop"}, Confirmed: time.Now(), Duration: 15 * time.Second, Account: reader,
	}, l)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// register creates a registration with a change.
func register(change func(*coordinationv1.Lease)) request {
	return func(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, namespace, name string) error {
		l := newRegistration(t, namespace, name)
		change(l)
		_, err := leases.Create(ctx, l, metav1.CreateOptions{})
		return err
	}
}

// registering is what somebody tries about a registration. before says that one of the reader's is stored.
type registering struct {
	before func(t *testing.T, namespace, name string) *coordinationv1.Lease
	do     request

	// The answers: to the reader, to whoever counts as the hub, and to everybody else.
	reader, hub, others string
}

func annotated(key, value string) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) { l.Annotations[key] = value }
}

var registrations = map[string]registering{
	"a registration is created": {
		do: register(asIs), others: notTheReader, hub: notTheReader,
	},
	"it is created under a generated name": {
		do: register(func(l *coordinationv1.Lease) { l.GenerateName, l.Name = l.Name, "" }), others: notTheReader, hub: notTheReader,
	},
	"it is created by an update": {
		do: func(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, namespace, name string) error {
			_, err := leases.Update(ctx, newRegistration(t, namespace, name), metav1.UpdateOptions{})
			return err
		},
		others: notTheReader, hub: notTheReader,
	},
	"it is created without an account": {
		do:     register(func(l *coordinationv1.Lease) { delete(l.Annotations, v1alpha1.ReaderAccountAnnotation) }),
		reader: incompleteReader, others: incompleteReader, hub: incompleteReader,
	},
	"it is created without a finalizer": {
		do:     register(func(l *coordinationv1.Lease) { l.Finalizers = nil }),
		reader: incompleteReader, others: incompleteReader, hub: incompleteReader,
	},
	"it is created with an owner, which would take it along": {
		do: register(func(l *coordinationv1.Lease) {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod-1", UID: "uid"}}
		}),
		reader: incompleteReader, others: incompleteReader, hub: incompleteReader,
	},
	"it is created without an identity": {
		do:     register(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil }),
		reader: incompleteReader, others: incompleteReader, hub: incompleteReader,
	},
	"it is created with a label of another value": {
		do:     register(func(l *coordinationv1.Lease) { l.Labels[v1alpha1.ReaderLabel] = "yes" }),
		reader: incompleteReader, others: incompleteReader, hub: incompleteReader,
	},
	"it is confirmed": {
		before: newRegistration, others: notTheReader,
		do: update(func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(time.Second) }),
	},
	"a term is released in it": {
		before: newRegistration, others: notTheReader, do: update(annotated(v1alpha1.ReaderReleasedAnnotation, `{"shop":7}`)),
	},
	"a term is released in it by a patch": {
		before: newRegistration, others: notTheReader, hub: rbac, reader: rbac,
		do: patch(types.MergePatchType, `{"metadata":{"annotations":{"reader.leasecast.dev/released":"{\"shop\":7}"}}}`),
	},
	"its finalizer is taken off": {
		before: newRegistration, others: notTheReader, do: update(wire.FreeRegistration),
	},
	"it gets another account": {
		before: newRegistration, reader: identified, others: notTheReader, hub: identified,
		do: update(annotated(v1alpha1.ReaderAccountAnnotation, "erin")),
	},
	"it loses its account": {
		before: newRegistration, reader: identified, others: notTheReader, hub: identified,
		do: update(func(l *coordinationv1.Lease) { delete(l.Annotations, v1alpha1.ReaderAccountAnnotation) }),
	},
	"it gets other namespaces": {
		before: newRegistration, reader: identified, others: notTheReader, hub: identified,
		do: update(annotated(v1alpha1.ReaderNamespacesAnnotation, "*")),
	},
	"it gets another identity": {
		before: newRegistration, reader: identified, others: notTheReader, hub: identified,
		do: update(func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "pod-2" }),
	},
	"its label gets another value": {
		before: newRegistration, reader: identified, others: notTheReader, hub: identified,
		do: update(func(l *coordinationv1.Lease) { l.Labels[v1alpha1.ReaderLabel] = "no" }),
	},
	"it loses its label": {
		before: newRegistration, reader: becameAnother, others: becameAnother, hub: becameAnother,
		do: update(func(l *coordinationv1.Lease) { delete(l.Labels, v1alpha1.ReaderLabel) }),
	},
	"it loses all that makes it one": {
		before: newRegistration, reader: becameAnother, others: becameAnother, hub: becameAnother,
		do: update(func(l *coordinationv1.Lease) { l.Labels, l.Annotations = nil, nil }),
	},
	"a foreign Lease becomes one": {
		before: newForeign, reader: becameAnother, others: becameAnother, hub: becameAnother,
		do: func(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, namespace, name string) error {
			return update(func(l *coordinationv1.Lease) {
				r := newRegistration(t, namespace, name)
				l.Labels, l.Annotations, l.Finalizers, l.Spec = r.Labels, r.Annotations, r.Finalizers, r.Spec
			})(ctx, t, leases, namespace, name)
		},
	},
	"it is deleted": {
		before: newRegistration, do: remove, others: notTheReader,
	},
	"it is deleted with the collection": {
		before: newRegistration, do: removeCollection, others: notTheReader, hub: rbac, reader: rbac,
	},
	"a foreign Lease is created": {
		do: func(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, namespace, name string) error {
			_, err := leases.Create(ctx, newForeign(t, namespace, name), metav1.CreateOptions{})
			return err
		},
	},
	"a foreign Lease has annotations of a registration": {
		before: newForeign, do: update(func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{v1alpha1.ReaderAccountAnnotation: "somebody"}
		}),
	},
	"a foreign Lease is deleted": {
		before: newForeign, do: remove,
	},
}

func TestARegistrationIsItsReadersAlone(t *testing.T) {
	parallel(t)
	namespace := newNamespace(t)
	admin := administrator(t)
	onLeases := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs}
	}
	type caller struct {
		client *kubernetes.Clientset
		answer func(registering) string
	}
	others := func(r registering) string { return r.others }
	// What RBAC does not let the service account of the hub do, an administrator may.
	administrators := func(r registering) string {
		if r.hub == rbac {
			return allowed
		}
		return r.hub
	}
	callers := map[string]caller{
		"the reader":                     {account(t, "reader", onLeases("get", "watch", "create", "update", "delete")), func(r registering) string { return r.reader }},
		"the hub's ServiceAccount":       {serviceAccount(t, "leasecast-hub", nothing), func(r registering) string { return r.hub }},
		"an administrator":               {admin, administrators},
		"another reader":                 {account(t, "other-reader", onLeases("*")), others},
		"an editor of the namespace":     {tenant(t, "erin", namespace, "edit"), others},
		"cluster-admin in the namespace": {tenant(t, "omar", namespace, "cluster-admin"), others},
	}
	stored := admin.CoordinationV1().Leases(namespace)
	n := 0
	for who, c := range callers {
		for what, r := range registrations {
			n++
			name := fmt.Sprintf("lease-%d", n)
			t.Run(who+"/"+what, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				before := storedBefore(ctx, t, r.before, namespace, name)
				t.Cleanup(func() { removeAll(t, stored) })
				err := r.do(ctx, t, c.client.CoordinationV1().Leases(namespace), namespace, name)
				want := c.answer(r)
				mustAnswer(t, err, want)
				if want != allowed {
					mustBeUntouched(ctx, t, stored, name, before)
				}
			})
		}
	}
}

// storedBefore stores what there is before somebody tries something. A registration is written by its reader.
func storedBefore(ctx context.Context, t *testing.T, newLease func(t *testing.T, namespace, name string) *coordinationv1.Lease, namespace, name string) *coordinationv1.Lease {
	t.Helper()
	if newLease == nil {
		return nil
	}
	before, err := readersLeases(t, namespace).Create(ctx, newLease(t, namespace, name), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return before
}

// readersLeases are those of a namespace, for the reader.
func readersLeases(t *testing.T, namespace string) coordinationclient.LeaseInterface {
	t.Helper()
	config := member.AdminConfig()
	config.Impersonate.UserName = reader
	config.Impersonate.Groups = []string{"system:masters"} // may do everything, by its rights
	return clientFor(t, config).CoordinationV1().Leases(namespace)
}

// removeAll removes all Leases of a namespace, in the two steps that a registration takes.
func removeAll(t *testing.T, leases coordinationclient.LeaseInterface) {
	t.Helper()
	ctx := context.Background()
	all, err := leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		l := &all.Items[i]
		wire.FreeRegistration(l)
		if l, err = leases.Update(ctx, l, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := leases.Delete(ctx, l.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

// Cleaning up deletes the registration; its finalizer keeps it, and the namespace, until the reader or the hub takes that off.
func TestANamespaceTakesItsRegistrationsAlongWhenTheyAreFree(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	namespace := newDoomedNamespace(t)
	storedBefore(t.Context(), t, newRegistration, namespace, "reader-1")
	if err := admin.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	hub := serviceAccount(t, "leasecast-hub", nothing).CoordinationV1().Leases(namespace)
	var l *coordinationv1.Lease
	eventually(t, "cleaning up deletes the registration", func(ctx context.Context) (err error) {
		if l, err = hub.Get(ctx, "reader-1", metav1.GetOptions{}); err == nil && l.DeletionTimestamp == nil {
			err = fmt.Errorf("it is not being deleted")
		}
		return err
	})
	wire.FreeRegistration(l)
	_, err := leaseEditor(t).CoordinationV1().Leases(namespace).Update(t.Context(), l, metav1.UpdateOptions{})
	mustAnswer(t, err, notTheReader)
	if _, err := hub.Update(t.Context(), l, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func(ctx context.Context) error { return gone(ctx, admin, namespace) })
}

// A reader may run in a namespace that is never managed.
func TestRegistrationsAreProtectedInTheNamespacesOfTheSystemToo(t *testing.T) {
	parallel(t)
	const namespace = metav1.NamespaceSystem
	storedBefore(t.Context(), t, newRegistration, namespace, "reader-1")
	t.Cleanup(func() {
		l, err := readersLeases(t, namespace).Get(context.Background(), "reader-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wire.FreeRegistration(l)
		if _, err := readersLeases(t, namespace).Update(context.Background(), l, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := readersLeases(t, namespace).Delete(context.Background(), "reader-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	err := leaseEditor(t).CoordinationV1().Leases(namespace).Delete(t.Context(), "reader-1", metav1.DeleteOptions{})
	mustAnswer(t, err, notTheReader)
}
