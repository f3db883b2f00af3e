package guard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// Words of the answers that people get.
const (
	allowed    = ""
	notTheHub  = "only the Leasecast hub writes or deletes Leases with leasecast.dev/ labels or annotations"
	epochFell  = "spec.leaseTransitions is the epoch of the leader and never falls"
	incomplete = "needs spec.holderIdentity (empty for nobody), spec.renewTime, spec.leaseDurationSeconds greater than 0 and spec.leaseTransitions"
	noCluster  = "needs the annotation leasecast.dev/cluster"
	rbac       = "cannot " // of the API server, before any policy is asked
)

// request is made by somebody's client.
type request func(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, namespace, name string) error

// act is what somebody tries. before is what is stored when it is made: nothing, a Lease or a foreign Lease.
type act struct {
	before func(t *testing.T, namespace, name string) *coordinationv1.Lease
	do     request

	// The answers: to the administrator, to the ServiceAccount of the hub, and to everybody in the namespace.
	administrator, hub, tenants string
}

// create creates a Lease with a change.
func create(change func(*coordinationv1.Lease)) request {
	return func(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, namespace, name string) error {
		l := newLease(t, namespace, name)
		change(l)
		_, err := leases.Create(ctx, l, metav1.CreateOptions{})
		return err
	}
}

// update changes what is stored.
func update(change func(*coordinationv1.Lease)) request {
	return func(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, _, name string) error {
		l, err := leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(l)
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
		return err
	}
}

func patch(kind types.PatchType, body string) request {
	return func(ctx context.Context, _ *testing.T, leases coordinationclient.LeaseInterface, _, name string) error {
		_, err := leases.Patch(ctx, name, kind, []byte(body), metav1.PatchOptions{})
		return err
	}
}

func apply(change func(*coordinationv1.Lease)) request {
	return func(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, namespace, name string) error {
		l := newLease(t, namespace, name)
		l.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
		change(l)
		body, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		_, err = leases.Patch(ctx, name, types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: "test", Force: ptr.To(true)})
		return err
	}
}

func remove(ctx context.Context, _ *testing.T, leases coordinationclient.LeaseInterface, _, name string) error {
	return leases.Delete(ctx, name, metav1.DeleteOptions{})
}

