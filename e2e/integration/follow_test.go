package integration

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// followed is how long it may take until a set is in place, or its status shows that. The hub retries what failed
// within 5 s, and asks again within 3.3 s for a kind that was not served.
const followed = soon + 5*time.Second + 3300*time.Millisecond

// allow applies a folder of config in members: fencing, follow or requires.
func (w *world) allow(folder string, members ...string) {
	w.T.Helper()
	for _, m := range members {
		w.Must(harness.Apply(w.T.Context(), w.Servers.Member(m), folder))
	}
}

// allowMore gives hubs more rules for what follows the leader, by a role that is aggregated, until the test ends.
func (w *world) allowMore(rules []rbacv1.PolicyRule, members ...string) {
	w.T.Helper()
	for _, m := range members {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.Fleet + "-more"}}
		musttest.Get(controllerutil.CreateOrUpdate(w.T.Context(), w.Members[m], role, func() error {
			role.Labels, role.Rules = map[string]string{"leasecast.dev/aggregate-to-follow": "true"}, rules
			return nil
		}))(w.T)
		w.T.Cleanup(func() { w.Must(client.IgnoreNotFound(w.Members[m].Delete(context.Background(), role))) })
	}
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

// awaitReady waits until the set's condition Ready has a reason, and a message with these words.
func (w *world) awaitReady(set string, why reason.Reason, words ...string) {
	w.T.Helper()
	w.awaitSet(set, v1alpha1.ConditionReady, why, words...)
}

