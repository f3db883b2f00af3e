package integration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// allowFollow applies the roles of config/follow in members, and another one that is aggregated with more rules of an
// administrator.
func (w *world) allowFollow(more []rbacv1.PolicyRule, members ...string) {
	w.T.Helper()
	for _, m := range members {
		roles := []*rbacv1.ClusterRole{{}, {}, {
			ObjectMeta: metav1.ObjectMeta{
				Name: w.Fleet + "-more", Labels: map[string]string{"leasecast.dev/aggregate-to-follow": "true"},
			},
			Rules: more,
		}}
		for i, file := range []string{"hub_role.yaml", "workloads_role.yaml"} {
			w.Must(yaml.UnmarshalStrict(harness.Get(os.ReadFile("../../config/follow/"+file))(w.T), roles[i]))
		}
		for _, role := range roles {
			w.Must(client.IgnoreNotFound(w.Members[m].Delete(w.T.Context(), role.DeepCopy())))
			w.Must(w.Members[m].Create(w.T.Context(), role))
		}
	}
	w.T.Cleanup(func() {
		for _, m := range members {
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.Fleet + "-more"}}
			w.Must(client.IgnoreNotFound(w.Members[m].Delete(context.Background(), role)))
		}
	})
}

// workload is a Deployment with so many replicas.
func workload(name string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata:
  name: %s
spec:
  replicas: %d
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec: {containers: [{name: shop, image: shop}]}
`, name, replicas, name, name)
}

// settings is a ConfigMap with one entry.
func settings(name, entry string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {%s}\n", name, entry)
}

// source writes a ConfigMap with manifests into the fleet's namespace.
func (w *world) source(name string, manifests ...string) {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: name}}
	data := map[string]string{"all.yaml": strings.Join(manifests, "\n---\n")}
	if err := w.Hub.Get(w.T.Context(), client.ObjectKeyFromObject(o), o); apierrors.IsNotFound(err) {
		o.Data = data
		w.Must(w.Hub.Create(w.T.Context(), o))
		return
	}
	o.Data = data
	w.Must(w.Hub.Update(w.T.Context(), o))
}

// resourceSet creates a set of ConfigMaps, each with who it is for, as in "leader=Leader".
func (w *world) resourceSet(name, namespace string, sources ...string) *v1alpha1.LeaderResourceSet {
	o := &v1alpha1.LeaderResourceSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: name}}
	o.Spec.Namespace = namespace
	for _, s := range sources {
		from, role, _ := strings.Cut(s, "=")
		o.Spec.Resources = append(o.Spec.Resources, v1alpha1.LeaderResource{
			Kind: v1alpha1.SourceConfigMap, Name: from, For: v1alpha1.ClusterRole(role),
		})
	}
	w.Must(w.Hub.Create(w.T.Context(), o))
	return o
}

// deleteSet deletes a set.
func (w *world) deleteSet(name string) {
	o := &v1alpha1.LeaderResourceSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: name}}
	w.Must(w.Hub.Delete(w.T.Context(), o))
}

// change edits an object in a member, as kubectl edit does.
func (w *world) change(member string, o client.Object, patch string) {
	w.Must(w.Members[member].Patch(w.T.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)),
		client.FieldOwner("kubectl-edit")))
}

// awaitReady waits until the set's condition Ready has a reason, and a message with these words.
func (w *world) awaitReady(set string, why reason.Reason, words ...string) {
	w.T.Helper()
	w.awaitSet(set, v1alpha1.ConditionReady, why, words...)
}

// awaitSet is the same of any condition.
func (w *world) awaitSet(set, kind string, why reason.Reason, words ...string) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("set %s is %s", set, why), soon, func() error {
		o := &v1alpha1.LeaderResourceSet{}
		if err := w.Hub.Get(w.T.Context(), types.NamespacedName{Namespace: w.Fleet, Name: set}, o); err != nil {
			return err
		}
		is := meta.FindStatusCondition(o.Status.Conditions, kind)
		if is == nil || is.Reason != string(why) {
			return fmt.Errorf("%+v", o.Status)
		}
		return contains(is.Message, words...)
	})
}

// replicas waits until the Deployment has so many replicas in each member, as in "east 2 west 0". -1: it is not there.
func (w *world) replicas(namespace, name, want string) {
	w.T.Helper()
	w.Eventually(name+" has replicas "+want, soon, func() error {
		words, got := strings.Fields(want), []string{}
		for i := 0; i < len(words); i += 2 {
			o := &appsv1.Deployment{}
			err := w.Members[words[i]].Get(w.T.Context(), types.NamespacedName{Namespace: namespace, Name: name}, o)
			n := int32(-1)
			if err == nil {
				n = *o.Spec.Replicas
			}
			w.Must(client.IgnoreNotFound(err))
			got = append(got, words[i], fmt.Sprint(n))
		}
		return must.ErrorIf(strings.Join(got, " ") != want, "%v", got)
	})
}

// setting waits until a ConfigMap has this data in a member, as fmt prints it. Empty: it is not there.
func (w *world) setting(member, namespace, name, want string) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("%s has %s with %q", member, name, want), soon, func() error {
		o := &corev1.ConfigMap{}
		err := w.Members[member].Get(w.T.Context(), types.NamespacedName{Namespace: namespace, Name: name}, o)
		w.Must(client.IgnoreNotFound(err))
		got := ""
		if err == nil {
			got = fmt.Sprint(o.Data)
		}
		return must.ErrorIf(got != want, "%q", got)
	})
}

// A stock Deployment follows the leader, and what was edited or deleted is repaired: the stories of Cluster API's issue
// 4807.
func TestObjectsFollowTheLeader(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, brief)
	w.allowFollow(nil, all...)
	w.source("leader", workload("shop", 2), settings("mine", "role: leader"))
	w.source("followers", workload("shop", 0))
	w.source("both", settings("shared", "a: x, b: w"))
	w.resourceSet("shop", a, "leader=Leader", "followers=Followers", "both=All")
	w.replicas(a, "shop", "east 2 west 0 south 0")
	w.setting("east", a, "mine", "map[role:leader]")
	w.setting("west", a, "mine", "")
	w.setting("west", a, "shared", "map[a:x b:w]")
	w.awaitReady("shop", reason.InPlace, "3 clusters")

	t.Log("the leader changes: the Deployment is replaced in place")
	was := &appsv1.Deployment{}
	w.Must(w.Members["east"].Get(t.Context(), types.NamespacedName{Namespace: a, Name: "shop"}, was))
	w.order(a, "west")
	w.replicas(a, "shop", "east 0 west 0 south 0")
	w.observed("east", a, "shop")
	w.Leads("west", a, w.ordered(), all...)
	w.replicas(a, "shop", "east 0 west 2 south 0")
	w.setting("west", a, "mine", "map[role:leader]")
	w.setting("east", a, "mine", "")
	is := &appsv1.Deployment{}
	w.Must(w.Members["east"].Get(t.Context(), types.NamespacedName{Namespace: a, Name: "shop"}, is))
	if is.UID != was.UID {
		t.Error("it was deleted and created again")
	}

	t.Log("a source changes: a new entry, one less, and an object less")
	w.source("both", settings("shared", "a: z"), settings("more", "c: c"))
	w.setting("south", a, "shared", "map[a:z]")
	w.setting("south", a, "more", "map[c:c]")
	w.source("both", settings("shared", "a: z"))
	w.setting("south", a, "more", "")

	t.Log("an object is edited, one is scaled, and one is deleted")
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "shared"}}
	w.change("south", o, `{"data":{"a":"drift"}}`)
	w.setting("south", a, "shared", "map[a:z]")
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "shop"}}
	w.change("south", d, `{"spec":{"replicas":7}}`)
	w.replicas(a, "shop", "east 0 west 2 south 0")
	w.Must(w.Members["west"].Delete(t.Context(), d))
	w.replicas(a, "shop", "west 2")

	t.Log("the set is deleted: its objects go, and no copy with the same labels")
	w.Must(w.Members["east"].Get(t.Context(), client.ObjectKeyFromObject(o), o))
	other := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: w.Fleet + "-copy", Labels: o.Labels}, Data: o.Data,
	}
	w.Must(w.Members["east"].Create(t.Context(), other))
	renamed := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "renamed", Labels: o.Labels}, Data: o.Data,
	}
	w.Must(w.Members["east"].Create(t.Context(), renamed))
	w.deleteSet("shop")
	w.replicas(a, "shop", "east -1 west -1 south -1")
	w.setting("east", a, "shared", "")
	w.Eventually("the set is gone", soon, func() error {
		err := w.Hub.Get(t.Context(), types.NamespacedName{Namespace: w.Fleet, Name: "shop"}, &v1alpha1.LeaderResourceSet{})
		return must.ErrorIf(!apierrors.IsNotFound(err), "%v", err)
	})
	w.setting("east", "default", other.Name, "map[a:z]")
	w.setting("east", a, "renamed", "map[a:z]")
	w.Must(w.Members["east"].Delete(t.Context(), other))
}

// What is wrong with one object is said, and keeps no other object from its place.
func TestWhatIsWrongWithAnObjectIsSaid(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, steady)
	crds := rbacv1.PolicyRule{
		APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
		Verbs: []string{"get", "list", "watch", "create", "patch", "delete"},
	}
	shops := rbacv1.PolicyRule{
		APIGroups: []string{w.Fleet + ".example.com"}, Resources: []string{"shops"},
		Verbs: []string{"get", "list", "watch", "create", "patch", "delete"},
	}
	w.allowFollow(nil, all...)
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\n"
	w.source("all", settings("good", "a: x"), secret)
	w.resourceSet("first", a, "all=All")
	w.awaitReady("first", reason.NotAllowed, "Secret "+a+"/keys", "config/follow")
	w.setting("west", a, "good", "map[a:x]")

	t.Log("a source that is missing, or no YAML: nothing is deleted meanwhile")
	w.source("all", "{", settings("new", "b: w"))
	w.awaitReady("first", reason.InvalidSource, "ConfigMap all, key all.yaml")
	w.setting("west", a, "good", "map[a:x]")
	w.source("all", settings("new", "b: w"))
	w.setting("west", a, "new", "map[b:w]")
	w.setting("west", a, "good", "")
	w.awaitReady("first", reason.InPlace)
	w.Must(w.Hub.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: "all"}}))
	w.awaitReady("first", reason.InvalidSource, "there is no ConfigMap all")
	w.source("all", settings("new", "b: w"))

	t.Log("another manager applies a Deployment: its replicas alone are taken over")
	deployment := &unstructured.Unstructured{}
	w.Must(yaml.Unmarshal([]byte(strings.Replace(workload("theirs", 3), "image: shop", "image: other", 1)),
		&deployment.Object))
	deployment.SetNamespace(a)
	w.Must(w.Members["east"].Apply(t.Context(), client.ApplyConfigurationFromUnstructured(deployment),
		client.FieldOwner("argocd")))
	w.source("all", settings("new", "b: w"), workload("theirs", 0))
	w.awaitReady("first", reason.AppliedByOther, "cluster east", "Deployment "+a+"/theirs")
	w.replicas(a, "theirs", "east 0 west 0")
	w.source("all", settings("new", "b: w"))
	w.awaitReady("first", reason.InPlace)

	t.Log("another set wants the same object: the older one has it")
	w.source("rival", settings("new", "b: z"), settings("alone", "c: c"))
	w.resourceSet("second", a, "rival=All")
	w.awaitReady("second", reason.KeptByOther, "ConfigMap "+a+"/new", "the set first keeps it")
	w.setting("west", a, "alone", "map[c:c]")
	w.setting("west", a, "new", "map[b:w]")

	t.Log("another manager has applied a field")
	applied := &unstructured.Unstructured{}
	applied.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	applied.SetNamespace(a)
	applied.SetName("theirs")
	w.Must(unstructured.SetNestedField(applied.Object, "theirs", "data", "a"))
	w.Must(w.Members["east"].Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied),
		client.FieldOwner("argocd")))
	w.source("rival", settings("theirs", "a: ours"))
	w.awaitReady("second", reason.AppliedByOther, "cluster east", "argocd", "force")
	w.setting("west", a, "theirs", "map[a:ours]")
	w.setting("east", a, "theirs", "map[a:theirs]")
	w.editSet("second", func(s *v1alpha1.LeaderResourceSetSpec) { s.Force = true })
	w.setting("east", a, "theirs", "map[a:ours]")
	w.awaitReady("second", reason.InPlace)

	t.Log("an object of a kind that is defined later, by another source, which needs the verb place")
	w.allowFollow([]rbacv1.PolicyRule{crds, shops}, all...)
	group := w.Fleet + ".example.com"
	shop := fmt.Sprintf("apiVersion: %s/v1\nkind: Shop\nmetadata: {name: corner}\n", group)
	w.source("rival", shop)
	w.awaitReady("second", reason.NoSuchKind, "Shop "+a+"/corner")
	w.source("rival", shop, definition(group, a))
	w.awaitReady("second", reason.NotAllowed, "CustomResourceDefinition shops."+group, "may not place")
	crds.Verbs = append(crds.Verbs, "place")
	w.allowFollow([]rbacv1.PolicyRule{crds, shops}, all...)
	w.awaitReady("second", reason.InPlace)
	j := w.keeps("east", a) // for a while: what has a namespace in the manifest alone stays
	j.outlive()
	w.awaitReady("second", reason.InPlace)
	w.deleteSet("second")
	w.Eventually("the definition is gone", soon, func() error {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.GroupVersionKind{
			Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		})
		err := w.Members["south"].Get(t.Context(), types.NamespacedName{Name: "shops." + group}, o)
		return must.ErrorIf(!apierrors.IsNotFound(err), "%v", err)
	})
}

// definition defines the kind Shop in a group. It has a namespace, as what Helm renders often has.
func definition(group, namespace string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: shops.%s
  namespace: %s
spec:
  group: %s
  scope: Namespaced
  names: {kind: Shop, plural: shops}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
`, group, namespace, group)
}