func removeCollection(ctx context.Context, _ *testing.T, leases coordinationclient.LeaseInterface, _, _ string) error {
	return leases.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

func asIs(*coordinationv1.Lease) {}

var acts = map[string]act{
	"a Lease is created": {
		do: create(asIs), tenants: notTheHub,
	},
	"a Lease is created under a generated name": {
		do: create(func(l *coordinationv1.Lease) { l.GenerateName, l.Name = l.Name, "" }), tenants: notTheHub,
	},
	"a Lease is created with the label only": {
		do:      create(func(l *coordinationv1.Lease) { l.Annotations = nil }),
		tenants: notTheHub, administrator: noCluster, hub: noCluster,
	},
	"a Lease is created with annotations only": {
		do: create(func(l *coordinationv1.Lease) { l.Labels = nil }), tenants: notTheHub,
	},
	"a Lease is created by an update": {
		do: func(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, namespace, name string) error {
			_, err := leases.Update(ctx, newLease(t, namespace, name), metav1.UpdateOptions{})
			return err
		},
		tenants: notTheHub,
	},
	"a Lease is created by server-side apply": {
		do: apply(asIs), tenants: notTheHub, hub: rbac,
	},
	"a Lease is renewed": {
		before: newLease, tenants: notTheHub,
		do: update(func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(1e9) }),
	},
	"a Lease gets another holder by server-side apply": {
		before: newLease, tenants: notTheHub, hub: rbac,
		do: apply(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("west.default") }),
	},
	"a Lease gets another holder by a merge patch": {
		before: newLease, tenants: notTheHub, hub: rbac,
		do: patch(types.MergePatchType, `{"spec":{"holderIdentity":"west.default"}}`),
	},
	"a Lease gets another holder by a JSON patch": {
		before: newLease, tenants: notTheHub, hub: rbac,
		do: patch(types.JSONPatchType, `[{"op":"replace","path":"/spec/holderIdentity","value":"west.default"}]`),
	},
	"nobody holds a Lease": {
		before: newLease, tenants: notTheHub,
		do: update(func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = ""; *l.Spec.LeaseTransitions++ }),
	},
	"a foreign Lease gets the label": {
		before: newForeign, tenants: notTheHub, administrator: noCluster, hub: noCluster,
		do: update(func(l *coordinationv1.Lease) { l.Labels = map[string]string{v1alpha1.ManagedLabel: "true"} }),
	},
	"a foreign Lease gets an annotation": {
		before: newForeign, tenants: notTheHub,
		do: update(func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{v1alpha1.ClusterAnnotation: "east.default"}
		}),
	},
	"a Lease loses its label": {
		before: newLease, tenants: notTheHub,
		do: update(func(l *coordinationv1.Lease) { delete(l.Labels, v1alpha1.ManagedLabel) }),
	},
	"a Lease loses all marks": {
		before: newLease, tenants: notTheHub, do: update(stripMarks),
	},
	"a Lease gets a finalizer": {
		before: newLease, tenants: notTheHub,
		do: func(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, namespace, name string) error {
			add := update(func(l *coordinationv1.Lease) { l.Finalizers = []string{"example.com/stay"} })
			drop := update(func(l *coordinationv1.Lease) { l.Finalizers = nil })
			if err := add(ctx, t, leases, namespace, name); err != nil {
				return err
			}
			return drop(ctx, t, leases, namespace, name)
		},
	},
	"a Lease is deleted": {
		before: newLease, do: remove, tenants: notTheHub,
	},
	"a Lease is deleted with the collection": {
		before: newLease, do: removeCollection, tenants: notTheHub, hub: rbac,
	},
	"the epoch falls": {
		before: newLease, tenants: notTheHub, administrator: epochFell, hub: epochFell,
		do: update(func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions-- }),
	},
	"the epoch falls as the marks are taken off": {
		before: newLease, tenants: notTheHub, administrator: epochFell, hub: epochFell,
		do: update(func(l *coordinationv1.Lease) { stripMarks(l); *l.Spec.LeaseTransitions-- }),
	},
	"the epoch falls as the marks are put on": {
		before: newForeign, tenants: notTheHub, administrator: epochFell, hub: epochFell,
		do: update(func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{v1alpha1.ClusterAnnotation: "east.default"}
			*l.Spec.LeaseTransitions--
		}),
	},
	"the epoch vanishes": {
		before: newLease, tenants: notTheHub, administrator: incomplete, hub: incomplete,
		do: update(func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = nil }),
	},
	"the epoch vanishes as the marks are taken off": {
		before: newLease, tenants: notTheHub, administrator: epochFell, hub: epochFell,
		do: update(func(l *coordinationv1.Lease) { stripMarks(l); l.Spec.LeaseTransitions = nil }),
	},
	"the epoch rises": {
		before: newLease, tenants: notTheHub,
		do: update(func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions++ }),
	},
	"a Lease is created without an epoch": {
		do:      create(func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = nil }),
		tenants: notTheHub, administrator: incomplete, hub: incomplete,
	},
	"a Lease is created without a holder": {
		do:      create(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil }),
		tenants: notTheHub, administrator: incomplete, hub: incomplete,
	},
	"a Lease is created without a renewTime": {
		do:      create(func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }),
		tenants: notTheHub, administrator: incomplete, hub: incomplete,
	},
	"a Lease is created without a duration": {
		do:      create(func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }),
		tenants: notTheHub, administrator: incomplete, hub: incomplete,
	},
	"a Lease is created without the name of its cluster": {
		do:      create(func(l *coordinationv1.Lease) { delete(l.Annotations, v1alpha1.ClusterAnnotation) }),
		tenants: notTheHub, administrator: noCluster, hub: noCluster,
	},
	"a Lease is created with an empty name of its cluster": {
		do:      create(func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.ClusterAnnotation] = "" }),
		tenants: notTheHub, administrator: noCluster, hub: noCluster,
	},
	"a foreign Lease is created": {
		do: func(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, namespace, name string) error {
			_, err := leases.Create(ctx, newForeign(t, namespace, name), metav1.CreateOptions{})
			return err
		},
	},
	"a foreign Lease without a spec or labels is created": {
		do: func(ctx context.Context, _ *testing.T, leases coordinationclient.LeaseInterface, _, name string) error {
			_, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		},
	},
	"a foreign Lease is changed, its count falls": {
		before: newForeign, do: update(func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions-- }),
	},
	"a foreign Lease gets marks of other domains": {
		before: newForeign,
		do: update(func(l *coordinationv1.Lease) {
			l.Labels = map[string]string{"example.com/leasecast.dev": "true", "leasecast.dev": "true"}
			l.Annotations = map[string]string{"notleasecast.dev/cluster": "east.default", "x.leasecast.dev/cluster": "east.default"}
		}),
	},
	"a foreign Lease without an epoch becomes a Lease": {
		before: func(_ *testing.T, namespace, name string) *coordinationv1.Lease {
			return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		},
		do: func(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, namespace, name string) error {
			return update(func(l *coordinationv1.Lease) {
				written := newLease(t, namespace, name)
				l.Labels, l.Annotations, l.Spec = written.Labels, written.Annotations, written.Spec
			})(ctx, t, leases, namespace, name)
		},
		tenants: notTheHub,
	},
	"a foreign Lease is deleted": {
		before: newForeign, do: remove,
	},
	"foreign Leases are deleted as a collection": {
		before: newForeign, do: removeCollection, hub: rbac,
	},
}