// awaitSet is the same of any condition.
func (w *world) awaitSet(set, kind string, why reason.Reason, words ...string) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("set %s is %s", set, why), followed, func() error {
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
	w.Eventually(name+" has replicas "+want, followed, func() error {
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
	w.Eventually(fmt.Sprintf("%s has %s with %q", member, name, want), followed, func() error {
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

// What a set has in place follows its sources in every cluster that its policy selects, whoever edits it there, and
// goes with the set. While nothing changes, nothing is written on the management cluster.
func TestObjectsFollowTheirSources(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, steady)
	w.allow("follow", all...)
	in := func(name, want string) {
		t.Helper()
		for _, m := range all {
			w.setting(m, a, name, want)
		}
	}
	// edit is what kubectl edit sends, in each member.
	edit := func(o client.Object, patch string) {
		t.Helper()
		o.SetNamespace(a)
		for _, m := range all {
			w.Must(w.Members[m].Patch(t.Context(), o.DeepCopyObject().(client.Object),
				client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-edit")))
		}
	}
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	set := &v1alpha1.LeaderResourceSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: "set"}}
	front := strings.Replace(workload("front", 0), "  name: front\n", "  name: front\n  labels: {tier: front}\n", 1)

	t.Log("a source is missing: the others are applied, and nothing is deleted")
	w.source("all", settings("one", "a: x, b: w"), settings("two", "b: w"))
	w.resourceSet("set", a, "all=All", "late=All")
	w.awaitReady("set", reason.InvalidSource, "there is no ConfigMap late")
	in("two", "map[b:w]")
	w.source("all", settings("one", "a: v, b: w"), front)
	in("one", "map[a:v b:w]")
	in("two", "map[b:w]")
	t.Log("it comes: what no source has any more is deleted")
	w.source("late", settings("large", "a: x"))
	in("two", "")
	w.awaitReady("set", reason.InPlace)
	w.awaitIn("set", "west", 3, "")

	t.Log("a field leaves the source: what others have set stays")
	edit(one, `{"data":{"c":"c"},"metadata":{"annotations":{"edited":"yes"}}}`)
	w.source("all", settings("one", "a: v"), front)
	in("one", "map[a:v c:c]")
	w.Must(w.Members["west"].Get(t.Context(), client.ObjectKey{Namespace: a, Name: "one"}, one))
	if one.Annotations["edited"] != "yes" {
		t.Errorf("annotations %v", one.Annotations)
	}
	t.Log("an edit of what the source has, and a deletion")
	edit(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, `{"data":{"a":"drift"}}`)
	in("one", "map[a:v c:c]")
	for _, m := range all {
		w.Must(w.Members[m].Delete(t.Context(), one.DeepCopy()))
	}
	in("one", "map[a:v]")
	t.Log("an edit of a label alone, of an object with a spec")
	harness.Edit(t, w.Hub, set, func(o *v1alpha1.LeaderResourceSet) { o.Spec.IntervalSeconds = 10 })
	o := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "front"}}
	edit(o, `{"metadata":{"labels":{"tier":"drift"}}}`)
	w.Eventually("the label is repaired after intervalSeconds", 2*soon, func() error {
		must.Do(w.Members["west"].Get(t.Context(), client.ObjectKey{Namespace: a, Name: "front"}, o))
		return must.ErrorIf(o.Labels["tier"] != "front", "%v", o.Labels)
	})

	t.Log("force takes over what another manager applies")
	theirs := &unstructured.Unstructured{}
	w.Must(yaml.Unmarshal([]byte(settings("theirs", "a: first, b: first")), &theirs.Object))
	theirs.SetNamespace(a)
	w.Must(w.Members["south"].Apply(t.Context(), client.ApplyConfigurationFromUnstructured(theirs),
		client.FieldOwner("argocd")))
	w.source("all", settings("theirs", "a: second"), settings("one", "a: v"))
	w.awaitReady("set", reason.AppliedByOther, "cluster south: ConfigMap "+a+"/theirs", "argocd")
	w.setting("west", a, "theirs", "map[a:second]")
	w.setting("south", a, "theirs", "map[a:first b:first]")
	harness.Edit(t, w.Hub, set, func(o *v1alpha1.LeaderResourceSet) { o.Spec.Force = true })
	w.setting("south", a, "theirs", "map[a:second b:first]")
	w.awaitReady("set", reason.InPlace)
	w.writesNothing(5 * time.Second)

	t.Log("the policy selects a cluster no more")
	harness.Edit(t, w.Hub, &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: "p"}},
		func(p *v1alpha1.LeadershipPolicy) {
			p.Spec.ClusterSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: v1alpha1.PriorityLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{three["south"]},
			}}}
		})
	w.setting("south", a, "one", "")
	w.setting("west", a, "one", "map[a:v]")
	t.Log("a source of 1 MiB, the most of a ConfigMap, which the race detector makes slow to parse: it is rarely read")
	harness.Edit(t, w.Hub, set, func(o *v1alpha1.LeaderResourceSet) { o.Spec.IntervalSeconds = 600 })
	long := strings.Repeat("x", 1<<20-len(settings("large", "a: ")))
	w.source("late", settings("large", "a: "+long))
	w.Eventually("large is in place in west and east", 6*soon, func() error {
		for _, m := range []string{"west", "east"} {
			o := &corev1.ConfigMap{}
			must.Do(w.Members[m].Get(w.T.Context(), client.ObjectKey{Namespace: a, Name: "large"}, o))
			if len(o.Data["a"]) != len(long) {
				return fmt.Errorf("%d bytes in %s", len(o.Data["a"]), m)
			}
		}
		return nil
	})
	t.Log("the set is deleted, once nothing is parsed any more")
	w.deleteSet("set")
	w.Eventually("nothing of the set is left", 6*soon, func() error {
		for _, m := range all {
			left := &corev1.ConfigMapList{}
			must.Do(w.Members[m].List(t.Context(), left, client.InNamespace(a), client.HasLabels{v1alpha1.SetLabel}))
			must.FailIf(len(left.Items) > 0, "%d objects are left in %s", len(left.Items), m)
		}
		return nil
	})
}