// editSet edits a set.
func (w *world) editSet(name string, edit func(*v1alpha1.LeaderResourceSetSpec)) {
	o := &v1alpha1.LeaderResourceSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: name}}
	w.Must(w.Hub.Get(w.T.Context(), client.ObjectKeyFromObject(o), o))
	base := o.DeepCopy()
	edit(&o.Spec)
	w.Must(w.Hub.Patch(w.T.Context(), o, client.MergeFrom(base)))
}

// A set that stops to select a cluster, or whose cluster cannot be reached, and one in a namespace without a policy.
func TestASetGoesWhereItsPolicyGoes(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, brief)
	w.allowFollow(nil, all...)
	w.source("all", settings("here", "a: x"))
	w.resourceSet("set", a, "all=All")
	w.setting("south", a, "here", "map[a:x]")
	w.editPolicy("p", func(s *v1alpha1.LeadershipPolicySpec) {
		s.ClusterSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: v1alpha1.PriorityLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{three["south"]}},
		}}
	})
	w.setting("south", a, "here", "")
	w.awaitReady("set", reason.InPlace, "2 clusters")

	t.Log("the leader cannot be reached: it keeps its form, and the set is not Ready")
	w.Servers.Member("east").Proxy().BlackHole()
	w.Leads("west", a, w.lost(), "west")
	w.awaitReady("set", reason.Unreachable, "cluster east")
	w.source("all", settings("here", "a: w"))
	w.setting("west", a, "here", "map[a:w]")
	w.Servers.Member("east").Proxy().Heal()
	w.setting("east", a, "here", "map[a:w]")

	t.Log("the policy goes: everything stays")
	p := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: "p"}}
	w.Must(w.Hub.Delete(t.Context(), p))
	w.awaitReady("set", reason.NotManaged, a)
	w.setting("west", a, "here", "map[a:w]")
}