func TestLeasesAreTheHubsAlone(t *testing.T) {
	parallel(t)
	namespace := newNamespace(t)
	admin := administrator(t)
	type caller struct {
		client *kubernetes.Clientset
		answer func(act) string
	}
	tenants := func(a act) string { return a.tenants }
	administrators := func(a act) string { return a.administrator }
	callers := map[string]caller{
		"an administrator": {admin, administrators},
		"cluster-admin": {account(t, "clara",
			rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
			rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}), administrators},
		"the hub's ServiceAccount":       {serviceAccount(t, "leasecast-hub", nothing), func(a act) string { return a.hub }},
		"an editor of the namespace":     {tenant(t, "erin", namespace, "edit"), tenants},
		"an admin of the namespace":      {tenant(t, "adam", namespace, "admin"), tenants},
		"cluster-admin in the namespace": {tenant(t, "omar", namespace, "cluster-admin"), tenants},
		"the hub's role in the namespace": {tenant(t, "hugo", namespace, "leasecast-system:leasecast-hub"),
			func(a act) string { return or(a.tenants, a.hub) }},
		"an editor of all Leases": {leaseEditor(t), tenants},
		"an owner of all resources": {account(t, "olga",
			rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}), tenants},
	}
	stored := admin.CoordinationV1().Leases(namespace)
	n := 0
	for who, c := range callers {
		for what, a := range acts {
			n++
			name := fmt.Sprintf("lease-%d", n)
			t.Run(who+"/"+what, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if err := stored.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
					t.Fatal(err)
				}
				var before *coordinationv1.Lease
				if a.before != nil {
					var err error
					if before, err = stored.Create(ctx, a.before(t, namespace, name), metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				err := a.do(ctx, t, c.client.CoordinationV1().Leases(namespace), namespace, name)
				mustAnswer(t, err, c.answer(a))
				if c.answer(a) != allowed {
					mustBeUntouched(ctx, t, stored, name, before)
				}
			})
		}
	}
}