// writesNothing waits until no object of the fleet on the management cluster has changed for so long.
func (w *world) writesNothing(span time.Duration) {
	w.T.Helper()
	var last map[string]string
	var since time.Time
	w.Eventually("nothing is written for "+span.String(), time.Minute, func() error {
		now := map[string]string{}
		for _, list := range []client.ObjectList{
			&clusterv1.ClusterList{}, &corev1.SecretList{}, &v1alpha1.LeadershipPolicyList{},
			&v1alpha1.NamespaceLeaderList{}, &v1alpha1.LeaderResourceSetList{}, &eventsv1.EventList{},
		} {
			must.Do(w.Hub.List(w.T.Context(), list, client.InNamespace(w.Fleet)))
			must.Do(meta.EachListItem(list, func(o runtime.Object) error {
				is := o.(client.Object)
				now[fmt.Sprintf("%T %s", o, is.GetName())] = is.GetResourceVersion()
				return nil
			}))
		}
		if !maps.Equal(now, last) {
			changed := cmp.Diff(last, now)
			last, since = now, time.Now()
			must.Fail("%s", changed)
		}
		return must.ErrorIf(time.Since(since) < span, "since %v", since)
	})
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
	w.allow("follow", all...)
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\n"
	w.source("all", settings("good", "a: x"), secret)
	w.resourceSet("first", a, "all=All")
	w.awaitReady("first", reason.NotAllowed, "Secret "+a+"/keys", "config/follow")
	w.setting("west", a, "good", "map[a:x]")

	t.Log("another manager applies a Deployment: its replicas alone are taken over")
	deployment := &unstructured.Unstructured{}
	w.Must(yaml.Unmarshal([]byte(strings.Replace(workload("theirs", 3), "image: shop", "image: other", 1)),
		&deployment.Object))
	deployment.SetNamespace(a)
	w.Must(w.Members["east"].Apply(t.Context(), client.ApplyConfigurationFromUnstructured(deployment),
		client.FieldOwner("argocd")))
	w.source("all", settings("good", "a: x"), workload("theirs", 0))
	w.awaitReady("first", reason.AppliedByOther, "cluster east", "Deployment "+a+"/theirs")
	w.replicas(a, "theirs", "east 0 west 0")
	t.Log("the form leaves them out: they are released")
	w.source("all", settings("good", "a: x"), strings.Replace(workload("theirs", 0), "  replicas: 0\n", "", 1))
	w.replicas(a, "theirs", "east 1 west 1")
	w.source("all", settings("good", "a: x"))
	w.awaitReady("first", reason.InPlace)

	t.Log("another set wants the same object: the older one has it")
	w.source("rival", settings("good", "a: z"), settings("alone", "c: c"))
	w.resourceSet("second", a, "rival=All")
	w.awaitReady("second", reason.KeptByOther, "ConfigMap "+a+"/good", "the set first keeps it")
	w.setting("west", a, "alone", "map[c:c]")
	w.setting("west", a, "good", "map[a:x]")

	t.Log("an object of a kind that is defined later, by another source, which needs the verb place")
	w.allowMore([]rbacv1.PolicyRule{crds, shops}, all...)
	group := w.Fleet + ".example.com"
	shop := fmt.Sprintf("apiVersion: %s/v1\nkind: Shop\nmetadata: {name: corner}\n", group)
	w.source("rival", shop)
	w.awaitReady("second", reason.NoSuchKind, "Shop "+a+"/corner")
	w.source("rival", shop, definition(group, a))
	w.awaitReady("second", reason.NotAllowed, "CustomResourceDefinition shops."+group, "may not place")
	crds.Verbs = append(crds.Verbs, "place")
	w.allowMore([]rbacv1.PolicyRule{crds, shops}, all...)
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

	t.Log("the policy goes: everything stays")
	w.deletePolicy("p")
	w.awaitReady("first", reason.NotManaged, a)
	w.setting("west", a, "good", "map[a:x]")
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

// observed writes the status of a Deployment that its controller has scaled to 0. No such controller runs here.
func (w *world) observed(member, namespace, name string) {
	o := &appsv1.Deployment{}
	w.Must(w.Members[member].Get(w.T.Context(), types.NamespacedName{Namespace: namespace, Name: name}, o))
	o.Status.ObservedGeneration = o.Generation
	w.Must(w.Members[member].Status().Update(w.T.Context(), o))
}