// noOrder takes an order back.
func (w *world) noOrder(namespace string) {
	o := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: namespace}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.MoveToAnnotation)
	w.Must(w.Hub.Patch(w.T.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// pod creates a Pod of a workload, as a Deployment's controller would. No kubelet runs it.
func (w *world) pod(member, namespace, app string) *corev1.Pod {
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: app, Image: app}}},
	}
	w.Must(w.Members[member].Create(w.T.Context(), o))
	return o
}

// observed writes the status of a Deployment that its controller has scaled to 0. No such controller runs here.
func (w *world) observed(member, namespace, name string) {
	o := &appsv1.Deployment{}
	w.Must(w.Members[member].Get(w.T.Context(), types.NamespacedName{Namespace: namespace, Name: name}, o))
	o.Status.ObservedGeneration = o.Generation
	w.Must(w.Members[member].Status().Update(w.T.Context(), o))
}

// A planned change waits until no Pod is left of what the old leader's cluster has stopped.
func TestAPlannedChangeWaitsUntilTheOldLeaderHasStopped(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, brief)
	w.allowFollow(nil, all...)
	w.source("leader", workload("shop", 2), settings("mine", "role: leader"))
	w.source("followers", workload("shop", 0))
	w.resourceSet("shop", a, "leader=Leader", "followers=Followers")
	w.replicas(a, "shop", "east 2 west 0 south 0")
	running := w.pod("east", a, "shop")

	t.Log("an order: east stops, and leads on while the Pod is there")
	w.order(a, "west")
	w.replicas(a, "shop", "east 0 west 0 south 0")
	j := w.keeps("east", a)
	j.outlive()
	j.check()
	t.Log("the order is taken back: east runs it again")
	w.noOrder(a)
	w.replicas(a, "shop", "east 2 west 0 south 0")
	if got := w.Leads("east", a, soon, all...); got != epoch {
		t.Errorf("epoch %d, want %d", got, epoch)
	}
	t.Log("ordered again, and the Pod ends: east leads on until the controller has observed that")
	w.order(a, "west")
	w.replicas(a, "shop", "east 0 west 0 south 0")
	w.Must(w.Members["east"].Delete(t.Context(), running, client.GracePeriodSeconds(0)))
	j = w.keeps("east", a)
	j.outlive()
	j.check()
	w.observed("east", a, "shop")
	w.Leads("west", a, w.ordered(), all...)
	w.replicas(a, "shop", "east 0 west 2 south 0")
	w.awaitSet("shop", v1alpha1.ConditionInOrder, reason.InOrder)

	t.Log("a Pod does not end: the change goes on when its time is over")
	w.editSet("shop", func(s *v1alpha1.LeaderResourceSetSpec) { s.ConfirmWithinSeconds = 3 })
	w.pod("west", a, "shop")
	w.order(a, "south")
	w.Leads("south", a, w.ordered(), all...)
	w.replicas(a, "shop", "east 0 west 0 south 2")
	w.awaitSet("shop", v1alpha1.ConditionInOrder, reason.OutOfOrder, "away from west", "Deployment "+a+"/shop")

	t.Log("a leader that is lost is waited for by nobody")
	w.pod("south", a, "shop")
	w.Servers.Member("south").Proxy().BlackHole()
	w.Leads("east", a, w.lost(), "east", "west")
	w.replicas(a, "shop", "east 2 west 0 south 2")
	w.Servers.Member("south").Proxy().Heal()
	w.replicas(a, "shop", "east 2 west 0 south 0")
}