// or is the answer of the policy, or that of RBAC where the caller's role does not go as far.
func or(policy, role string) string {
	if role == rbac {
		return rbac
	}
	return policy
}

func mustAnswer(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == allowed && err != nil:
		t.Fatalf("refused: %v", err)
	case want != allowed && err == nil:
		t.Fatalf("let through, want refused: %s", want)
	case want != allowed && !strings.Contains(err.Error(), want):
		t.Fatalf("refused with: %v\nwant: %s", err, want)
	case (want == notTheHub || want == notTheReader || want == rbac) && !apierrors.IsForbidden(err):
		t.Fatalf("refused with reason %s, want Forbidden", apierrors.ReasonForError(err))
	case slices.Contains([]string{incomplete, noCluster, epochFell, incompleteReader, becameAnother, identified}, want) && !apierrors.IsInvalid(err):
		t.Fatalf("refused with reason %s, want Invalid", apierrors.ReasonForError(err))
	}
}

func mustBeUntouched(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, name string, before *coordinationv1.Lease) {
	t.Helper()
	after, err := leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case before == nil && !apierrors.IsNotFound(err):
		t.Fatalf("there is a Lease (%v) after a refused creation", err)
	case before != nil && err != nil:
		t.Fatal(err)
	case before != nil && after.ResourceVersion != before.ResourceVersion:
		t.Fatal("the Lease has changed although the request was refused")
	}
}

func TestANamespaceTakesItsLeasesAlong(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	namespace := newDoomedNamespace(t)
	if err := create(asIs)(t.Context(), t, admin.CoordinationV1().Leases(namespace), namespace, "leasecast"); err != nil {
		t.Fatal(err)
	}
	if err := admin.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func(ctx context.Context) error { return gone(ctx, admin, namespace) })
}

func TestInADyingNamespaceLeasesAreDeletedButNotChanged(t *testing.T) {
	parallel(t)
	admin, editor := administrator(t), leaseEditor(t)
	namespace := newDoomedNamespace(t)
	const name = "leasecast"
	stored := admin.CoordinationV1().Leases(namespace)
	held := func(l *coordinationv1.Lease) { l.Finalizers = []string{"example.com/stay"} } // for a look at it
	if err := create(held)(t.Context(), t, stored, namespace, name); err != nil {
		t.Fatal(err)
	}
	if err := admin.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "anybody may delete the Lease", func(ctx context.Context) error {
		return editor.CoordinationV1().Leases(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	})
	release := update(func(l *coordinationv1.Lease) { l.Finalizers = nil })
	err := release(t.Context(), t, editor.CoordinationV1().Leases(namespace), namespace, name)
	mustAnswer(t, err, notTheHub)

	if err := release(t.Context(), t, stored, namespace, name); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func(ctx context.Context) error { return gone(ctx, admin, namespace) })
}

func gone(ctx context.Context, client kubernetes.Interface, namespace string) error {
	ns, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("namespace %s is %s: %v", namespace, ns.Status.Phase, ns.Status.Conditions)
}

// No request is known that makes an expression of the policy fail, but one that does must not pass.
func TestThePoliciesFailClosed(t *testing.T) {
	for _, p := range guard.Policies() {
		if got := p.Policy.Spec.FailurePolicy; got == nil || *got != admissionv1.Fail {
			t.Errorf("%s: failurePolicy %v, want Fail", p.Policy.Name, got)
		}
	}
}

func TestNodesAndControlPlaneDoNotDependOnThePolicy(t *testing.T) {
	parallel(t)
	for _, namespace := range []string{metav1.NamespaceSystem, metav1.NamespacePublic, "kube-node-lease"} {
		t.Run(namespace, func(t *testing.T) {
			erin := tenant(t, "erin", namespace, "edit")
			leases := erin.CoordinationV1().Leases(namespace)
			if err := create(asIs)(t.Context(), t, leases, namespace, "leasecast"); err != nil {
				t.Fatal(err)
			}
			if err := leases.Delete(t.Context(), "leasecast", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
